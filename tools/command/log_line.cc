#include "tools/command/log_line.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"

namespace rubato {
namespace {

constexpr absl::string_view kTime = "2026-11-21T07:59:01.123Z";

bool IsTime(absl::string_view text) {
  return std::equal(text.begin(), text.end(), kTime.begin(), kTime.end(),
                    [](unsigned char c, unsigned char shown) {
                      return absl::ascii_isdigit(shown) ? absl::ascii_isdigit(c) : c == shown;
                    });
}

bool IsRole(absl::string_view text) {
  return text == "coordinator" || text == "server" || text == "worker";
}

// Where Log begins: behind what a script has printed without an end of line, if that is not parted
// from it, as what is quoted would be.
absl::string_view FromTime(absl::string_view line) {
  for (size_t at = line.find("Z "); at != line.npos; at = line.find("Z ", at + 1)) {
    if (at + 1 < kTime.size()) continue;
    const size_t begin = at + 1 - kTime.size();
    const bool is_parted =
        begin > 0 && absl::ascii_isspace(static_cast<unsigned char>(line[begin - 1]));
    if (!is_parted && IsTime(line.substr(begin, kTime.size()))) return line.substr(begin);
  }
  return line;
}

// TIME ROLE [RANK] [warning:] TEXT
LogLine ParseText(absl::string_view line) {
  line = FromTime(line);
  LogLine parsed;
  std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 4));
  const bool has_text = words.size() >= 3;
  words.resize(5);
  if (!IsTime(words[0]) || !IsRole(words[1])) return parsed;
  int rank;
  const bool has_rank = absl::SimpleAtoi(words[2], &rank);
  parsed.name = has_rank ? absl::StrCat(words[1], " ", rank) : std::string(words[1]);
  constexpr absl::string_view kMark = " warning: ";
  if (words[has_rank ? 3 : 2] == "warning:") {
    parsed.warning = std::string(line.substr(line.find(kMark) + kMark.size()));
  }
  const auto is_worse = [](absl::string_view word) {
    return word == "warning:" || word == "error:";
  };
  parsed.is_event = has_text;
  parsed.is_info = parsed.is_event && std::none_of(words.begin() + 2, words.end(), is_worse);
  return parsed;
}

}  // namespace

LogLine ParseLogLine(absl::string_view line) {
  if (!absl::StartsWith(line, "{")) return ParseText(line);
  LogLine parsed;
  const nlohmann::json json = ParseJson(line);
  if (!json.is_object()) return parsed;
  parsed.name = TextAt(json, "role");
  const std::string level = TextAt(json, "level");
  if (!IsTime(TextAt(json, "time")) || !IsRole(parsed.name) || level.empty()) return {};
  if (json.contains("rank") && json["rank"].is_number_integer()) {
    absl::StrAppend(&parsed.name, " ", json["rank"].get<int>());
  }
  parsed.is_event = true;
  parsed.is_info = level == "info";
  if (level == "warning") {
    const nlohmann::json fields = json.value("fields", nlohmann::json::object());
    parsed.warning = TextAt(json, "message");
    if (!fields.empty()) absl::StrAppend(&*parsed.warning, " ", JsonText(fields));
  }
  return parsed;
}

}  // namespace rubato
