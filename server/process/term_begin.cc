#include "server/process/term_begin.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/entropy.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/resume_point.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/job/mixed_order.h"
#include "common/job/mixed_splits.h"
#include "server/optimizers/resumed_slots.h"
#include "server/run/run_state.h"

namespace rubato {
namespace {

absl::Status HoldsRun(const std::string& run_dir, const std::string& file) {
  return absl::AlreadyExistsError(
      absl::StrCat("--run-dir ", run_dir, " holds a run already: ", file, " exists"));
}

// Whether the term whose samples it tells came further than it began: metrics.jsonl has taken no
// line of it.
bool HasTrained(const proto::RunState& state) {
  const proto::Lasting& lasting = state.lasting();
  return lasting.begun_term() + 1 == state.term() && state.samples() > lasting.begun_samples();
}

// What the run's folder knows, for the next term; none if the run begins. `in_order`: whether
// somebody was there to write how the last term ended.
absl::StatusOr<std::optional<proto::RunState>> NextState(const std::string& run_dir,
                                                         const std::string& job_digest,
                                                         bool is_dedicated, bool* in_order) {
  const std::string who = is_dedicated ? "the coordinator" : "shard 0, which coordinates the job,";
  if (run_dir.empty()) return std::nullopt;
  const RunFolder folder(run_dir);
  RUBATO_ASSIGN_OR_RETURN(std::optional<proto::RunState> state, ReadRunState(folder));
  if (!state.has_value()) return std::nullopt;
  if (access(folder.SummaryFile().c_str(), F_OK) == 0) {
    return HoldsRun(run_dir, folder.SummaryFile());
  }
  if (state->job_digest() != job_digest) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "--run-dir %s holds a run of another job: digests %s and %s; to go on from it with other "
        "settings, give --resume %s and another folder",
        run_dir, state->job_digest().substr(0, 12), job_digest.substr(0, 12), run_dir));
  }
  if (state->has_ended()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the run in %s has ended: %s; go on from it in another folder: --resume %s",
                        run_dir, state->ended(), run_dir));
  }
  state->set_term(state->term() + 1);
  *in_order = state->has_reason();
  if (state->interrupted()) {
    state->set_reason(absl::StrCat(who, " was ended by a signal"));
    state->clear_samples();
    return state;
  }
  state->set_servers_lost(state->servers_lost() + 1);
  if (!state->has_reason()) {
    state->set_reason(absl::StrCat(who, " was lost"));
    if (state->has_samples() && !HasTrained(*state)) {
      state->set_terms_in_vain(state->terms_in_vain() + 1);
    }
    if (!state->has_samples()) {
      const LastMetrics last = ReadLastMetrics(folder);
      state->set_samples(last.samples);
      state->set_seconds(last.seconds);
    }
  }
  return state;
}

absl::Time ChangedAt(const std::string& file) {
  struct stat status;
  if (stat(file.c_str(), &status) != 0) return absl::InfinitePast();
  return absl::TimeFromTimespec(status.st_mtim);
}

// For how long nothing has been trained: since the state tells why the last term ended, if it was
// ended in order, else since the last line of metrics.
absl::Duration StoodStill(const RunFolder& folder, bool in_order) {
  const absl::Time since = ChangedAt(in_order ? folder.StateFile() : folder.MetricsFile());
  if (since == absl::InfinitePast()) return absl::ZeroDuration();
  return std::max(absl::Now() - since, absl::ZeroDuration());
}

