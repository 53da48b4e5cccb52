#include "common/job/report.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace rubato {
namespace {

// More would scroll the first ones off the screen.
constexpr size_t kMaxLines = 100;

// Whether `key` is `outer` or lies in it.
bool IsWithin(absl::string_view key, absl::string_view outer) {
  if (outer.empty()) return true;
  if (!absl::StartsWith(key, outer)) return false;
  return key.size() == outer.size() || key[outer.size()] == '.' || key[outer.size()] == '[';
}

// The key around `key`; the empty one around the outermost.
absl::string_view Outer(absl::string_view key) {
  const size_t cut = key.find_last_of(".[");
  return cut == absl::string_view::npos ? absl::string_view() : key.substr(0, cut);
}

}  // namespace

std::string Place::ToString() const {
  return line > 0 ? absl::StrCat(source, ":", line, ":", column) : source;
}

Place Report::PlaceOf(absl::string_view key) const {
  while (true) {
    const auto found = places_.find(key);
    if (found != places_.end()) return found->second;
    if (key.empty()) return Place();
    key = Outer(key);
  }
}

void Report::Add(const Place& place, const std::string& key, const std::string& what) {
  mistakes_.push_back({place, key, what});
  // A mistake of the whole document is no reason to be silent about its keys.
  if (!key.empty()) unsound_.insert(key);
}

std::string Report::FirstGiven(absl::string_view key) const {
  for (auto it = places_.lower_bound(key); it != places_.end(); ++it) {
    if (IsWithin(it->first, key)) return it->first;
    if (!absl::StartsWith(it->first, key)) break;  // optimizer, optimizers, optimizer.name
  }
  return "";
}

bool Report::Sound(absl::string_view key) const {
  for (absl::string_view outer = key; !outer.empty(); outer = Outer(outer)) {
    if (unsound_.count(std::string(outer)) > 0) return false;
  }
  for (const char* separator : {".", "["}) {
    const std::string inner = absl::StrCat(key, separator);
    const auto next = unsound_.lower_bound(inner);
    if (next != unsound_.end() && absl::StartsWith(*next, inner)) return false;
  }
  return true;
}

void Report::Forget(absl::string_view key) {
  for (auto it = places_.begin(); it != places_.end();) {
    it = IsWithin(it->first, key) ? places_.erase(it) : std::next(it);
  }
  for (auto it = unsound_.begin(); it != unsound_.end();) {
    it = IsWithin(*it, key) ? unsound_.erase(it) : std::next(it);
  }
  mistakes_.erase(
      std::remove_if(mistakes_.begin(), mistakes_.end(),
                     [key](const Mistake& mistake) { return IsWithin(mistake.key, key); }),
      mistakes_.end());
}

absl::Status Report::ToStatus(absl::string_view key) const {
  std::vector<const Mistake*> mistakes;
  for (const Mistake& mistake : mistakes_) {
    if (IsWithin(mistake.key, key)) mistakes.push_back(&mistake);
  }
  if (mistakes.empty()) return absl::OkStatus();
  std::stable_sort(mistakes.begin(), mistakes.end(), [](const Mistake* a, const Mistake* b) {
    const auto order = [](const Place& p) {
      return std::make_tuple(p.line == 0, p.line, p.column);
    };
    return order(a->place) < order(b->place);
  });
  std::string message;
  const size_t lines = std::min(mistakes.size(), kMaxLines);
  for (size_t i = 0; i < lines; ++i) {
    const Mistake& mistake = *mistakes[i];
    absl::StrAppend(&message, i > 0 ? "\n" : "", mistake.place.ToString(), ": ");
    if (!mistake.key.empty() && mistake.place.key != mistake.key) {
      absl::StrAppend(&message, mistake.key, ": ");
    }
    absl::StrAppend(&message, mistake.what);
  }
  if (mistakes.size() > lines) {
    absl::StrAppend(&message, "\nand ", mistakes.size() - lines, " more");
  }
  return absl::InvalidArgumentError(message);
}

}  // namespace rubato
