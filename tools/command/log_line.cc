#include "tools/command/log_line.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"

namespace rubato {
namespace {

// TIME ROLE [RANK] [warning:] TEXT
LogLine ParseText(absl::string_view line) {
  LogLine parsed;
  std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 4));
  const bool has_text = words.size() >= 3;
  words.resize(5);
  if (words[1] != "coordinator" && words[1] != "server" && words[1] != "worker") return parsed;
  int rank;
  const bool has_rank = absl::SimpleAtoi(words[2], &rank);
  parsed.name = has_rank ? absl::StrCat(words[1], " ", rank) : std::string(words[1]);
  constexpr absl::string_view kMark = " warning: ";
  if (words[has_rank ? 3 : 2] == "warning:") {
    parsed.warning = std::string(line.substr(line.find(kMark) + kMark.size()));
  }
  constexpr absl::string_view kTime = "2026-11-21T07:59:01.123Z";
  const auto is_worse = [](absl::string_view word) {
    return word == "warning:" || word == "error:";
  };
  parsed.is_event = has_text && words[0].size() == kTime.size() && words[0].back() == 'Z';
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
  if (!parsed.name.empty() && json.contains("rank") && json["rank"].is_number_integer()) {
    absl::StrAppend(&parsed.name, " ", json["rank"].get<int>());
  }
  const std::string level = TextAt(json, "level");
  parsed.is_event = !parsed.name.empty() && !level.empty();
  parsed.is_info = level == "info";
  if (level == "warning") {
    const nlohmann::json fields = json.value("fields", nlohmann::json::object());
    parsed.warning = TextAt(json, "message");
    if (!fields.empty()) absl::StrAppend(&*parsed.warning, " ", JsonText(fields));
  }
  return parsed;
}

}  // namespace rubato
