#include "tools/command/train.h"

#include <google/protobuf/util/message_differencer.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/flags.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/terminal.h"
#include "common/files/checkpoint.h"
#include "common/files/resume_point.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "common/space/modes.h"
#include "common/wire/channel.h"
#include "tools/command/binaries.h"
#include "tools/command/command.h"
#include "tools/command/launcher.h"
#include "tools/command/plan.h"
#include "tools/command/progress.h"
#include "tools/command/resume.h"
#include "tools/command/summary.h"

namespace rubato {
namespace {

using Event = Launcher::Event;

constexpr int kStderr = 2;
constexpr absl::Duration kAddressPoll = absl::Milliseconds(10);
constexpr absl::Duration kProgressPoll = absl::Milliseconds(200);
// How long nothing may happen before shard 0 is asked what it waits for, and how long it has to
// answer.
constexpr absl::Duration kQuiet = absl::Seconds(1);
constexpr absl::Duration kAskTimeout = absl::Seconds(1);
// How long shard 0, when it is told to end, has to end the job in order: to finish its step without
// those that do not answer, and to write a checkpoint. A second signal ends all at once.
constexpr absl::Duration kStopTimeout = absl::Seconds(30);

// What was typed.
struct Options {
  std::string program;
  std::string config;
  std::vector<std::string> set;
  std::string run_dir;
  std::string resume;
  bool record = false;
  bool dry_run = false;
};

// Where a run goes on from.
struct Resume {
  std::string checkpoint;  // empty: from the beginning
  proto::Manifest manifest;
};

Log LogOf(const proto::Job& job) {
  return Log("launcher", 0, static_cast<LogLevel>(job.log().level()),
             static_cast<LogFormat>(job.log().format()));
}

// For people a line is what it says; programs get it as they get all lines.
void Say(const Log& log, absl::string_view text) {
  log.format() == LogFormat::kJson ? log.Info(text) : WriteAll(kStderr, absl::StrCat(text, "\n"));
}

// The same job again with one thing changed, and a look at this one's result.
std::vector<std::string> Suggestions(const Options& options, const Plan& plan,
                                     const RunFolder& folder) {
  const bool sync =
      plan.job.consistency().schedule_size() == 0 && !OnArrival(plan.job.consistency().mode());
  std::vector<std::string> again = {options.program, "train", options.config};
  for (const std::string& override : options.set) {
    if (!absl::StartsWith(override, "consistency")) again.insert(again.end(), {"--set", override});
  }
  again.insert(again.end(), {"--set", absl::StrCat("consistency=", sync ? "async" : "sync")});
  return {ShellLine({options.program, "inspect", folder.path()}), ShellLine(again)};
}

// The programs to start.
struct Programs {
  std::string server, worker;
};

// One run: its folder, its processes, and what is said about them.
class Run {
 public:
  Run(const Plan& plan, const Resume& resume, bool record, const Programs& programs,
      RunFolder folder, Launcher& launcher)
      : plan_(plan),
        resume_(resume),
        record_(record),
        programs_(programs),
        folder_(std::move(folder)),
        launcher_(launcher),
        log_(LogOf(plan.job)),
        views_(folder_.ViewsFile()) {}

  // Starts all processes, workers that end badly anew, and waits for their end. Then kAllEnded,
  // kFailure (see failure()) or kInterrupt; an error if a process could not be started, or if there
  // are too few workers to go on. What still runs is left to Stop.
  absl::StatusOr<Event> Train() {
    RUBATO_RETURN_IF_ERROR(
        WriteFileAtomically(folder_.JobFile(), ResolvedYaml(plan_.job, plan_.sources)));

    if (!resume_.checkpoint.empty()) {
      RUBATO_RETURN_IF_ERROR(
          CopyMetrics(resume_.checkpoint, resume_.manifest.step(), folder_.MetricsFile()));
    }
    RUBATO_RETURN_IF_ERROR(StartServer(0, ""));
    // The others start when shard 0 listens: they then find this run's, not another program that
    // holds its port.
    RUBATO_ASSIGN_OR_RETURN(const Event event, AwaitAddress());
    if (event != Event::kTimeout) return event;
    RUBATO_ASSIGN_OR_RETURN(address_, ReadSmallFile(folder_.AddressFile()));
    absl::StripAsciiWhitespace(&address_);
    for (int shard = 1; shard < plan_.job.cluster().servers(); ++shard) {
      RUBATO_RETURN_IF_ERROR(StartServer(shard, address_));
    }
    for (int rank = 0; rank < plan_.job.cluster().workers().start(); ++rank) {
      RUBATO_RETURN_IF_ERROR(StartWorker(rank));
    }
    return Watch();
  }

