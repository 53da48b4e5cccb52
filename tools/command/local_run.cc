#include "tools/command/local_run.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/lease.h"
#include "common/base/monotonic.h"
#include "common/base/process_exit.h"
#include "common/base/status.h"
#include "common/base/terminal.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/space/modes.h"
#include "common/wire/reach.h"
#include "server/run/run_state.h"
#include "tools/command/binaries.h"
#include "tools/command/certificates.h"
#include "tools/command/command.h"
#include "tools/command/log_line.h"
#include "tools/command/processor_shares.h"
#include "tools/command/say.h"

namespace rubato {
namespace {

using Event = Launcher::Event;

constexpr int kStderr = 2;
// For which a run's own certificates are valid: longer than any training.
constexpr absl::Duration kCertificatesTime = absl::Hours(24 * 366 * 5);
constexpr absl::Duration kAddressPoll = absl::Milliseconds(10);
constexpr absl::Duration kProgressPoll = absl::Milliseconds(200);
// While logs are not read to their end.
constexpr absl::Duration kBetweenGoes = absl::Milliseconds(1);
// How long nothing may happen before the coordinator is asked what it waits for, and how long it
// has to answer, while nobody sees whether a process ends.
constexpr absl::Duration kQuiet = absl::Seconds(1);
constexpr absl::Duration kAskTimeout = absl::Milliseconds(300);
// When nothing has happened for long, for example in a pause, it is asked seldom: each time costs
// it more than all else that it then does.
constexpr absl::Duration kLongQuiet = absl::Minutes(1);
constexpr absl::Duration kSeldom = absl::Seconds(5);
// While the job waits for servers.
constexpr absl::Duration kAskAgain = absl::Milliseconds(200);

// How soon it is said what a stop waits for: most are over by then.
constexpr absl::Duration kSayWhatStops = absl::Seconds(3);
// How soon it is said that scripts still run when the job is done.
constexpr absl::Duration kSayWhoRuns = absl::Seconds(10);

// Of a process for people. There is one coordinator.
std::string ProcessName(const std::string& role, int rank) {
  return role == "coordinator" ? role : absl::StrCat(role, " ", rank);
}

std::string OneLine(const std::string& reason) {
  return absl::StrReplaceAll(reason, {{"\n", "; "}});
}

// What may be done about a script that could not begin; empty if that is not known.
std::string Advice(absl::string_view reason) {
  if (absl::StrContains(reason, "can't open file")) {
    return "; `script` is relative to the folder in which `rubato train` runs";
  }
  if (absl::StrContains(reason, "No module named 'rubato'")) {
    return "; expected its folder in PYTHONPATH";
  }
  return "";
}

// Whether it was told to end, and did so in order.
bool WasAsked(const Failure& failure) {
  return failure.exit_code == 128 + SIGTERM || failure.exit_code == 128 + SIGINT ||
         failure.exit_code == 128 + SIGHUP;
}

// By an error of its own: another worker tests the final parameters.
bool FailedInFinalTest(const Failure& failure) {
  return failure.stage == ScriptStage::kFinal && !failure.killed &&
         failure.exit_code != kExitTryAgain && !WasAsked(failure);
}

// Whether the server at `address` takes connections and says nothing.
bool StandsStill(const std::string& address) {
  constexpr absl::Duration kLook = absl::Milliseconds(300);
  // One that is spoken to in TLS and is not frozen hangs up.
  return LookFor({address}, Greeting::kPlain, kLook).front() == Reach::kMute;
}

// The processors of each worker. Not of scripts, which may start any number of processes.
std::vector<std::vector<int>> SharesOf(const proto::Job& job) {
  if (!job.cluster().bind_workers() || UseGpus(job) || job.script_size() > 0) return {};
  // A micro-batch is one thread's work.
  const int64_t threads = std::min<int64_t>(job.device().threads(), job.train().micro_batches());
  return ProcessorShares(AllowedProcessors(), job.cluster().workers().start(),
                         static_cast<int>(threads));
}

}  // namespace

LocalRun::LocalRun(const Plan& plan, const Resume& resume, bool record, const Programs& programs,
                   std::vector<std::string> worker_variables, RunFolder folder, Launcher& launcher)
    : plan_(plan),
      resume_(resume),
      record_(record),
      programs_(programs),
      worker_variables_(std::move(worker_variables)),
      folder_(std::move(folder)),
      launcher_(launcher),
      secret_(JobKey::DrawSecret()),
      log_(LauncherLog(plan.job)),
      processors_(SharesOf(plan.job)),
      views_(folder_.ViewsFile()),
      logs_(plan.job, folder_, log_),
      frozen_(absl::Seconds(plan.job.cluster().lease())) {
  // Those on the data are told with the plan, and each worker says them again as its log writes.
  const Log worker("worker", 0);
  for (const std::string& note : plan_.notes) {
    std::string line = worker.Line(absl::UnixEpoch(), LogLevel::kInfo, note, {});
    absl::StripTrailingAsciiWhitespace(&line);
    if (const LogLine parsed = ParseLogLine(line); parsed.warning.has_value()) {
      logs_.IsTold(*parsed.warning);
    }
  }
}

absl::StatusOr<Launcher::Event> LocalRun::Train() {
  RUBATO_RETURN_IF_ERROR(
      WriteFileAtomically(folder_.JobFile(), ResolvedYaml(plan_.job, plan_.sources)));
  RUBATO_RETURN_IF_ERROR(CopyMetrics(resume_, folder_.MetricsFile()));
  if (plan_.job.security().mode() == proto::Security::MODE_MTLS) {
    RUBATO_RETURN_IF_ERROR(
        MakeCertificates(folder_.CertificatesFolder(), kCertificatesTime, absl::Now()));
  }
  if (plan_.job.script_size() > 0) launcher_.set_last_grace(absl::InfiniteDuration());
  RUBATO_RETURN_IF_ERROR(StartServer(head_role(), 0, ""));
  // The others start when it listens: they then find this run's, not another program that
  // holds its port.
  RUBATO_ASSIGN_OR_RETURN(const Event event, AwaitAddress());
  if (event != Event::kTimeout) return event;
  RUBATO_ASSIGN_OR_RETURN(address_, ReadSmallFile(folder_.AddressFile()));
  absl::StripAsciiWhitespace(&address_);
  for (int shard = plan_.job.cluster().dedicated_coordinator() ? 0 : 1;
       shard < plan_.job.cluster().servers(); ++shard) {
    RUBATO_RETURN_IF_ERROR(StartServer("server", shard, address_));
  }
  for (int rank = 0; rank < plan_.job.cluster().workers().start(); ++rank) {
    RUBATO_RETURN_IF_ERROR(StartWorker(rank));
  }
  const absl::StatusOr<Event> end = Watch();
  const bool have_all_ended = end.ok() && *end == Event::kAllEnded;
  if (have_all_ended) {
    logs_.ReadToEnd(/*passes_on=*/true);
  } else {
    logs_.Read(nullptr, /*passes_on=*/false);
  }
  return end;
}

absl::Status LocalRun::StartWorker(int rank, bool again) {
  if (plan_.job.script_size() > 0) return StartScript(rank);
  std::vector<std::string> arguments = {programs_.worker,  "--config",         folder_.JobFile(),
                                        "--rank",          absl::StrCat(rank), "--local-rank",
                                        absl::StrCat(rank)};
  // It may be a GPU that has ended it.
  if (again && plan_.job.cluster().gpus_per_worker() > 1) arguments.push_back("--working-gpus");
  return Start("worker", rank, std::move(arguments), address_);
}

absl::Status LocalRun::StartScript(int rank) {
  std::vector<std::string> arguments(plan_.job.script().begin(), plan_.job.script().end());
  RUBATO_ASSIGN_OR_RETURN(arguments[0], FindProgram(arguments[0]));
  // It may change its folder before it joins.
  const auto absolute = [](const std::string& path) {
    return std::filesystem::absolute(path).string();
  };
  return Start("worker", rank, std::move(arguments), /*address=*/"",
               {absl::StrCat("RUBATO_JOB=", absolute(folder_.JobFile())),
                absl::StrCat("RUBATO_WORKER=", absolute(programs_.worker)),
                absl::StrCat("RUBATO__CLUSTER__ADDRESS=", address_),
                absl::StrCat("RUBATO_RANK=", rank), absl::StrCat("LOCAL_RANK=", rank)});
}

absl::Status LocalRun::StartServer(const std::string& role, int rank, const std::string& address) {
  std::vector<std::string> arguments = {programs_.server, "--config", folder_.JobFile()};
  const bool is_head = role == head_role() && rank == 0;
  if (is_head) frozen_.OnCoordinatorStarted();
  if (role == "server") {
    frozen_.OnShardStarted(rank, MonotonicNow());
    arguments.insert(arguments.end(), {"--shard", absl::StrCat(rank)});
  } else {
    arguments.push_back("--coordinator");
  }
  arguments.insert(arguments.end(), {"--run-dir", folder_.path()});
  if (record_) arguments.insert(arguments.end(), {"--record", folder_.RecordFolder()});
  // It need not search again, and finds the same.
  if (is_head && (!resume_.checkpoint.empty() ||
                  plan_.job.checkpoint().resume() != proto::Checkpoint::RESUME_NEVER)) {
    arguments.insert(arguments.end(),
                     {"--resume", resume_.checkpoint.empty() ? "never" : resume_.checkpoint});
  }
  return Start(role, rank, std::move(arguments), address);
}

std::string LocalRun::head_name() const { return ProcessName(head_role(), 0); }

absl::Status LocalRun::Start(const std::string& role, int rank, std::vector<std::string> arguments,
                             const std::string& address, std::vector<std::string> variables) {
  if (!address.empty())
    arguments.insert(arguments.end(), {"--set", absl::StrCat("cluster.address=\"", address, "\"")});
  logs_.Follow(ProcessName(role, rank), folder_.LogFile(role, rank));
  const bool is_worker = role == "worker";
  std::vector<std::string> environment = {"RUBATO_KEY=", "RUBATO_KEY_FILE="};  // not the caller's
  environment.insert(environment.end(), variables.begin(), variables.end());
  if (is_worker) {
    environment.insert(environment.end(), worker_variables_.begin(), worker_variables_.end());
  }
  if (plan_.job.security().mode() == proto::Security::MODE_MTLS) {
    environment.push_back(absl::StrCat("RUBATO_CERTIFICATES=", folder_.CertificatesFolder(), "/",
                                       RoleName(is_worker ? Role::kWorker : Role::kServer)));
  }
  if (plan_.job.security().mode() == proto::Security::MODE_TOKEN) {
    RUBATO_ASSIGN_OR_RETURN(const JobKey worker_key, secret_.Of(Role::kWorker));
    absl::StrAppend(&environment[0], is_worker ? worker_key.ToText() : secret_.ToText());
  }
  return launcher_.Start(
      {role, rank, std::move(arguments), folder_.LogFile(role, rank), std::move(environment),
       is_worker && !processors_.empty() ? processors_[rank] : std::vector<int>(),
       /*expendable=*/is_worker,
       /*restartable=*/!is_worker && comes_back()});
}

absl::StatusOr<Launcher::Event> LocalRun::AwaitAddress() {
  const double limit = plan_.job.cluster().start_timeout();
  const absl::Time deadline = MonotonicNow() + absl::Seconds(limit);
  while (access(folder_.AddressFile().c_str(), F_OK) != 0) {
    const Event event = launcher_.Wait(kAddressPoll);
    if (event == Event::kAllEnded) {
      return absl::InternalError(absl::StrCat(head_name(), " has ended before it listened; see ",
                                              folder_.LogFile(head_role(), 0)));
    }
    if (event == Event::kLost) {
      failure_ = launcher_.lost();
      return Event::kFailure;
    }
    if (event != Event::kTimeout) return event;
    if (MonotonicNow() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          head_name(), " has not begun to listen within cluster.start_timeout, ", limit, " s"));
    }
  }
  return Event::kTimeout;
}

