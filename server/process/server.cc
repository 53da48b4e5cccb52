#include "server/process/server.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/base/entropy.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/monotonic.h"
#include "common/base/process_exit.h"
#include "common/base/status.h"
#include "common/job/job.h"
#include "common/wire/control_client.h"
#include "common/wire/heartbeat.h"
#include "common/wire/look_up.h"
#include "server/process/checkpoint_request.h"
#include "server/process/coordinator_server.h"
#include "server/process/shard_host.h"
#include "server/process/term_begin.h"

namespace rubato {
namespace {

// A shard's part in one term of its job, or the attempt to take part.
class ShardTerm {
 public:
  // All must outlive it. `last_term`: in which this process has taken part before; 0: in none.
  // `remains`: of that.
  ShardTerm(const proto::Job& job, const ServerOptions& options, const std::string& job_digest,
            const Log& log, SignalWatcher* signals, uint32_t last_term, ShardHost::Remains remains)
      : job_(job),
        options_(options),
        job_digest_(job_digest),
        log_(log),
        signals_(*signals),
        last_term_(last_term),
        remains_(std::move(remains)) {}

  // Listens at `listen` and serves until the job or the term is over: returns what that ended with.
  absl::Status Serve(const std::string& listen);

  // After that. Whether another term follows, as far as is known.
  bool goes_back() const { return goes_back_; }
  bool took_part() const { return term_ > 0; }
  // In which it did.
  uint32_t term() const { return term_; }
  const std::string& address() const { return address_; }
  ShardHost::Remains TakeRemains() { return std::move(remains_); }

 private:
  absl::StatusOr<std::unique_ptr<ControlClient>> Register();
  std::unique_ptr<Heartbeat> StartHeartbeat(const ShardHost& host) const;
  ControlCallbacks Callbacks(ShardHost* host);
  // Has a checkpoint written first, if that can be; the end of the job comes before.
  void Leave(int signal) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnSignal(int signal, ControlClient* control) ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish(const absl::Status& status, bool goes_back) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AwaitEnd() ABSL_LOCKS_EXCLUDED(mutex_);

  const proto::Job& job_;
  const ServerOptions& options_;
  const std::string& job_digest_;
  const Log& log_;
  SignalWatcher& signals_;
  const uint32_t last_term_;
  const uint64_t attempt_ = DrawEntropy();
  proto::Registration registration_;
  ShardHost::Remains remains_;  // of the term before, and then of this one
  std::string address_;
  std::atomic<uint32_t> term_{0};  // 0: it has no view yet