  // After kFailure.
  const Failure& failure() const { return failure_.has_value() ? *failure_ : *launcher_.failure(); }

 private:
  absl::Status StartWorker(int rank) {
    return Start("worker", rank,
                 {programs_.worker, "--config", folder_.JobFile(), "--rank", absl::StrCat(rank),
                  "--local-rank", absl::StrCat(rank)},
                 address_);
  }

  absl::Status StartServer(int shard, const std::string& address) {
    std::vector<std::string> arguments = {programs_.server, "--config",          folder_.JobFile(),
                                          "--shard",        absl::StrCat(shard), "--run-dir",
                                          folder_.path()};
    if (record_) arguments.insert(arguments.end(), {"--record", folder_.RecordFolder()});
    // It need not look again, and shall find the same.
    if (shard == 0 && (!resume_.checkpoint.empty() ||
                       plan_.job.checkpoint().resume() != proto::Checkpoint::RESUME_NEVER)) {
      arguments.insert(arguments.end(),
                       {"--resume", resume_.checkpoint.empty() ? "never" : resume_.checkpoint});
    }
    return Start("server", shard, std::move(arguments), address);
  }

  absl::Status Start(const std::string& role, int rank, std::vector<std::string> arguments,
                     const std::string& address) {
    if (!address.empty())
      arguments.insert(arguments.end(),
                       {"--set", absl::StrCat("cluster.address=\"", address, "\"")});
    return launcher_.Start({role, rank, std::move(arguments), folder_.LogFile(role, rank),
                            /*expendable=*/role == "worker"});
  }

  // kTimeout when the address is there, as nothing else has happened.
  absl::StatusOr<Event> AwaitAddress() {
    const double limit = plan_.job.cluster().start_timeout();
    const absl::Time deadline = absl::Now() + absl::Seconds(limit);
    while (access(folder_.AddressFile().c_str(), F_OK) != 0) {
      const Event event = launcher_.Wait(kAddressPoll);
      if (event == Event::kAllEnded) {
        return absl::InternalError("server 0 has ended before it listened; see " +
                                   folder_.LogFile("server", 0));
      }
      if (event != Event::kTimeout) return event;
      if (absl::Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat(
            "server 0 has not begun to listen within cluster.start_timeout, ", limit, " s"));
      }
    }
    return Event::kTimeout;
  }

  absl::StatusOr<Event> Watch() {
    ProgressDisplay display(folder_.MetricsFile(),
                            Progress(static_cast<double>(TotalSamples(plan_)),
                                     static_cast<double>(plan_.train_samples)),
                            kStderr, IsTerminal(kStderr) && log_.format() == LogFormat::kText,
                            static_cast<LogLevel>(plan_.job.log().level()), log_.format());
    while (true) {
      const Event event = launcher_.Wait(kProgressPoll);
      ReadViews(display);
      display.Update(absl::Now());
      if (event == Event::kLost) {
        display.Clear();
        RUBATO_ASSIGN_OR_RETURN(const bool goes_on, OnLost(launcher_.lost()));
        if (!goes_on) return Event::kFailure;
      } else if (event != Event::kTimeout) {
        return event;
      }
      RUBATO_RETURN_IF_ERROR(CheckPaused(display));
    }
  }

  // Training has begun with the first view. Says when the mode changes.
  void ReadViews(ProgressDisplay& display) {
    while (const std::optional<std::string> line = views_.Next()) {
      if (!has_begun_) {
        if (const absl::Status status = folder_.BecomeLatest(); !status.ok()) {
          display.Clear();
          Say(log_, absl::StrCat("warning: ", status.message()));
        }
      }
      has_begun_ = true;
      const auto json = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object() || !json.contains("mode") || !json["mode"].is_string()) continue;
      const std::string mode = json["mode"];
      if (!mode_.empty() && mode != mode_) {
        display.Clear();
        Say(log_, absl::StrCat("mode: ", mode, " (was ", mode_, ")"));
      }
      mode_ = mode;
    }
  }

  // Starts a worker anew if that may help. Whether the run goes on.
  absl::StatusOr<bool> OnLost(const Failure& lost) {
    const std::string who = absl::StrCat(lost.role, " ", lost.rank);
    const std::string reason = absl::StrReplaceAll(lost.reason, {{"\n", "; "}});
    const int most = plan_.job.cluster().max_restarts();
    if (lost.exit_code == 128 + SIGTERM || lost.exit_code == 128 + SIGINT) {
      Say(log_, absl::StrCat(who, " has left"));
      return true;
    }
    if (lost.exit_code != 2 && restarts_[lost.rank] < most) {
      ++restarts_[lost.rank];
      Say(log_, absl::StrFormat("%s ended: %s; started again (%d of %d)", who, reason,
                                restarts_[lost.rank], most));
      RUBATO_RETURN_IF_ERROR(StartWorker(lost.rank));
      return true;
    }
    if (!has_begun_) {
      failure_ = lost;
      return false;
    }
    Say(log_,
        absl::StrCat(who, " ended: ", reason, "; not started again, ",
                     lost.exit_code == 2 ? "which would not help"
                                         : absl::StrFormat("cluster.max_restarts is %d", most),
                     "; log: ", lost.log_path));
    return true;
  }