absl::StatusOr<Launcher::Event> LocalRun::Watch() {
  ProgressDisplay display(folder_.MetricsFile(),
                          IsScript(plan_.job) && !plan_.job.train().until().has_time()
                              ? Progress([&job = plan_.job](int64_t epoch) {
                                  return static_cast<double>(TotalSamples(job, epoch));
                                })
                              : Progress(static_cast<double>(TotalSamples(plan_)),
                                         static_cast<double>(plan_.train_samples)),
                          kStderr, IsTerminal(kStderr) && log_.format() == LogFormat::kText,
                          static_cast<LogLevel>(plan_.job.log().level()), log_.format());
  while (true) {
    const Event event = launcher_.Wait(logs_.is_behind() ? kBetweenGoes : kProgressPoll);
    ReadViews(&display);
    logs_.Read(&display, /*passes_on=*/true);
    TellIfRemoved(display);
    logs_.Cut(display);
    display.Update(MonotonicNow());
    if (event == Event::kLost) {
      display.Clear();
      RUBATO_ASSIGN_OR_RETURN(const bool goes_on, OnLost(launcher_.lost()));
      if (!goes_on && !is_complete_) return Event::kFailure;
      if (!goes_on && plan_.job.script_size() == 0) return Event::kAllEnded;
      if (!goes_on) launcher_.KillOthers();  // they would wait for the one that is lost
    } else if (event != Event::kTimeout) {
      return event;
    }
    if (const Failure* follower = launcher_.follower();
        follower != nullptr && IsLeftAlone(*follower)) {
      display.Clear();
      return Event::kFailure;
    }
    if (!has_begun_ && plan_.job.script_size() > 0 && launcher_.running("worker") == 0) {
      display.Clear();
      failure_ =
          Failure{"worker", 0, kExitUsage,
                  "the script ended without taking part in the job (a PyTorch script does by "
                  "rubato.join and job.prepare)",
                  folder_.LogFile("worker", 0)};
      return Event::kFailure;
    }
    TellOfAbsent(display);
    if (launcher_.SinceOthersEnded() > absl::ZeroDuration()) {
      if (plan_.job.script_size() > 0) WatchScripts(display);
    } else {
      RUBATO_RETURN_IF_ERROR(CheckPaused(display));
    }
  }
}

