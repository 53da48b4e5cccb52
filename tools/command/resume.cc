#include "tools/command/resume.h"

#include <google/protobuf/util/message_differencer.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/resume_point.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "tools/command/say.h"

namespace rubato {

namespace fs = std::filesystem;

absl::Status CopyMetrics(const Resume& resume, const std::string& to) {
  if (resume.checkpoint.empty()) return absl::OkStatus();
  const std::string run = fs::path(resume.checkpoint).parent_path().parent_path().string();
  const std::string from = RunFolder(run).MetricsFile();
  std::error_code error;
  if (!fs::exists(from, error)) return absl::OkStatus();
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(from));
  std::string kept;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.value("step", int64_t{0}) <= resume.manifest.step()) {
      absl::StrAppend(&kept, line, "\n");
    }
  }
  return WriteFileAtomically(to, kept);
}

absl::StatusOr<Resume> FindResume(const std::string& resume, const std::vector<std::string>& set,
                                  std::string* config, const Log& log) {
  proto::Job job;
  if (resume.empty() || IsResumeMode(resume)) {
    RUBATO_ASSIGN_OR_RETURN(job, LoadJob(*config, set));
  }
  Resume found;
  std::vector<std::string> warnings;
  RUBATO_ASSIGN_OR_RETURN(found.checkpoint, ResumePoint(job, resume, "runs", &warnings));
  for (const std::string& warning : warnings) Say(log, absl::StrCat("warning: ", warning));
  if (found.checkpoint.empty()) {
    if (resume == "auto" ||
        (resume.empty() && job.checkpoint().resume() == proto::Checkpoint::RESUME_AUTO)) {
      Say(log, "no run to go on with: from the beginning");
    }
    return found;
  }
  RUBATO_ASSIGN_OR_RETURN(found.manifest, CheckCheckpoint(found.checkpoint));
  if (config->empty()) *config = found.checkpoint + "/job.yaml";
  return found;
}

absl::Status CheckResume(const Plan& plan, const Resume& resume, const Log& log) {
  RUBATO_RETURN_IF_ERROR(
      ReadTrainingState(resume.checkpoint, resume.manifest, plan.layout).status());
  Say(log, absl::StrFormat("goes on from %s: step %d, epoch %.2f", resume.checkpoint,
                           resume.manifest.step(), resume.manifest.epoch()));
  RUBATO_ASSIGN_OR_RETURN(const proto::Job before, LoadJob(resume.checkpoint + "/job.yaml"));
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  if (!differencer.Compare(before, plan.job)) {
    for (const absl::string_view line : absl::StrSplit(differences, '\n', absl::SkipEmpty())) {
      Say(log, absl::StrCat("changed: ", line));
    }
  }
  return absl::OkStatus();
}

}  // namespace rubato
