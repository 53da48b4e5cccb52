#include "server/run/run_state.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/files/atomic_file.h"

namespace rubato {

namespace {

// None if it is damaged.
std::optional<proto::RunState> Parse(const std::string& text) {
  proto::RunState state;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a later version
  const bool is_whole =
      google::protobuf::util::JsonStringToMessage(text, &state, options).ok() && state.term() > 0;
  return is_whole ? std::make_optional(std::move(state)) : std::nullopt;
}

absl::Status Write(const std::string& path, const proto::RunState& state, Flush flush) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(state, &text, options).ok()) {
    return absl::InternalError("the run's state is no JSON");
  }
  return ReplaceFile(path, text, flush);  // on a full disk too
}

// What is of the later term is younger, and within a term what knows that it has begun.
std::pair<uint32_t, uint32_t> Age(const proto::RunState& state) {
  return {state.term(), state.lasting().begun_term()};
}

}  // namespace

absl::StatusOr<std::optional<proto::RunState>> ReadRunState(const RunFolder& folder) {
  const absl::StatusOr<std::string> text = ReadSmallFile(folder.StateFile());
  const bool is_missing = absl::IsNotFound(text.status());
  if (!is_missing && !text.ok()) return text.status();
  const std::optional<proto::RunState> last = is_missing ? std::nullopt : Parse(*text);
  const absl::StatusOr<std::string> first = ReadSmallFile(folder.TermFile());
  if (is_missing && absl::IsNotFound(first.status())) return std::nullopt;
  std::optional<proto::RunState> state = first.ok() ? Parse(*first) : std::nullopt;
  if (last.has_value() && (!state.has_value() || Age(*state) <= Age(*last))) return last;
  if (!state.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.StateFile(), " and ", folder.TermFile(),
                     " are damaged; remove both to begin the run anew, or go on "
                     "in another folder with --resume ",
                     folder.path()));
  }
  state->clear_samples();  // what the term has trained is told by metrics.jsonl
  state->clear_seconds();
  return state;
}

absl::Status WriteRunState(const RunFolder& folder, const proto::RunState& state) {
  // Others wait for it, and a server that waits for its disk looks as if it stood still.
  return Write(folder.StateFile(), state, Flush::kNothing);
}

absl::Status WriteFirstRunState(const RunFolder& folder, const proto::RunState& state) {
  absl::Status status = WriteTermState(folder, state);
  status.Update(WriteRunState(folder, state));
  return status;
}

absl::Status WriteTermState(const RunFolder& folder, const proto::RunState& state) {
  return Write(folder.TermFile(), state, Flush::kName);
}

LastMetrics ReadLastMetrics(const RunFolder& folder) {
  constexpr std::streamoff kTail = 1 << 14;  // some 50 lines
  std::ifstream file(folder.MetricsFile(), std::ios::binary | std::ios::ate);
  if (!file) return {};
  file.seekg(std::max<std::streamoff>(0, file.tellg() - kTail));
  LastMetrics last;
  for (std::string line; std::getline(file, line);) {
    const auto json = ParseJson(line);
    if (!json.is_object()) continue;
    const auto found = json.find("samples");
    if (found == json.end() || !found->is_number_integer()) continue;
    last.Add(TextAt(json, "kind") == "train", found->get<int64_t>(), NumberAt(json, "time"));
  }
  return last;
}

}  // namespace rubato