void LocalRun::TellOfAbsent(ProgressDisplay& display) {
  if (has_told_of_absent_ || has_begun_ || plan_.job.script_size() == 0) return;
  const proto::Cluster& cluster = plan_.job.cluster();
  const int absent = cluster.workers().start() - launcher_.running("worker");
  if (absent <= 0) return;
  // When the servers have ended, too, nobody waits.
  if (launcher_.SinceOthersEnded() > absl::ZeroDuration() || HasSummary()) return;
  has_told_of_absent_ = true;
  display.Clear();
  Say(log_, absl::StrFormat(
                "%d of %d scripts ended without taking part in the job; the others wait for them "
                "until %s (cluster.start_timeout) are over",
                absent, cluster.workers().start(),
                absl::FormatDuration(absl::Seconds(cluster.start_timeout()))));
}

void LocalRun::WatchScripts(ProgressDisplay& display) {
  const absl::Duration since = launcher_.SinceOthersEnded();
  const std::map<int, ScriptStage> stages = launcher_.Stages("worker");
  if (since > kSayWhoRuns && !std::exchange(has_said_who_runs_, true)) {
    std::vector<int> running;
    for (const auto& [rank, stage] : stages) running.push_back(rank);
    display.Clear();
    Say(log_, absl::StrCat("the job is done; waiting for its scripts to end: worker ",
                           absl::StrJoin(running, ", "), " (Ctrl-C ends them)"));
  }
  for (const auto& [rank, stage] : stages) {
    if (stage == ScriptStage::kKnowsEnd) continue;
    const bool is_outside = stage == ScriptStage::kOutside;
    const absl::Duration limit =
        is_outside ? Launcher::kLastGrace : absl::Seconds(plan_.job.cluster().stall_timeout());
    if (since < limit || !launcher_.Kill("worker", rank)) continue;
    display.Clear();
    Say(log_, absl::StrCat("worker ", rank, " killed: the job is done, and its script ",
                           is_outside ? "takes no part in it"
                                      : absl::StrCat("has not asked for more in ",
                                                     absl::FormatDuration(limit),
                                                     " (cluster.stall_timeout)")));
  }
}

