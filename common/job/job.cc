#include "common/job/job.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/job/completion.h"
#include "common/job/contradictions.h"
#include "common/job/is_script.h"
#include "common/job/report.h"
#include "common/job/yaml_reader.h"
#include "common/job/yaml_writer.h"
#include "proto/options.pb.h"

namespace rubato {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A file of more is not a job, and would only make a mistake slow.
constexpr size_t kMaxFileBytes = 1 << 20;
// Seconds. A script imports its libraries and loads its data before it registers: torch twice on
// two busy cores has taken more than a minute. `rubato train` sees at once that one has ended.
constexpr double kScriptStartTimeout = 600;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const auto error = [&](int code) {
    const std::string message = absl::StrCat(path, ": cannot read the job: ", std::strerror(code));
    if (code == ENOENT || code == ENOTDIR) return absl::NotFoundError(message);
    if (code == EISDIR) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found a folder, expected a job's YAML file"));
    }
    return absl::FailedPreconditionError(message);
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return error(errno);
  std::string text;
  char piece[4096];
  while (text.size() <= kMaxFileBytes) {
    errno = 0;
    const size_t length = std::fread(piece, 1, sizeof(piece), file.get());
    text.append(piece, length);
    if (std::ferror(file.get())) return error(errno);
    if (length < sizeof(piece)) break;
  }
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found more than 1 MiB, expected a job's YAML file"));
  }
  return text;
}

// What has a default that another key gives; proto/job.proto says so there.
void DeriveDefaults(proto::Job* job) {
  proto::Workers& workers = *job->mutable_cluster()->mutable_workers();
  if (!workers.has_max()) workers.set_max(workers.start());
  proto::Schedule& schedule = *job->mutable_optimizer()->mutable_schedule();
  if (schedule.name() == proto::Schedule::NAME_COSINE && !schedule.has_until() &&
      job->train().has_until()) {
    *schedule.mutable_until() = job->train().until();
  }
  if (IsScript(*job)) {
    job->clear_data();
    job->clear_loss();
    job->clear_optimizer();
  }
  // A schedule stands in place of the one mode.
  if (job->consistency().schedule_size() > 0) job->mutable_consistency()->clear_mode();
  proto::Evaluation& evaluation = *job->mutable_evaluation();
  if (!evaluation.has_split()) {
    evaluation.set_split(job->data().has_validation() ? proto::Evaluation::SPLIT_VALIDATION
                                                      : proto::Evaluation::SPLIT_TEST);
  }
}

// A script brings its model, and what belongs to that: the job has nothing of it.
void TakeScript(proto::Job* job, Report* report) {
  if (report->Given("script") && !report->Given("model")) {
    if (job->script().empty() && report->Sound("script")) {
      report->Add("script",
                  "found an empty list, expected the words of a command, such as [python3, "
                  "train.py]");
    }
    job->mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
  }
  if (!IsScript(*job)) {
    if (job->script_size() > 0 && report->Sound("model") && report->Sound("script")) {
      report->Add("script",
                  "found beside a model, expected one of the two: a script has its own model");
    }
    return;
  }
  if (!report->Given("cluster.start_timeout")) {
    job->mutable_cluster()->set_start_timeout(kScriptStartTimeout);
  }
  for (const char* section : {"data", "loss", "optimizer"}) {
    const std::string key = report->FirstGiven(section);
    if (key.empty() || !report->Sound(section)) continue;
    report->Add(key, "found beside a script, expected nothing: the script has its own");
  }
}

void ClearLocal(Message* message) {
  const Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    if (field->options().GetExtension(proto::local)) {
      reflection.ClearField(message, field);
    } else if (field->message_type() != nullptr && !field->is_repeated() &&
               reflection.HasField(*message, field)) {
      ClearLocal(reflection.MutableMessage(message, field));
    }
  }
}

// Notes that `key`, with all that is in it, comes from `source`.
void Take(const std::string& key, const std::string& source, Sources* sources) {
  for (auto it = sources->begin(); it != sources->end();) {
    it = absl::StartsWith(it->first + ".", key + ".") ? sources->erase(it) : std::next(it);
  }
  sources->emplace(key, source);
}

}  // namespace

absl::StatusOr<proto::Job> LoadJob(const std::string& path, absl::Span<const std::string> overrides,
                                   const Environment& environment, Sources* sources) {
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  proto::Job job;
  YamlReader reader(&job);
  RUBATO_RETURN_IF_ERROR(reader.ReadDocument(text, path));
  Sources taken;
  const bool has_script = job.script_size() > 0 || IsScript(job);
  for (const Assignment& assignment : JobAssignments(environment, job.cluster().address())) {
    // Where this machine has the data of other jobs is no mistake.
    if (has_script && (assignment.key == "data.path" || assignment.key == "data.test_path"))
      continue;
    reader.ReadVariable(assignment.source, assignment.key, assignment.value);
    Take(assignment.key, assignment.source, &taken);
  }
  for (const std::string& assignment : overrides) {
    reader.ReadOverride(assignment);
    Take(assignment.substr(0, assignment.find('=')), "--set", &taken);
  }
  Report& report = reader.report();
  // Of another version of the schema nothing else can be judged.
  RUBATO_RETURN_IF_ERROR(report.ToStatus("version"));
  TakeScript(&job, &report);
  Complete(&job, &report);
  DeriveDefaults(&job);
  CheckContradictions(job, &report);
  RUBATO_RETURN_IF_ERROR(report.ToStatus());
  if (sources != nullptr) *sources = std::move(taken);
  return job;
}

std::string ResolvedYaml(const proto::Job& job, const Sources& sources) {
  proto::Job resolved = job;
  Report ignored;
  Complete(&resolved, &ignored);
  DeriveDefaults(&resolved);
  return WriteYaml(resolved, sources);
}

proto::Job WithOptimizerOf(const proto::Layout& layout, const proto::Job& job) {
  proto::Job whole = job;
  if (layout.has_optimizer()) *whole.mutable_optimizer() = layout.optimizer();
  return whole;
}

std::string JobDigest(const proto::Job& job) {
  proto::Job shared = job;
  ClearLocal(&shared);
  return Sha256Hex(ResolvedYaml(shared));
}

}  // namespace rubato