  // When nothing happens: shows that the run is paused, if it is. If it would be so for ever, has
  // shard 0 end it with a checkpoint.
  absl::Status CheckPaused(ProgressDisplay& display) {
    const absl::Time now = absl::Now();
    if (!has_begun_ || now < ask_at_) return absl::OkStatus();
    const int least = plan_.job.cluster().workers().min();
    const int workers = launcher_.running("worker");
    if (workers >= least && display.last_change() + kQuiet > now) {
      display.SetNotice("");
      return absl::OkStatus();
    }
    ask_at_ = now + kQuiet;
    proto::CommandRequest request;
    request.set_kind(proto::CommandRequest::KIND_STATUS);
    const absl::StatusOr<proto::CommandReply> reply =
        SendCommand(folder_.path(), address_, std::move(request), kAskTimeout);
    if (!reply.ok()) return absl::OkStatus();
    const bool paused = reply->status().state() == "paused";
    if (paused && workers < least) {
      display.Clear();
      launcher_.Stop("server", 0, kStopTimeout);
      return absl::AbortedError(
          absl::StrFormat("too few workers are left to go on: %d of at least %d "
                          "(cluster.workers.min), and none may be started again",
                          workers, least));
    }
    display.SetNotice(paused && reply->status().waits_size() > 0
                          ? absl::StrCat("paused: ", reply->status().waits(0))
                          : "");
    return absl::OkStatus();
  }

  const Plan& plan_;
  const Resume& resume_;
  const bool record_;
  const Programs& programs_;
  const RunFolder folder_;
  Launcher& launcher_;
  const Log log_;
  LineTail views_;
  std::string address_;  // of shard 0
  bool has_begun_ = false;
  std::string mode_;
  std::map<int, int> restarts_;  // by rank
  std::optional<Failure> failure_;
  absl::Time ask_at_ = absl::InfinitePast();
};

void PrintFailure(const Log& log, const Failure& failure) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(failure.reason, '\n')) {
    absl::StrAppend(&text, failure.role, " ", failure.rank, ": ", line, "\n");
  }
  log.Fatal(absl::UnknownError(text));
  Say(log, absl::StrCat("log: ", failure.log_path));
}

// The command that goes on from the run's last checkpoint, after `before`; empty if it has none.
std::string HowToGoOn(const Options& options, const RunFolder& folder, absl::string_view before) {
  std::vector<std::string> warnings;
  if (!FindCheckpoint(folder.path(), &warnings).ok()) return "";
  return absl::StrCat(
      before, "go on with: ", ShellLine({options.program, "train", "--resume", folder.path()}));
}