bool LocalRun::HasResult() const { return HasSummary() && !HasFailed(); }

bool LocalRun::HasSummary() const { return access(folder_.SummaryFile().c_str(), F_OK) == 0; }

std::optional<Failure> LocalRun::LateFailure() const {
  const absl::StatusOr<std::string> summary = ReadSmallFile(folder_.SummaryFile());
  if (plan_.job.script_size() == 0 || !summary.ok()) return std::nullopt;
  const std::vector<Failure> failures = LateFailures();
  for (const Failure& failure : failures) {
    if (failure.stage == ScriptStage::kKnowsEnd) return failure;
  }
  const auto json = ParseJson(*summary);
  bool is_tested = false;
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      is_tested = is_tested || (absl::StartsWith(name, "test_") && !value.is_null());
    }
  }
  for (const Failure& failure : failures) {
    if (!is_tested && FailedInFinalTest(failure)) return failure;
  }
  return std::nullopt;
}

std::vector<Failure> LocalRun::LateFailures() const {
  std::vector<Failure> failures = late_;
  for (const Failure& failure : launcher_.untold()) failures.push_back(failure);
  return failures;
}

void LocalRun::ReadRest() {
  ReadViews(nullptr);
  // A script that others have ended has a traceback, of which it is not the cause.
  logs_.ReadToEnd(/*passes_on=*/false);
}