  MonotonicMutex mutex_;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  absl::Status interrupted_ ABSL_GUARDED_BY(mutex_);
  absl::Time interrupt_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool goes_back_ = false;  // set with end_
};

absl::StatusOr<std::unique_ptr<ControlClient>> ShardTerm::Register() {
  registration_.set_address(options_.advertise.empty() ? address_ : options_.advertise);
  registration_.set_attempt(attempt_);
  if (last_term_ > 0) registration_.set_last_term(last_term_);
  return ControlClient::Connect(
      job_.cluster().address(), absl::Seconds(job_.cluster().start_timeout()), registration_,
      [this] { return signals_.signal() != 0; }, options_.connection,
      [this](const std::string& why) { log_.Info(why); });
}

std::unique_ptr<Heartbeat> ShardTerm::StartHeartbeat(const ShardHost& host) const {
  proto::HeartbeatRequest who;
  who.set_job_digest(job_digest_);
  who.set_shard(options_.shard);
  who.set_attempt(attempt_);
  return std::make_unique<Heartbeat>(
      job_.cluster().address(), who, [&host] { return host.busy(); }, options_.connection);
}

void ShardTerm::Finish(const absl::Status& status, bool goes_back) {
  MonotonicLock lock(&mutex_);
  if (end_.has_value()) return;
  end_ = status;
  goes_back_ = goes_back;
}

void ShardTerm::Leave(int signal) {
  constexpr absl::Duration kBetweenTries = absl::Milliseconds(200);
  log_.Info("leaves the job to its successor", {{"reason", InterruptedBy(signal).message()}});
  const absl::Time deadline = MonotonicNow() + kLeavePatience;
  absl::Status saved = absl::UnavailableError("the job is not training");
  // A training that is about to begin, or to end, has none written now.
  for (bool is_over = term_ == 0; !is_over && !saved.ok() && MonotonicNow() < deadline;) {
    saved =
        RequestCheckpoint(job_.cluster().address(), options_.connection, deadline - MonotonicNow());
    if (!saved.ok() && !absl::IsUnavailable(saved)) break;
    MonotonicLock lock(&mutex_);
    const auto has_ended = [this]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
    is_over = saved.ok() || mutex_.AwaitFor(absl::Condition(&has_ended), kBetweenTries);
  }
  if (!saved.ok()) log_.Warning("leaves without a checkpoint", {{"reason", saved.message()}});
  Finish(InterruptedBy(signal), /*goes_back=*/false);
}

void ShardTerm::OnSignal(int signal, ControlClient* control) {
  if (options_.leaves) {
    Leave(signal);
    return;
  }
  // The coordinator ends the job in order, or this process ends without it: at once, where it is
  // lost or falls silent.
  proto::PeerMessage message;
  message.mutable_stop_request()->set_reason(std::string(InterruptedBy(signal).message()));
  control->Send(message);
  MonotonicLock lock(&mutex_);
  if (!end_.has_value()) {
    interrupted_ = InterruptedBy(signal);
    interrupt_deadline_ = MonotonicNow() + kLastCheckpoint;
  }
}

ControlCallbacks ShardTerm::Callbacks(ShardHost* host) {
  ControlCallbacks callbacks;
  callbacks.on_message = [this, host](const proto::CoordinatorMessage& message) {
    if (!message.has_stop()) {
      if (message.has_view()) {
        term_ = message.view().term();
        options_.on_ready(true);
      }
      host->OnMessage(message);
      return;
    }
    const proto::Stop& stop = message.stop();
    // Its place may be held by what it was before, in this process or another.
    const bool is_early =
        job_.cluster().max_restarts() > 0 && stop.refused() && stop.exit_code() == kExitFailure;
    Finish(ToldToStop(stop.exit_code(), stop.reason(), stop.refused()),
           stop.goes_back() || is_early);
  };
  callbacks.on_failure = [this](const absl::Status& status) {
    Finish(status, job_.cluster().max_restarts() > 0);
  };
  return callbacks;
}

absl::Status ShardTerm::AwaitEnd() {
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
  const auto moves = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end_.has_value() || !interrupted_.ok();
  };
  MonotonicLock lock(&mutex_, absl::Condition(&moves));
  mutex_.AwaitUntil(absl::Condition(&ended), interrupt_deadline_);
  if (interrupted_.ok()) return *end_;
  end_ = interrupted_;  // nothing counts any more
  goes_back_ = false;
  return interrupted_;
}

absl::Status ShardTerm::Serve(const std::string& listen) {
  std::unique_ptr<ControlClient> control;
  registration_ = ShardRegistration(job_digest_, options_.shard, remains_.kept);
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<RecordingWriter> shard_recording,
                          RecordShard(job_, options_, job_digest_, remains_.kept, log_));
  ShardHost host(
      job_, job_digest_, options_.connection, &log_,
      [&control](const proto::PeerMessage& message) { control->Send(message); },
      std::move(shard_recording), std::move(remains_));
  RUBATO_RETURN_IF_ERROR(host.Start(options_.shard, listen));
  address_ = host.address();
  log_.Info("listening", {{"address", address_}});

  RUBATO_ASSIGN_OR_RETURN(control, Register());
  signals_.OnSignal([&](int signal) { OnSignal(signal, control.get()); });
  control->Start(Callbacks(&host));
  std::unique_ptr<Heartbeat> heartbeat = StartHeartbeat(host);
  const absl::Status status = AwaitEnd();
  options_.on_ready(false);
  signals_.OnSignal(nullptr);
  heartbeat.reset();
  host.Stop();
  control.reset();  // before the host, which its thread calls
  remains_ = host.TakeRemains();
  return status;
}

// Where a shard listens: as it is told, or beside the coordinator, if that is on this machine.
// InvalidArgument if others would not reach it there.
absl::StatusOr<std::string> FindListen(const proto::Job& job, const ServerOptions& options) {
  const bool is_told = !options.listen.empty();
  const std::string& coordinator = job.cluster().address();
  RUBATO_ASSIGN_OR_RETURN(const std::vector<HostPort> head, ParseAddresses(coordinator));
  RUBATO_ASSIGN_OR_RETURN(const std::vector<HostPort> listen,
                          ParseAddresses(is_told ? options.listen : AtAnyPort(head)));
  // Who gives an address to advertise may have a tunnel behind it.
  const bool is_local =
      options.advertise.empty() && std::any_of(listen.begin(), listen.end(), IsLoopback);
  if (is_told && !is_local) return options.listen;
  RUBATO_ASSIGN_OR_RETURN(const bool is_beside, AreOfThisMachine(head));
  if (is_beside) return is_told ? options.listen : AtAnyPort(head);
  return absl::InvalidArgumentError(absl::StrFormat(
      "--listen: found %s, expected the HOST:PORT by which others reach shard %d: "
      "cluster.address, %s, is of another machine",
      is_told ? absl::StrCat("\"", options.listen, "\", which only this machine reaches")
              : "nothing",
      options.shard, coordinator));
}

