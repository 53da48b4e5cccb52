#include "tools/command/resume.h"

#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/max_count.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/checkpoint_reader.h"
#include "common/files/resume_point.h"
#include "common/files/run_folder.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/job/yaml_writer.h"
#include "common/space/modes.h"
#include "common/space/resumed_units.h"
#include "tools/command/say.h"

namespace rubato {

namespace fs = std::filesystem;

absl::Status CopyMetrics(const Resume& resume, const std::string& to) {
  if (resume.checkpoint.empty()) return absl::OkStatus();
  std::error_code error;
  const fs::path checkpoint = fs::weakly_canonical(resume.checkpoint, error);
  const std::string from = RunFolder(checkpoint.parent_path().parent_path()).MetricsFile();
  if (!fs::exists(from, error)) return absl::OkStatus();
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(from));
  // Those that the metrics go on from: what is computed again is counted again.
  const proto::Manifest& manifest = resume.manifest;
  const int64_t samples =
      manifest.mode() == proto::Manifest::MODE_SYNC
          ? PositionOf(manifest)
          : manifest.samples() -
                static_cast<int64_t>(UnitsNotWhole(manifest).size()) * manifest.unit_samples();
  std::string kept;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const auto json = ParseJson(line);
    // On arrival a line counts steps, the manifest contributions; both count samples. The test of
    // the end was not the end's.
    if (json.is_object() && ClampedCount(NumberAt(json, "samples")) <= samples &&
        TextAt(json, "kind") != "test") {
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
  RUBATO_ASSIGN_OR_RETURN(found.checkpoint, ResumePoint(job, resume, kRuns, &warnings));
  for (const std::string& warning : warnings) Say(log, absl::StrCat("warning: ", warning));
  if (found.checkpoint.empty()) {
    if (AsksForNewest(job, resume)) {
      Say(log, absl::StrCat(NoneFound(job, kRuns), ": from the beginning"));
    }
    return found;
  }
  RUBATO_ASSIGN_OR_RETURN(found.manifest, ReadManifest(found.checkpoint));
  if (config->empty()) *config = found.checkpoint + "/job.yaml";
  return found;
}

absl::Status CheckResume(const Plan& plan, const Resume& resume, const Log& log) {
  RUBATO_RETURN_IF_ERROR(CheckResumedUnits(plan.job, resume.manifest));
  if (!IsScript(plan.job)) {  // whose layout the servers will see
    RUBATO_RETURN_IF_ERROR(
        CheckpointReader::Open(resume.checkpoint, resume.manifest, plan.layout).status());
  }
  Say(log, absl::StrFormat("goes on from %s: %s, epoch %.2f", resume.checkpoint,
                           UnitText(FromManifest(resume.manifest.mode()), resume.manifest.step()),
                           resume.manifest.epoch()));
  const int64_t total = TotalSamples(plan);
  if (total > 0 && resume.manifest.samples() >= total) {
    Say(log, absl::StrFormat("nothing is left to train: train.until comes to %d samples, of which "
                             "the checkpoint has %d; to go on, --set train.until=... further away",
                             total, resume.manifest.samples()));
  }
  RUBATO_ASSIGN_OR_RETURN(const proto::Job before,
                          LoadJob(resume.checkpoint + "/job.yaml", {}, /*environment=*/{}));
  const std::map<std::string, std::string> old = YamlValues(before), now = YamlValues(plan.job);
  std::set<std::string> keys;
  for (const auto* values : {&old, &now}) {
    for (const auto& [key, value] : *values) keys.insert(key);
  }
  const auto value_of = [](const std::map<std::string, std::string>& values,
                           const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? "none" : found->second;
  };
  for (const std::string& key : keys) {
    const std::string from = value_of(old, key), to = value_of(now, key);
    if (from != to) Say(log, absl::StrCat("changed: ", key, ": ", from, " -> ", to));
  }
  return absl::OkStatus();
}

}  // namespace rubato