void LocalRun::ReadViews(ProgressDisplay* display) {
  while (const std::optional<std::string> line = views_.Next()) {
    if (!has_begun_) {
      if (const absl::Status status = folder_.BecomeLatest(); !status.ok()) {
        if (display != nullptr) display->Clear();
        Say(log_, absl::StrCat("warning: ", status.message()));
      }
    }
    has_begun_ = true;
    const auto json = ParseJson(*line);
    if (!json.is_object() || !json.contains("mode") || !json["mode"].is_string()) continue;
    const std::string mode = json["mode"];
    if (!mode_.empty() && mode != mode_) {
      if (display != nullptr) display->Clear();
      Say(log_, absl::StrCat("mode: ", mode, " (was ", mode_, ")"));
    }
    mode_ = mode;
  }
}

void LocalRun::TellIfRemoved(ProgressDisplay& display) {
  if (is_removed_ || !folder_.IsRemoved()) return;
  is_removed_ = true;
  display.Clear();
  Say(log_, absl::StrCat("warning: the run's folder ", folder_.path(),
                         " is gone, with its checkpoints and logs: training goes on, and at its "
                         "end the result is written to another folder (Ctrl-C ends it without)"));
}

std::string LocalRun::NameOf(const Failure& failure) const {
  const std::string process = ProcessName(failure.role, failure.rank);
  const std::string name = logs_.NameOf(process);
  return name == process ? name : absl::StrCat(name, IfThere(" (", failure.log_path, ")"));
}

bool LocalRun::IsLeftAlone(const Failure& lost) {
  if (comes_back() || !lost.only_followed || !StandsStill(address_)) return false;
  failure_ = Failure{head_role(), 0, 1, absl::StrCat("stands still: ", lost.reason),
                     folder_.LogFile(head_role(), 0)};
  launcher_.Kill(head_role(), 0);
  return true;
}

