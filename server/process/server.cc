#include "server/process/server.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/base/log.h"
#include "common/base/monotonic.h"
#include "common/base/process_exit.h"
#include "common/base/status.h"
#include "common/job/job.h"
#include "common/wire/control_client.h"
#include "common/wire/heartbeat.h"
#include "server/process/coordinator_server.h"
#include "server/process/shard_host.h"

namespace rubato {
namespace {

absl::StatusOr<std::unique_ptr<ControlClient>> Register(const proto::Job& job,
                                                        const ServerOptions& options,
                                                        const std::string& job_digest,
                                                        const ShardHost& host,
                                                        const SignalWatcher& signals) {
  return ControlClient::Connect(
      job.cluster().address(), absl::Seconds(job.cluster().start_timeout()),
      ShardRegistration(job_digest, options.shard,
                        options.advertise.empty() ? host.address() : options.advertise),
      [&signals] { return signals.signal() != 0; }, options.connection);
}

std::unique_ptr<Heartbeat> StartHeartbeat(const proto::Job& job, const ServerOptions& options,
                                          const std::string& job_digest, const ShardHost& host) {
  proto::HeartbeatRequest who;
  who.set_job_digest(job_digest);
  who.set_shard(options.shard);
  return std::make_unique<Heartbeat>(
      job.cluster().address(), who, [&host] { return host.busy(); }, options.connection);
}

absl::Status RunShard(const proto::Job& job, const ServerOptions& options,
                      const std::string& job_digest, const Log& log, SignalWatcher* signals) {
  MonotonicMutex mutex;
  std::optional<absl::Status> end;
  absl::Status interrupted;
  absl::Time interrupt_deadline = absl::InfiniteFuture();
  const auto finish = [&](const absl::Status& status) {
    MonotonicLock lock(&mutex);
    if (!end.has_value()) end = status;
  };
  std::unique_ptr<ControlClient> control;
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<RecordingWriter> shard_recording,
                          RecordShard(job, options, job_digest, log));
  ShardHost host(
      job, job_digest, options.connection, &log,
      [&control](const proto::PeerMessage& message) { control->Send(message); },
      std::move(shard_recording));
  RUBATO_RETURN_IF_ERROR(
      host.Start(options.shard, options.listen.empty() ? "127.0.0.1:0" : options.listen, nullptr));
  log.Info("listening", {{"address", host.address()}});

  RUBATO_ASSIGN_OR_RETURN(control, Register(job, options, job_digest, host, *signals));
  signals->OnSignal([&](int signal) {
    // The coordinator ends the job in order, or this process ends without it.
    proto::PeerMessage message;
    message.mutable_stop_request()->set_reason(std::string(InterruptedBy(signal).message()));
    control->Send(message);
    MonotonicLock lock(&mutex);
    if (!end.has_value()) {
      interrupted = InterruptedBy(signal);
      interrupt_deadline = MonotonicNow() + kStopGrace;
    }
  });
  ControlCallbacks callbacks;
  callbacks.on_message = [&](const proto::CoordinatorMessage& message) {
    if (message.has_stop()) {
      finish(ToldToStop(message.stop().exit_code(), message.stop().reason(),
                        message.stop().refused()));
    } else {
      host.OnMessage(message);
    }
  };
  callbacks.on_failure = finish;
  control->Start(std::move(callbacks));
  std::unique_ptr<Heartbeat> heartbeat = StartHeartbeat(job, options, job_digest, host);
  const auto ended = [&] { return end.has_value() || MonotonicNow() >= interrupt_deadline; };
  constexpr absl::Duration kTick = absl::Milliseconds(100);
  mutex.Lock();
  while (!mutex.AwaitFor(absl::Condition(&ended), kTick)) {
  }
  const absl::Status status = !interrupted.ok() ? interrupted : *end;
  mutex.Unlock();
  signals->OnSignal(nullptr);
  heartbeat.reset();
  host.Stop();
  control.reset();  // before the host, which its thread calls
  return status;
}

// Of a flag that may be empty.
absl::Status CheckAddresses(absl::string_view flag, const std::string& text,
                            absl::StatusOr<std::vector<HostPort>> parse(absl::string_view)) {
  const absl::Status status = text.empty() ? absl::OkStatus() : parse(text).status();
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

}  // namespace

absl::Status RunServer(const proto::Job& job, const ServerOptions& options,
                       SignalWatcher* signals) {
  const int servers = job.cluster().servers();
  if (options.shard < 0 || options.shard >= servers) {
    return absl::OutOfRangeError(
        absl::StrFormat("--shard: found %d, expected 0 to %d: cluster.servers is %d", options.shard,
                        servers - 1, servers));
  }
  RUBATO_RETURN_IF_ERROR(CheckAddresses("--listen", options.listen, ParseAddresses));
  RUBATO_RETURN_IF_ERROR(CheckAddresses("--advertise", options.advertise, ParseReachableAddresses));
  const Log log("server", options.shard, static_cast<LogLevel>(job.log().level()),
                static_cast<LogFormat>(job.log().format()));
  const std::string job_digest = JobDigest(job);
  if (options.shard > 0) return RunShard(job, options, job_digest, log, signals);
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server,
                          CoordinatorServer::Create(job, options, job_digest, &log));
  return server->Run(signals);
}

}  // namespace rubato
