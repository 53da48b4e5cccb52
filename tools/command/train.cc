#include "tools/command/train.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/flags.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/resume_point.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "common/pace/delays.h"
#include "common/space/modes.h"
#include "common/wire/channel.h"
#include "tools/command/binaries.h"
#include "tools/command/capacity.h"
#include "tools/command/launcher.h"
#include "tools/command/local_run.h"
#include "tools/command/plan.h"
#include "tools/command/processor_shares.h"
#include "tools/command/resume.h"
#include "tools/command/say.h"
#include "tools/command/summary.h"

namespace rubato {
namespace {

using Event = Launcher::Event;

// What was typed.
struct Options {
  std::string program;
  std::string config;
  bool names_config = false;  // else it is the checkpoint's
  std::vector<std::string> set;
  std::string run_dir;
  std::string resume;
  bool record = false;
  bool dry_run = false;
  DelayFlags delays;
};

// The command that goes on from the run's last checkpoint, or from the one that it would have begun
// from; empty if it has none.
std::string GoOn(const Options& options, const Resume& resume, const RunFolder& folder) {
  std::vector<std::string> warnings;
  const bool has_own = ResumePoint(proto::Job(), folder.path(), kRuns, &warnings).ok();
  if (!has_own && resume.checkpoint.empty()) return "";
  return ShellLine(
      {options.program, "train", "--resume", has_own ? folder.path() : resume.checkpoint});
}

// The same job again with `key` (or keys that begin with it) set to `value`.
std::string Again(const Options& options, const RunFolder& folder, absl::string_view key,
                  absl::string_view value) {
  std::vector<std::string> again = {options.program, "train"};
  if (options.names_config) {
    again.push_back(options.config);
    for (const std::string& override : options.set) {
      if (absl::StartsWith(override, key)) continue;
      again.insert(again.end(), {"--set", override});
    }
  } else {
    again.push_back(folder.JobFile());  // the checkpoint's, with what was set; that one may expire
  }
  again.insert(again.end(), {"--set", absl::StrCat(key, "=", value)});
  return ShellLine(again);
}

// Nothing unless workers have waited for their servers, and this host has processors for more.
std::optional<std::string> WithMoreServers(const Options& options, const Plan& plan,
                                           const RunFolder& folder, const nlohmann::json& summary) {
  const proto::Job& job = plan.job;
  const int64_t servers = job.cluster().servers();
  const int64_t busy = servers * job.cluster().server_threads() +
                       job.cluster().workers().start() * job.device().threads();
  const auto more =
      SuggestServers(summary, servers, static_cast<int64_t>(AllowedProcessors().size()) - busy,
                     job.wire().chunk());
  if (!more.has_value()) return std::nullopt;
  return absl::StrFormat("%s   # workers waited for the servers %.0f %% of the time",
                         Again(options, folder, "cluster.servers", absl::StrCat(more->servers)),
                         100 * more->waited);
}

// The same job again with one thing changed, and a look at this one's result; first the rest of
// one that was stopped.
std::vector<std::string> Suggestions(const Options& options, const Plan& plan,
                                     const RunFolder& folder, const nlohmann::json& summary,
                                     const std::string& go_on) {
  const bool sync =
      plan.job.consistency().schedule_size() == 0 && !OnArrival(plan.job.consistency().mode());
  std::vector<std::string> lines;
  if (!go_on.empty()) lines.push_back(go_on);
  lines.push_back(ShellLine({options.program, "inspect", folder.path()}));
  if (auto more = WithMoreServers(options, plan, folder, summary); more.has_value()) {
    lines.push_back(*std::move(more));
  }
  lines.push_back(Again(options, folder, "consistency", sync ? "async" : "sync"));
  absl::string_view clone = options.config;
  if (absl::ConsumeSuffix(&clone, "configs/quickstart.yaml")) {
    // A package has no documentation.
    const std::string tutorial = absl::StrCat(clone, "docs/tutorial.md");
    if (access(tutorial.c_str(), F_OK) == 0) {
      lines.push_back(absl::StrCat(tutorial, ": your own data and model, in 20 minutes"));
    }
  }
  return lines;
}

void PrintFailure(const Log& log, const LocalRun& run, const Failure& failure) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(failure.reason, '\n')) {
    absl::StrAppend(&text, run.NameOf(failure), ": ", line, "\n");
  }
  log.Fatal(absl::UnknownError(text));
  if (access(failure.log_path.c_str(), F_OK) == 0) {
    Say(log, absl::StrCat("log: ", failure.log_path));
  }
}

// The same in words, after `before`.
std::string HowToGoOn(const Options& options, const Resume& resume, const RunFolder& folder,
                      absl::string_view before) {
  const std::string go_on = GoOn(options, resume, folder);
  return go_on.empty() ? "" : absl::StrCat(before, "go on with: ", go_on);
}