absl::StatusOr<bool> LocalRun::OnLost(const Failure& lost) {
  if (IsLeftAlone(lost)) return false;
  if (lost.role != "worker") return OnLostServer(lost);
  if (is_complete_ || lost.stage == ScriptStage::kKnowsEnd || FailedInFinalTest(lost)) {
    late_.push_back(lost);
    return true;
  }
  if (HasFailed()) return true;  // who coordinates tells why
  const std::string who = NameOf(lost);
  if (WasAsked(lost)) {
    Say(log_, absl::StrCat(who, " has left"));
    return true;
  }
  if (WouldComeAgain(lost)) {
    if (has_begun_) StopInOrder();
    failure_ = lost;
    if (!has_begun_) failure_->reason += Advice(lost.reason);
    return false;
  }
  if (lost.exit_code != kExitUsage) {
    RUBATO_ASSIGN_OR_RETURN(const bool started, StartAgain(lost));
    if (started) return true;
  }
  if (!has_begun_) {
    failure_ = lost;
    return false;
  }
  std::string why = absl::StrCat("cluster.max_restarts is ", plan_.job.cluster().max_restarts());
  if (folder_.IsRemoved()) why = "for the run's folder is gone";
  if (lost.exit_code == kExitUsage) why = "which would not help";
  Say(log_, absl::StrCat(who, " ended: ", OneLine(lost.reason), "; not started again, ", why,
                         IfThere("; log: ", lost.log_path)));
  return true;
}

bool LocalRun::WouldComeAgain(const Failure& lost) {
  if (plan_.job.script_size() == 0) return false;
  if (lost.killed || lost.exit_code == kExitTryAgain) {
    errors_.erase(lost.rank);
    return false;
  }
  const std::string before = std::exchange(errors_[lost.rank], lost.reason);
  return !has_begun_ || lost.exit_code == kExitUsage || before == lost.reason;
}

absl::StatusOr<bool> LocalRun::StartAgain(const Failure& lost) {
  const int most = plan_.job.cluster().max_restarts();
  int& restarts = restarts_[ProcessName(lost.role, lost.rank)];
  if (restarts >= most || folder_.IsRemoved()) return false;  // it would find no job.yaml
  Say(log_, absl::StrFormat("%s ended: %s; started again (%d of %d)", NameOf(lost),
                            OneLine(lost.reason), ++restarts, most));
  RUBATO_RETURN_IF_ERROR(lost.role == "worker" ? StartWorker(lost.rank, /*again=*/true)
                                               : StartServer(lost.role, lost.rank, address_));
  return true;
}

bool LocalRun::HasFailed() const {
  const absl::StatusOr<std::optional<proto::RunState>> state = ReadRunState(folder_);
  return state.ok() && state->has_value() && (*state)->has_ended();
}

absl::StatusOr<bool> LocalRun::OnLostServer(const Failure& lost) {
  const absl::StatusOr<std::optional<proto::RunState>> state = ReadRunState(folder_);
  const bool has_state = state.ok() && state->has_value();
  const bool has_ended = has_state && (*state)->has_ended();
  // Written last: who is lost behind the result is missed by nobody.
  is_complete_ = !has_ended && HasSummary();
  if (is_complete_) return false;
  // It may be that neither can be told any more: then all others have ended, too.
  const bool is_over =
      has_state ? has_ended || (!lost.killed && launcher_.running() == 0) : has_begun_;
  // Before training has begun a server that ends by itself cannot begin.
  if (!is_over && !WasAsked(lost) && !lost.only_followed && lost.exit_code != kExitUsage &&
      (has_begun_ || lost.killed)) {
    RUBATO_ASSIGN_OR_RETURN(const bool started, StartAgain(lost));
    if (started) return true;
  }
  failure_ = lost;
  return false;
}

absl::StatusOr<proto::CommandReply> LocalRun::AskStatus(absl::Duration timeout) const {
  proto::CommandRequest request;
  request.set_kind(proto::CommandRequest::KIND_STATUS);
  // Not by the token file: the run's folder may have been removed.
  const bool has_key = plan_.job.security().mode() == proto::Security::MODE_TOKEN;
  return SendCommand(folder_.path(), address_, std::move(request), timeout,
                     has_key ? &secret_ : nullptr);
}

