#include "worker/data/names.h"

#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/data/field.h"

namespace rubato {
namespace {

// An integer that a double holds exactly.
bool ParseInteger(absl::string_view text, double* value) {
  return ParseNumber(text, value) && std::trunc(*value) == *value && std::abs(*value) <= 0x1p53;
}

}  // namespace

int32_t Names::Number(absl::string_view name) {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  const int32_t number = static_cast<int32_t>(names_.size());
  names_.emplace_back(name);
  numbers_.emplace(names_.back(), number);
  return number;
}

std::vector<int32_t> Names::Ranks(std::vector<std::string>* ordered) const {
  bool integers = true;
  // Integers are compared as such, with one name each; else all values are 0.
  std::vector<std::pair<double, std::string>> keys;
  for (const std::string& name : names_) {
    double value = 0;
    integers = integers && ParseInteger(name, &value);
    keys.emplace_back(value, "");
  }
  std::map<std::pair<double, std::string>, int32_t> ranks;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!integers) keys[i] = {0, names_[i]};
    ranks[keys[i]] = 0;
  }
  int32_t rank = 0;
  if (ordered != nullptr) ordered->clear();
  for (auto& [key, its_rank] : ranks) {
    its_rank = rank++;
    if (ordered == nullptr) continue;
    ordered->push_back(integers ? absl::StrCat(static_cast<int64_t>(key.first)) : key.second);
  }
  std::vector<int32_t> result;
  for (const auto& key : keys) result.push_back(ranks[key]);
  return result;
}

}  // namespace rubato