// The exit code. `head` is the process that coordinates.
absl::StatusOr<int> PrintSummary(const Options& options, const Plan& plan, const Resume& resume,
                                 const RunFolder& folder, const std::string& head) {
  const absl::StatusOr<std::string> json = ReadSmallFile(folder.SummaryFile());
  if (!json.ok()) {
    return absl::InternalError(
        absl::StrCat(head, " has ended without a summary: ", json.status().message()));
  }
  const nlohmann::json summary = ParseJson(*json);
  const std::string stopped = TextAt(summary, "stopped");
  const bool is_stopped = !stopped.empty() && !absl::StartsWith(stopped, "the target is met");
  const std::string go_on = is_stopped ? GoOn(options, resume, folder) : "";
  std::optional<TrainedBefore> before;
  if (!resume.checkpoint.empty()) {
    before = {resume.manifest.samples(), resume.manifest.seconds()};
  }
  RUBATO_ASSIGN_OR_RETURN(const std::string text,
                          SummaryText(summary, folder.path(),
                                      Suggestions(options, plan, folder, summary, go_on), before));
  return PrintResult(text);
}

// Refuses a disk that has no room for what comes at the end, when it would be too late.
absl::Status CheckRoom(const Plan& plan, const RunFolder& folder) {
  constexpr int64_t kTexts = 1 << 20;  // job, metrics and logs of a short run
  const std::optional<int64_t> free = FreeBytes(folder.path());
  const int64_t wanted = plan.result_bytes + kTexts;
  if (!free.has_value() || *free >= wanted) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: found %.1f MB free on its disk, expected at least %.1f MB: the final parameters, a "
      "checkpoint with the optimizer's state, metrics and logs (--run-dir DIR takes another place)",
      folder.path(), *free * 1e-6, wanted * 1e-6));
}

// The exit code of a run that has not failed to start.
absl::StatusOr<int> Launch(const Options& options, const Plan& plan, const Resume& resume,
                           SignalWatcher& signals) {
  Programs programs;
  RUBATO_ASSIGN_OR_RETURN(programs.server, FindBinary("rubato-server"));
  RUBATO_ASSIGN_OR_RETURN(programs.worker, FindBinary("rubato-worker"));
  RUBATO_ASSIGN_OR_RETURN(const RunFolder folder,
                          RunFolder::Create(plan.job.name(), options.run_dir, absl::Now(),
                                            static_cast<Readers>(plan.job.security().readers())));
  const Log log = LauncherLog(plan.job);
  if (const absl::Status room = CheckRoom(plan, folder); !room.ok()) {
    folder.Abandon();
    return room;
  }
  Say(log, absl::StrCat("run: ", folder.path()));
  for (const std::string& note : plan.notes) {
    Say(log, absl::StartsWith(note, "warning: ") ? note : absl::StrCat("data: ", note));
  }
  // The children's job is resolved: what this environment says must not apply to it again, over the
  // flags. Nothing else runs yet that could read the environment.
  RemoveJobVariables();
  SilenceGrpc();

  Launcher launcher;
  signals.OnSignal([&launcher](int number) { launcher.Interrupt(number); });
  const auto stop_listening = absl::MakeCleanup([&signals] { signals.OnSignal(nullptr); });

  LocalRun run(plan, resume, options.record, programs, options.delays.Variables(), folder,
               launcher);
  const absl::StatusOr<Event> event = run.Train();
  if (event.ok() && *event == Event::kFailure) PrintFailure(log, run, run.failure());
  if (event.ok() && *event == Event::kInterrupt) {
    Say(log, absl::StrCat("interrupted: ending all processes",
                          run.HasResult() ? "; the job is done" : ""));
    // Shard 0 ends the others, and has its last checkpoint to flush. Workers alone would take it
    // for leave to go.
    if (launcher.SinceOthersEnded() == absl::ZeroDuration()) run.StopInOrder();
  }
  launcher.Stop();
  run.ReadRest();
  const bool ended_well = event.ok() && *event == Event::kAllEnded;
  if (!run.has_begun() && !ended_well) folder.Abandon();
  if (!event.ok()) {
    return absl::Status(
        event.status().code(),
        absl::StrCat(event.status().message(), HowToGoOn(options, resume, folder, "; ")));
  }
  switch (*event) {
    case Event::kFailure:
      if (run.failure().exit_code != kExitUsage) {
        if (const std::string how = HowToGoOn(options, resume, folder, ""); !how.empty())
          Say(log, how);
      }
      return run.failure().exit_code;
    case Event::kInterrupt:
      // It may have come while the processes ended.
      if (run.HasResult()) {
        RUBATO_RETURN_IF_ERROR(
            PrintSummary(options, plan, resume, folder, run.head_name()).status());
        return ExitCode(InterruptedBy(launcher.interrupted_by()));
      }
      if (access(folder.path().c_str(), F_OK) == 0) {
        Say(log, absl::StrCat("files: ", folder.path()));
      }
      if (const std::string how = HowToGoOn(options, resume, folder, ""); !how.empty())
        Say(log, how);
      return ExitCode(InterruptedBy(launcher.interrupted_by()));
    default:
      RUBATO_ASSIGN_OR_RETURN(const int code,
                              PrintSummary(options, plan, resume, folder, run.head_name()));
      if (const std::optional<Failure> late = run.LateFailure(); late.has_value()) {
        PrintFailure(log, run, *late);
        return late->exit_code;
      }
      for (const Failure& failure : run.LateFailures()) {
        if (failure.role != "worker" || failure.killed) continue;
        Say(log, absl::StrCat("warning: ", run.NameOf(failure),
                              " ended as the job did: ", failure.reason));
      }
      return code;
  }
}

