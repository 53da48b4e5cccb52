#include "server/run/run_state.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"

namespace rubato {

absl::StatusOr<std::optional<proto::RunState>> ReadRunState(const RunFolder& folder) {
  const absl::StatusOr<std::string> text = ReadSmallFile(folder.StateFile());
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  proto::RunState state;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a later version
  if (!google::protobuf::util::JsonStringToMessage(*text, &state, options).ok() ||
      state.term() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.StateFile(),
                     " is damaged; remove it to begin the run anew, or go on "
                     "in another folder with --resume ",
                     folder.path()));
  }
  return std::make_optional(std::move(state));
}

absl::Status WriteRunState(const RunFolder& folder, const proto::RunState& state) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(state, &text, options).ok()) {
    return absl::InternalError("the run's state is no JSON");
  }
  // Others wait for it, and a server that waits for its disk looks as if it stood still.
  return WriteFileAtomically(folder.StateFile(), text, Flush::kNothing);
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
    last.samples = found->get<int64_t>();
    const auto time = json.find("time");
    if (time != json.end() && time->is_number()) last.seconds = time->get<double>();
  }
  return last;
}

}  // namespace rubato