absl::Status PrintSummary(const Options& options, const Plan& plan, const RunFolder& folder) {
  const absl::StatusOr<std::string> json = ReadSmallFile(folder.SummaryFile());
  if (!json.ok()) {
    return absl::InternalError(
        absl::StrCat("server 0 has ended without a summary: ", json.status().message()));
  }
  RUBATO_ASSIGN_OR_RETURN(const std::string text,
                          SummaryText(*json, folder.path(), Suggestions(options, plan, folder)));
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

// The exit code of a run that has not failed to start.
absl::StatusOr<int> Launch(const Options& options, const Plan& plan, const Resume& resume,
                           SignalWatcher& signals) {
  Programs programs;
  RUBATO_ASSIGN_OR_RETURN(programs.server, FindBinary("rubato-server"));
  RUBATO_ASSIGN_OR_RETURN(programs.worker, FindBinary("rubato-worker"));
  RUBATO_ASSIGN_OR_RETURN(const RunFolder folder,
                          RunFolder::Create(plan.job.name(), options.run_dir, absl::Now()));
  const Log log = LogOf(plan.job);
  Say(log, absl::StrCat("run: ", folder.path()));
  // The children's job is resolved: what this environment says must not apply to it again, over the
  // flags. Nothing else runs yet that could read the environment.
  RemoveJobVariables();
  SilenceGrpc();

  Launcher launcher;
  signals.OnSignal([&launcher](int number) { launcher.Interrupt(number); });
  const auto stop_listening = absl::MakeCleanup([&signals] { signals.OnSignal(nullptr); });

  Run run(plan, resume, options.record, programs, folder, launcher);
  const absl::StatusOr<Event> event = run.Train();
  if (event.ok() && *event == Event::kFailure) PrintFailure(log, run.failure());
  if (event.ok() && *event == Event::kInterrupt) {
    Say(log, "interrupted: ending all processes");
    // Shard 0 ends the others. Workers alone would take it for leave to go.
    launcher.Stop("server", 0, kStopTimeout);
  }
  launcher.Stop();
  if (!event.ok()) {
    return absl::Status(event.status().code(),
                        absl::StrCat(event.status().message(), HowToGoOn(options, folder, "; ")));
  }
  switch (*event) {
    case Event::kFailure:
      if (run.failure().exit_code != 2) {
        if (const std::string how = HowToGoOn(options, folder, ""); !how.empty()) Say(log, how);
      }
      return run.failure().exit_code;
    case Event::kInterrupt:
      Say(log, absl::StrCat("files: ", folder.path()));
      if (const std::string how = HowToGoOn(options, folder, ""); !how.empty()) Say(log, how);
      return ExitCode(InterruptedBy(launcher.interrupted_by()));
    default:
      RUBATO_RETURN_IF_ERROR(PrintSummary(options, plan, folder));
      return 0;
  }
}

// The checkpoint that --resume or the job means, if any, and the job to go on with.
absl::StatusOr<Resume> FindResume(Options& options, const Log& log) {
  proto::Job job;
  if (options.resume.empty() || IsResumeMode(options.resume)) {
    RUBATO_ASSIGN_OR_RETURN(job, LoadJob(options.config, options.set));
  }
  Resume resume;
  std::vector<std::string> warnings;
  RUBATO_ASSIGN_OR_RETURN(resume.checkpoint, ResumePoint(job, options.resume, "runs", &warnings));
  for (const std::string& warning : warnings) Say(log, absl::StrCat("warning: ", warning));
  if (resume.checkpoint.empty()) {
    if (options.resume == "auto" ||
        (options.resume.empty() && job.checkpoint().resume() == proto::Checkpoint::RESUME_AUTO)) {
      Say(log, "no run to go on with: from the beginning");
    }
    return resume;
  }
  RUBATO_ASSIGN_OR_RETURN(resume.manifest, CheckCheckpoint(resume.checkpoint));
  if (options.config.empty()) options.config = resume.checkpoint + "/job.yaml";
  return resume;
}

// Says which settings are not as they were, and refuses shapes that are not.
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

// `log` is set once the job says how.
absl::StatusOr<int> Train(Options options, SignalWatcher& signals, std::optional<Log>* log) {
  if (options.config.empty() && (options.resume.empty() || IsResumeMode(options.resume))) {
    return absl::InvalidArgumentError("missing argument CONFIG.yaml (see rubato train --help)");
  }
  RUBATO_ASSIGN_OR_RETURN(const Resume resume, FindResume(options, Log("launcher", 0)));
  Sources sources;
  RUBATO_ASSIGN_OR_RETURN(proto::Job job,
                          LoadJob(options.config, options.set, ProcessEnvironment(), &sources));
  log->emplace(LogOf(job));
  RUBATO_ASSIGN_OR_RETURN(Plan plan, MakePlan(std::move(job)));
  plan.sources = std::move(sources);
  if (options.dry_run) {
    std::fputs(DryRunText(plan).c_str(), stdout);
    return 0;
  }
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
            "override a key of the job, as optimizer.learning_rate=0.1; may be repeated; beats\n"
            "                        RUBATO__OPTIMIZER__LEARNING_RATE=0.1 in the environment");
  flags.Add("run-dir", &options.run_dir, "DIR",
            "new or empty folder for the run (default runs/NAME-TIME-XXXX)");
  flags.Add(
      "resume", &options.resume, "RUN|CHECKPOINT|auto",
      "go on where a run stopped; auto: the newest of this name under runs/, if there is one;\n"
      "                        required: not without one; never. Beats checkpoint.resume");
  flags.Add("record", &options.record, "",
            "write down in the run's folder what enters the servers' cores, for `rubato replay`: "
            "every\n                        gradient");
  flags.Add("dry-run", &options.dry_run, "",
            "only print the resolved job, its parameters, shards and steps");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;

  std::optional<Log> log;
  const absl::StatusOr<int> code = Train(options, signals, &log);
  if (code.ok()) return *code;
  log.has_value() ? log->Fatal(code.status()) : PrintError(code.status());
  return ExitCode(code.status());
}

}  // namespace rubato