// Begins with the run's newest whole checkpoint, if it has one. Damaged ones are set aside.
absl::Status BeginFromOwn(const RunFolder& folder, const Log& log, Coordinator::Begin* begin) {
  std::vector<std::string> paths = ListCheckpoints(folder.CheckpointFolder());
  for (; !paths.empty(); paths.pop_back()) {
    absl::StatusOr<proto::Manifest> whole = CheckCheckpoint(paths.back());
    if (whole.ok()) {
      begin->path = paths.back();
      begin->resume = *std::move(whole);
      return absl::OkStatus();
    }
    const bool is_damaged =
        absl::IsInvalidArgument(whole.status()) || absl::IsNotFound(whole.status());
    if (!is_damaged) return whole.status();  // perhaps another time
    const size_t name = paths.back().rfind('/') + 1;
    const std::string aside =
        absl::StrCat(paths.back().substr(0, name), "damaged-", paths.back().substr(name));
    const bool moved = rename(paths.back().c_str(), aside.c_str()) == 0;
    log.Warning(whole.status().message(), {{"set_aside", moved ? aside : "no"}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> HasEndedWell(const std::string& run_dir, const std::string& job_digest) {
  const RunFolder folder(run_dir);
  if (run_dir.empty() || access(folder.SummaryFile().c_str(), F_OK) != 0) return false;
  RUBATO_ASSIGN_OR_RETURN(const std::optional<proto::RunState> state, ReadRunState(folder));
  return state.has_value() && state->job_digest() == job_digest && !state->has_ended();
}

absl::StatusOr<RunFolder> OpenRunFolder(const proto::Job& job, const ServerOptions& options,
                                        RunFolder there) {
  const std::string& run_dir = options.run_dir;
  if (run_dir.empty() || access(run_dir.c_str(), F_OK) != 0) {
    RUBATO_ASSIGN_OR_RETURN(RunFolder folder,
                            RunFolder::Create(job.name(), run_dir, absl::Now(),
                                              static_cast<Readers>(job.security().readers())));
    RUBATO_RETURN_IF_ERROR(
        WriteFileAtomically(folder.JobFile(), ResolvedYaml(job, options.sources)));
    return folder;
  }
  for (const std::string& file :
       {there.AddressFile(), there.SummaryFile(), there.ParametersFile()}) {
    if (access(file.c_str(), F_OK) == 0) return HoldsRun(run_dir, file);
  }
  if (options.connection.credentials.KeyOf(Role::kOperator).has_value()) {
    for (const std::string& file : {there.TokenFile(), there.WorkerKeyFile()}) {
      if (access(file.c_str(), F_OK) != 0) continue;
      return absl::AlreadyExistsError(absl::StrCat("--run-dir ", run_dir, ": the run would write ",
                                                   file, ", which exists; expected a new folder"));
    }
  }
  if (access(there.JobFile().c_str(), F_OK) != 0) {
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(there.JobFile(), ResolvedYaml(job)));
    return there;
  }
  RUBATO_ASSIGN_OR_RETURN(const proto::Job of_folder,
                          LoadJob(there.JobFile(), {}, /*environment=*/{}));
  if (JobDigest(of_folder) != JobDigest(job)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "--run-dir ", run_dir, ": ", there.JobFile(),
        " is another job than this one with its --set and environment; expected a new folder"));
  }
  return there;
}

absl::StatusOr<TermBegin> FindTermBegin(const proto::Job& job, const ServerOptions& options,
                                        const std::string& job_digest, const Log& log) {
  TermBegin term;
  Coordinator::Begin& begin = term.begin;
  term.folder = RunFolder(options.run_dir);
  if (!options.run_dir.empty()) term.folder.KeepWhatIsThere();
  const RunFolder& folder = term.folder;
  const bool goes_on = !options.run_dir.empty() && (access(folder.StateFile().c_str(), F_OK) == 0 ||
                                                    access(folder.TermFile().c_str(), F_OK) == 0);
  if (goes_on) {
    RUBATO_ASSIGN_OR_RETURN(term.lock, FolderLock::Take(options.run_dir));
  }
  bool ended_in_order = false;
  RUBATO_ASSIGN_OR_RETURN(const std::optional<proto::RunState> before,
                          NextState(options.run_dir, job_digest,
                                    job.cluster().dedicated_coordinator(), &ended_in_order));
  if (before.has_value()) {
    begin.state = *before;
    begin.stood_still = StoodStill(folder, ended_in_order);
    RUBATO_RETURN_IF_ERROR(BeginFromOwn(folder, log, &begin));
  } else {
    begin.state.set_job_digest(job_digest);
    begin.state.set_term(1);
    begin.state.set_name(job.name());
    begin.state.set_begun(RunTime(absl::Now()));
  }
  if (begin.path.empty() && before.has_value()) {
    begin.path = before->begun_from();
  } else if (begin.path.empty()) {
    std::vector<std::string> warnings;
    RUBATO_ASSIGN_OR_RETURN(begin.path, ResumePoint(job, options.resume, kRuns, &warnings));
    for (const std::string& warning : warnings) log.Warning(warning);
    if (begin.path.empty() && AsksForNewest(job, options.resume)) {
      log.Info(absl::StrCat(NoneFound(job, kRuns), ": from the beginning"));
    }
    if (!begin.path.empty()) {
      RUBATO_ASSIGN_OR_RETURN(begin.resume, ReadManifest(begin.path));
      std::error_code error;  // whoever goes on may be in another folder
      begin.state.set_begun_from(std::filesystem::absolute(begin.path, error).string());
    }
  }
  if (!begin.path.empty()) {
    if (!begin.resume.has_value()) {
      RUBATO_ASSIGN_OR_RETURN(begin.resume, CheckCheckpoint(begin.path));
    }
    if (begin.resume->format() > 1) {  // else only the whole files have digests
      std::error_code error;
      begin.shared_path = std::filesystem::absolute(begin.path, error).string();
    }
    const bool is_other = begin.resume->job_digest() != job_digest;
    log.Info(absl::StrCat("goes on from ", begin.path,
                          is_other ? ", whose job has other settings than this" : ""),
             {{"job_digest", begin.resume->job_digest()}});
    if (const std::string mixed = MixedOrder(*begin.resume, job); !mixed.empty())
      log.Warning(mixed);
    // Of a script's optimizer nothing is known yet (Starting::MatchOptimizer).
    if (!IsScript(job)) {
      RUBATO_ASSIGN_OR_RETURN(const std::string note, MatchSlots(job, &*begin.resume));
      if (!note.empty()) log.Warning(note);
      if (is_other) {
        for (const std::string& sentence : MixedSplits(begin.path + "/job.yaml", job)) {
          log.Warning(sentence);
        }
      }
    }
  }
  begin.restore_key = DrawEntropy() | 1;
  if (!begin.resume.has_value()) {
    term.initial_file = job.model().init_from();
    if (before.has_value() && access(folder.InitialFile().c_str(), F_OK) == 0) {
      term.initial_file = folder.InitialFile();
    }
  }
  begin.initial = !term.initial_file.empty();
  return term;
}

}  // namespace rubato