// Takes part in the job's terms, one after the other, at the same address.
absl::Status RunShard(const proto::Job& job, const ServerOptions& options,
                      const std::string& job_digest, const Log& log, SignalWatcher* signals) {
  constexpr absl::Duration kBetweenTries = absl::Milliseconds(200);
  RUBATO_ASSIGN_OR_RETURN(std::string listen, FindListen(job, options));
  absl::Status lost;  // why it takes part again
  absl::Time give_up = absl::InfiniteFuture();
  uint32_t last_term = 0;
  ShardHost::Remains remains;
  while (true) {
    ShardTerm term(job, options, job_digest, log, signals, last_term, std::move(remains));
    const absl::Status status = term.Serve(listen);
    // That it was left alone says more than that nobody came.
    if (!term.goes_back()) return absl::IsDeadlineExceeded(status) && !lost.ok() ? lost : status;
    // One that came when the term was over was heard by nobody.
    if (const int signal = signals->signal(); signal != 0) return InterruptedBy(signal);
    listen = term.address();
    remains = term.TakeRemains();
    if (term.took_part()) last_term = term.term();
    if (term.took_part() || lost.ok()) {
      lost = status;
      give_up = MonotonicNow() + absl::Seconds(job.cluster().start_timeout());
      log.Warning("registers again", {{"reason", status.message()}});
    } else if (MonotonicNow() >= give_up) {
      return status;
    } else {
      absl::SleepFor(kBetweenTries);
    }
  }
}

// Of a flag that may be empty.
absl::Status CheckAddresses(absl::string_view flag, const std::string& text,
                            absl::StatusOr<std::vector<HostPort>> parse(absl::string_view)) {
  const absl::Status status = text.empty() ? absl::OkStatus() : parse(text).status();
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

// A shard tells others where it listens, unless it is told what to tell.
absl::Status CheckAdvertised(const ServerOptions& options) {
  RUBATO_RETURN_IF_ERROR(CheckAddresses("--listen", options.listen, ParseAddresses));
  RUBATO_RETURN_IF_ERROR(CheckAddresses("--advertise", options.advertise, ParseReachableAddresses));
  if (options.coordinator || options.listen.empty() || !options.advertise.empty()) {
    return absl::OkStatus();
  }
  RUBATO_ASSIGN_OR_RETURN(const std::vector<HostPort> listen, ParseAddresses(options.listen));
  if (std::none_of(listen.begin(), listen.end(), IsWildcard)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--listen: found \"", options.listen,
                   "\", all addresses of this host, expected beside it --advertise HOST:PORT, by "
                   "which others reach the shard"));
}

absl::Status RunCoordinator(const proto::Job& job, ServerOptions options,
                            const std::string& job_digest, const Log& log, SignalWatcher* signals) {
  if (options.leaves) {
    RUBATO_ASSIGN_OR_RETURN(const bool is_over, HasEndedWell(options.run_dir, job_digest));
    if (is_over) return TellOfEnd(job, options, job_digest, log, signals);
  }
  ShardHost::Remains remains;
  while (true) {
    RUBATO_ASSIGN_OR_RETURN(
        std::unique_ptr<CoordinatorServer> server,
        CoordinatorServer::Create(job, options, job_digest, &log, std::move(remains)));
    const absl::Status status = server->Run(signals);
    if (!server->goes_back()) return status;
    // One that came when the term was over was heard by nobody. One that comes before the next
    // term listens ends the process at once: all is on the disk.
    signals->OnSignal(nullptr);
    if (const int signal = signals->signal(); signal != 0) return InterruptedBy(signal);
    options.run_dir = server->run_dir();
    options.listen = server->address();
    remains = server->TakeRemains();
  }
}

}  // namespace

absl::Status RunServer(const proto::Job& job, const ServerOptions& options,
                       SignalWatcher* signals) {
  const int servers = job.cluster().servers();
  const bool is_dedicated = job.cluster().dedicated_coordinator();
  if (options.coordinator && options.shard >= 0) {
    return absl::InvalidArgumentError(
        "--coordinator and --shard exclude one another: a process of its own coordinates the job");
  }
  if (options.coordinator && !is_dedicated) {
    return absl::InvalidArgumentError(
        "--coordinator: shard 0 coordinates this job, whose cluster.dedicated_coordinator is "
        "false");
  }
  if (!options.coordinator && options.shard == ServerOptions::kNoShard) {
    return absl::InvalidArgumentError(is_dedicated ? "--shard K or --coordinator is required"
                                                   : "--shard is required");
  }
  if (!options.coordinator && (options.shard < 0 || options.shard >= servers)) {
    return absl::OutOfRangeError(
        absl::StrFormat("--shard: found %d, expected 0 to %d: cluster.servers is %d", options.shard,
                        servers - 1, servers));
  }
  RUBATO_RETURN_IF_ERROR(CheckAdvertised(options));
  const Log log(options.coordinator ? "coordinator" : "server", options.shard,
                static_cast<LogLevel>(job.log().level()),
                static_cast<LogFormat>(job.log().format()));
  const std::string job_digest = JobDigest(job);
  if (options.coordinator || (options.shard == 0 && !is_dedicated)) {
    return RunCoordinator(job, options, job_digest, log, signals);
  }
  return RunShard(job, options, job_digest, log, signals);
}

}  // namespace rubato