// `log` is set once the job says how.
absl::StatusOr<int> Train(Options options, SignalWatcher& signals, std::optional<Log>* log) {
  if (options.config.empty() && (options.resume.empty() || IsResumeMode(options.resume))) {
    return absl::InvalidArgumentError("missing argument CONFIG.yaml (see rubato train --help)");
  }
  options.names_config = !options.config.empty();
  RUBATO_ASSIGN_OR_RETURN(const Resume resume, FindResume(options.resume, options.set,
                                                          &options.config, Log("launcher", 0)));
  Sources sources;
  RUBATO_ASSIGN_OR_RETURN(proto::Job job,
                          LoadJob(options.config, options.set, ProcessEnvironment(), &sources));
  log->emplace(LauncherLog(job));
  RUBATO_RETURN_IF_ERROR(Delays::Of(options.delays, job).status());
  RUBATO_ASSIGN_OR_RETURN(Plan plan, MakePlan(std::move(job)));
  plan.sources = std::move(sources);
  if (std::string ignored = IgnoredPrecision(plan.job); !ignored.empty()) {
    plan.notes.push_back(absl::StrCat("warning: ", ignored));
  }
  const absl::Status fits = CheckCapacity(CapacityOfThisHost(), plan);
  if (options.dry_run) {
    // The job may be meant for other machines.
    if (!fits.ok()) plan.notes.push_back(absl::StrCat("warning: ", fits.message()));
    if (!resume.checkpoint.empty()) RUBATO_RETURN_IF_ERROR(CheckResume(plan, resume, **log));
    return PrintResult(DryRunText(plan));
  }
  RUBATO_RETURN_IF_ERROR(fits);
  if (!resume.checkpoint.empty()) RUBATO_RETURN_IF_ERROR(CheckResume(plan, resume, **log));
  return Launch(options, plan, resume, signals);
}

}  // namespace

int TrainMain(const std::string& program, const std::vector<std::string>& arguments,
              SignalWatcher& signals) {
  Options options;
  options.program = program;
  Flags flags(
      "rubato train",
      "Trains the job in CONFIG.yaml: starts its servers and workers as processes on this machine, "
      "shows\n"
      "progress, and leaves parameters, metrics and logs in a new run folder. Ctrl-C ends all of "
      "it.",
      {"rubato train configs/quickstart.yaml",
       "rubato train configs/quickstart.yaml --set consistency.mode=async --set cluster.workers=4",
       "rubato train configs/quickstart.yaml --run-dir runs/first",
       "rubato train configs/quickstart.yaml --dry-run"});
  flags.AddPositional(&options.config, "CONFIG.yaml",
                      "the job; with --resume, that of the checkpoint by default",
                      Flags::kOptional);
  flags.Add("set", &options.set, "KEY=VALUE",
            "override a key of the job, as optimizer.learning_rate=0.1; may be repeated; takes "
            "precedence over RUBATO__OPTIMIZER__LEARNING_RATE=0.1 in the environment");
  flags.Add("run-dir", &options.run_dir, "DIR",
            "new or empty folder for the run (default runs/NAME-TIME-XXXX)");
  flags.Add("resume", &options.resume, "RUN|CHECKPOINT|auto",
            "continue from a checkpoint of a run; auto: from the newest run of this name under "
            "runs/, if there is one; required: the same, and an error if there is none; never. "
            "Takes precedence over checkpoint.resume");
  flags.Add("record", &options.record, "",
            "record in the run's folder everything that enters the servers, every gradient "
            "included, for `rubato replay`");
  flags.Add("compute", &options.delays.compute, "TIME",
            "make each micro-batch take this much longer, as if workers were slower, to compare "
            "modes on few cores; a time such as 5ms");
  flags.Add("speeds", &options.delays.speeds, "SPEEDS",
            "multiply that time by a random factor, as the flag --speeds of rubato simulate does");
  flags.Add("dry-run", &options.dry_run, "",
            "only print the resolved job, its parameters, shards and steps");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  options.config = FindConfig(options.config);

  std::optional<Log> log;
  const absl::StatusOr<int> code = Train(options, signals, &log);
  if (code.ok()) return *code;
  log.has_value() ? log->Fatal(code.status()) : PrintError(code.status());
  return ExitCode(code.status());
}

}  // namespace rubato
