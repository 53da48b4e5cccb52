#include "worker/script/script_opening.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/job/completion.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/job/report.h"
#include "common/space/flat_space.h"

namespace rubato {
namespace {

absl::StatusOr<proto::Layout> LayoutOf(const nlohmann::json& frame) {
  proto::Layout layout;
  const auto found = frame.find("layout");
  if (found == frame.end()) return absl::InvalidArgumentError("the script registers no layout");
  const auto parsed = google::protobuf::util::JsonStringToMessage(found->dump(), &layout);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the script's layout: ", std::string(parsed.message())));
  }
  Report report;
  Complete(layout.mutable_optimizer(), &report);
  RUBATO_RETURN_IF_ERROR(report.ToStatus());
  layout.set_gives_values(true);
  return layout;
}

}  // namespace

absl::StatusOr<ScriptOpening> OpenScript(const proto::Job& job, ScriptChannel* channel) {
  if (!IsScript(job)) {
    return absl::FailedPreconditionError(
        "a script takes part in a job that has a model of its own, expected `script` or `model: "
        "script` in the job");
  }
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(job, &text, options).ok()) {
    return absl::InternalError("the job cannot be told to the script");
  }
  channel->Write({{"kind", "job"}, {"job", ParseJson(text)}});
  RUBATO_ASSIGN_OR_RETURN(const nlohmann::json frame, channel->Read());
  if (TextAt(frame, "kind") != "register") {
    return absl::InvalidArgumentError(absl::StrCat("the script begins with a frame of kind \"",
                                                   TextAt(frame, "kind"),
                                                   "\", expected \"register\""));
  }
  ScriptOpening opening;
  proto::WorkerRegistration& registration = opening.registration;
  RUBATO_ASSIGN_OR_RETURN(*registration.mutable_layout(), LayoutOf(frame));
  registration.set_train_samples(static_cast<int64_t>(NumberAt(frame, "train_samples")));
  registration.set_data_digest(TextAt(frame, "data_digest"));
  registration.set_numerics(TextAt(frame, "numerics"));
  if (registration.train_samples() <= 0) {
    return absl::InvalidArgumentError("the script has no training samples");
  }
  RUBATO_RETURN_IF_ERROR(CheckLayout(registration.layout()));
  RUBATO_RETURN_IF_ERROR(channel->Map(ValueCount(registration.layout())));
  opening.job = WithOptimizerOf(registration.layout(), job);
  opening.samples_once = FlagAt(frame, "samples_once");
  const auto ahead = static_cast<int32_t>(NumberAt(frame, "ahead"));
  if (ahead > 0) opening.job.mutable_data()->set_prefetch(std::min(ahead, 1024));
  return opening;
}

void EndScript(const absl::Status& status, ScriptChannel* channel) {
  channel->Write(
      {{"kind", "end"}, {"code", ExitCode(status)}, {"reason", std::string(status.message())}});
}

}  // namespace rubato