void LocalRun::StopInOrder() {
  const absl::Duration lease = absl::Seconds(plan_.job.cluster().lease());
  // While it is only told of, another Ctrl-C does not wait long for an answer.
  const auto ask = [&](absl::Duration most) { return AskStatus(std::min(lease, most)); };
  absl::Duration patience = kSayWhatStops;
  const absl::Time begin = MonotonicNow();
  absl::Time deadline = begin + kLastCheckpoint;
  if (!address_.empty() && absl::IsDeadlineExceeded(ask(lease).status())) {
    Say(log_, absl::StrCat(head_name(), " has not answered within ", absl::FormatDuration(lease),
                           ": no last checkpoint"));
    patience = absl::ZeroDuration();
    deadline = absl::InfinitePast();
  }
  const int interrupted_by = launcher_.interrupted_by();
  bool has_told = false;
  launcher_.Stop(head_role(), 0, patience, [&] {
    const absl::Time now = MonotonicNow();
    if (now >= deadline || launcher_.interrupted_by() != interrupted_by) return false;
    const bool is_judged = now >= begin + kStopGrace;
    const absl::StatusOr<proto::CommandReply> reply = ask(is_judged ? lease : kSayWhatStops / 3);
    // The head waits for one that is lost, which nobody starts again now.
    const bool is_lost = launcher_.alive("server") < plan_.job.cluster().servers();
    if (is_judged && (!reply.ok() || is_lost)) return false;
    if (!std::exchange(has_told, true)) {
      const bool waits = reply.ok() && reply->status().waits_size() > 0;
      Say(log_,
          absl::StrCat(head_name(), " is not done yet", waits ? ": " : "",
                       waits ? reply->status().waits(0) : "", "; it may have ",
                       absl::FormatDuration(reply.ok() && !is_lost ? kLastCheckpoint : kStopGrace),
                       " for the work at hand and a last checkpoint; another Ctrl-C ends all "
                       "at once"));
    }
    return true;
  });
}

absl::Status LocalRun::CheckPaused(ProgressDisplay& display) {
  const absl::Time now = MonotonicNow();
  if (!has_begun_ || now < ask_at_) return absl::OkStatus();
  const int least = plan_.job.cluster().workers().min();
  const int workers = launcher_.running("worker");
  if (workers >= least && display.last_change() + kQuiet > now) {
    frozen_.OnProgress();
    display.SetNotice("");
    return absl::OkStatus();
  }
  ask_at_ = now + (display.last_change() + kLongQuiet > now ? kQuiet : kSeldom);
  const absl::StatusOr<proto::CommandReply> reply = AskStatus(kAskTimeout);
  if (!reply.ok()) {
    OnSilence(now);
    return absl::OkStatus();
  }
  for (const int shard : frozen_.OnStatus(reply->status(), now)) {
    if (!comes_back() || !launcher_.Kill("server", shard)) continue;
    Say(log_, absl::StrCat(ProcessName("server", shard), " has not come back: killed"));
  }
  const bool waits = reply->status().missing_shards_size() > 0;
  if (waits) ask_at_ = now + kAskAgain;
  // A job that has gone back pauses before its first view.
  const bool paused =
      reply->status().state() == "paused" ||
      (reply->status().term() > 1 && !waits && reply->status().state() == "waiting for the others");
  if (paused && workers < least) {
    display.Clear();
    StopInOrder();
    logs_.ReadToEnd(/*passes_on=*/false);
    return absl::AbortedError(
        absl::StrFormat("too few workers are left to go on: %d of at least %d "
                        "(cluster.workers.min), and none may be started again%s",
                        workers, least, logs_.EarlyEnds()));
  }
  display.SetNotice((paused || waits) && reply->status().waits_size() > 0
                        ? absl::StrCat(paused ? "paused: " : "", reply->status().waits(0))
                        : "");
  return absl::OkStatus();
}

void LocalRun::OnSilence(absl::Time now) {
  ask_at_ = now + kAskAgain;
  // Where nobody starts a server again the others end without it, and that is judged; unless there
  // are no others.
  const bool others_tell = !comes_back() && launcher_.running() > 1;
  if (!frozen_.OnSilence(!others_tell && StandsStill(address_), now)) return;
  if (!launcher_.Kill(head_role(), 0)) return;
  const absl::Duration lease = absl::Seconds(plan_.job.cluster().lease());
  Say(log_,
      absl::StrFormat("%s stands still for %s (cluster.lease: %s): killed", head_name(),
                      absl::FormatDuration(BorneSilence(lease)), absl::FormatDuration(lease)));
}

}  // namespace rubato
