#include "worker/script/script_opening.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/job/completion.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/job/report.h"
#include "common/job/scalar_field.h"
#include "common/job/schema.h"
#include "common/job/yaml_reader.h"
#include "common/space/flat_space.h"
#include "common/space/modes.h"

namespace rubato {
namespace {

// What fits in a registration (kMaxRequestBytes).
constexpr size_t kMaxFactors = 1'000'000;

// "NAME_ADAM", as messages of Protocol Buffers have it in JSON, is "adam".
void ShortenName(nlohmann::json* message) {
  const auto name = message->find("name");
  if (name == message->end() || !name->is_string()) return;
  absl::string_view text = name->get_ref<const std::string&>();
  if (absl::ConsumePrefix(&text, "NAME_")) *name = absl::AsciiStrToLower(text);
}

// The factors of a table: a long list, which is not read as YAML.
void ReadFactors(const nlohmann::json& factors, const std::string& what, proto::Schedule* schedule,
                 Report* report) {
  const std::string key = "schedule.factors";
  report->Note(key, {what});
  if (!factors.is_array() || factors.size() > kMaxFactors) {
    report->Add(
        key, absl::StrCat("found ", factors.is_array() ? absl::StrCat(factors.size()) : "no list",
                          ", expected a list of at most ", kMaxFactors,
                          ": with steps_per_factor each holds for several steps"));
    return;
  }
  const google::protobuf::FieldDescriptor& field =
      *proto::Schedule::descriptor()->FindFieldByNumber(proto::Schedule::kFactorsFieldNumber);
  for (const nlohmann::json& factor : factors) {
    if (StoreNumber(factor.dump(), field, schedule)) continue;
    report->Add(key, absl::StrCat("found ", factor.dump(), ", expected ", Expectation(field)));
    return;
  }
}

// Reads `json` as the key `optimizer` of a job file.
absl::Status ReadOptimizer(nlohmann::json json, proto::Optimizer* optimizer) {
  const std::string what = "the script's optimizer";
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": found ", json.dump(), ", expected a map of keys, such as name: sgd"));
  }
  ShortenName(&json);
  nlohmann::json factors;
  if (const auto schedule = json.find("schedule");
      schedule != json.end() && schedule->is_object()) {
    ShortenName(&*schedule);
    if (const auto found = schedule->find("factors"); found != schedule->end()) {
      factors = std::move(*found);
      schedule->erase(found);
    }
  }
  YamlReader reader(optimizer);
  for (const auto& [key, value] : json.items()) {
    const bool is_word = value.is_string() &&
                         absl::c_all_of(value.get_ref<const std::string&>(), absl::ascii_isalpha);
    // Quotes are JSON's, and no mistake.
    reader.ReadKey(what, key, is_word ? value.get<std::string>() : value.dump());
  }
  if (!factors.is_null())
    ReadFactors(factors, what, optimizer->mutable_schedule(), &reader.report());
  Complete(optimizer, &reader.report());
  return reader.report().ToStatus();
}

absl::StatusOr<proto::Layout> LayoutOf(nlohmann::json frame) {
  proto::Layout layout;
  const auto found = frame.find("layout");
  if (found == frame.end() || !found->is_object()) {
    return absl::InvalidArgumentError("the script registers no layout");
  }
  nlohmann::json optimizer = nlohmann::json::object();
  if (const auto own = found->find("optimizer"); own != found->end()) {
    optimizer = std::move(*own);
    found->erase(own);
  }
  const auto parsed = google::protobuf::util::JsonStringToMessage(found->dump(), &layout);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the script's layout: ", std::string(parsed.message())));
  }
  RUBATO_RETURN_IF_ERROR(ReadOptimizer(std::move(optimizer), layout.mutable_optimizer()));
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
  const proto::Consistency& consistency = job.consistency();
  const proto::Mode& first =
      consistency.schedule_size() > 0 ? consistency.schedule(0).mode() : consistency.mode();
  channel->Write({{"kind", "job"}, {"job", ParseJson(text)}, {"leaves", LeavesOf(job, first)}});
  RUBATO_ASSIGN_OR_RETURN(nlohmann::json frame, channel->Read());
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
  opening.abilities.samples_once = FlagAt(frame, "samples_once");
  opening.abilities.adds = FlagAt(frame, "adds");
  const auto ahead = static_cast<int32_t>(NumberAt(frame, "ahead"));
  if (ahead > 0) opening.job.mutable_data()->set_prefetch(std::min(ahead, 1024));
  return opening;
}

void EndScript(const absl::Status& status, ScriptChannel* channel) {
  if (status.ok()) channel->Note(ScriptStage::kTraining);
  channel->Write(
      {{"kind", "end"}, {"code", ExitCode(status)}, {"reason", std::string(status.message())}});
  if (!status.ok()) return;
  channel->AwaitRead();
  channel->Note(ScriptStage::kKnowsEnd);
}

}  // namespace rubato
