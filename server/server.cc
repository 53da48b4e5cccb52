#include "server/server.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/address.h"
#include "common/job/job.h"
#include "common/log.h"
#include "common/run_folder.h"
#include "common/status.h"
#include "common/version.h"
#include "common/wire/channel.h"
#include "common/wire/control_client.h"
#include "server/cluster_service.h"
#include "server/collect.h"
#include "server/coordinator.h"
#include "server/data_service.h"
#include "server/metrics_recorder.h"
#include "server/shard_engine.h"

namespace rubato {
namespace {

// How long the shards have to send the final parameters.
constexpr absl::Duration kCollectTimeout = absl::Minutes(2);

// The shard itself: its engine behind its data service, on one gRPC server.
class ShardHost {
 public:
  ShardHost(const proto::Job& job, const std::string& job_digest, const Log* log)
      : job_(job), data_(job_digest, log) {}

  ~ShardHost() { Stop(); }

  // Breaks all calls and takes no more.
  void Stop() {
    if (server_ != nullptr) server_->Shutdown(absl::ToChronoTime(absl::Now()));
    data_.Stop();
  }

  // Listens at `listen`, with `cluster` beside the data service if it is given. Unavailable if the
  // address is in use.
  absl::Status Start(int shard, const std::string& listen, grpc::Service* cluster) {
    RUBATO_ASSIGN_OR_RETURN(engine_, ShardEngine::Create(job_, shard,
                                                         [this](uint64_t stream, const Frame& frame,
                                                                const Payload& payload) {
                                                           data_.Send(stream, frame, payload);
                                                         }));
    RUBATO_ASSIGN_OR_RETURN(HostPort address, ParseAddress(listen));
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    int port = 0;
    builder.AddListeningPort(ToString(address), grpc::InsecureServerCredentials(), &port);
    data_.Register(&builder);
    if (cluster != nullptr) builder.RegisterService(cluster);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(
          absl::StrFormat("cannot listen at %s: the port is in use (by another job? port 0 takes "
                          "any free one), or the "
                          "address is not of this machine",
                          listen));
    }
    data_.Start(engine_.get());
    address.port = port;
    address_ = ToString(address);
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

  // What the coordinator asks of a shard; the answer goes to `reply`, from the data service's
  // thread. Never blocks.
  void OnMessage(const proto::CoordinatorMessage& message,
                 std::function<void(const proto::PeerMessage&)> reply) {
    if (message.has_view()) {
      data_.Post([this, view = message.view(), reply = std::move(reply)] {
        proto::PeerMessage answer;
        const absl::Status status = engine_->Open(view);
        if (status.ok()) {
          answer.mutable_shard_opened()->set_view(view.number());
        } else {
          answer.mutable_failure()->set_exit_code(ExitCode(status));
          answer.mutable_failure()->set_reason(std::string(status.message()));
        }
        reply(answer);
      });
    } else if (message.has_report_request()) {
      data_.Post([this, reply = std::move(reply)] {
        proto::PeerMessage answer;
        *answer.mutable_shard_report() = engine_->Report();
        reply(answer);
      });
    }
  }

 private:
  const proto::Job job_;
  std::unique_ptr<ShardEngine> engine_;
  DataService data_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

proto::Registration MakeRegistration(const std::string& job_digest, int shard,
                                     const std::string& address) {
  proto::Registration registration;
  registration.set_version(kVersion);
  registration.set_job_digest(job_digest);
  registration.set_address(address);
  registration.set_shard(shard);
  registration.set_process(ProcessDescription());
  return registration;
}

// A new folder under runs/, or options.run_dir, which exists. AlreadyExists if that holds a run's
// results.
absl::StatusOr<RunFolder> OpenRunFolder(const proto::Job& job, const ServerOptions& options) {
  const std::string& run_dir = options.run_dir;
  if (run_dir.empty()) {
    RUBATO_ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Create(job.name(), "", absl::Now()));
    RUBATO_RETURN_IF_ERROR(
        WriteFileAtomically(folder.JobFile(), ResolvedYaml(job, options.sources)));
    return folder;
  }
  RunFolder folder(run_dir);
  for (const std::string& file :
       {folder.AddressFile(), folder.SummaryFile(), folder.ParametersFile()}) {
    if (access(file.c_str(), F_OK) == 0) {
      return absl::AlreadyExistsError(
          absl::StrCat("--run-dir ", run_dir, " holds a run already: ", file, " exists"));
    }
  }
  if (access(folder.JobFile().c_str(), F_OK) != 0) {
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder.JobFile(), ResolvedYaml(job)));
  }
  return folder;
}

absl::Status RunCoordinator(const proto::Job& job, const ServerOptions& options,
                            const std::string& job_digest, const Log& log, SignalWatcher* signals) {
  std::optional<MetricsRecorder> metrics;
  const auto on_metrics = [&metrics](const MetricsLine& line) {
    metrics->Record(line, absl::Now());
  };
  ShardHost host(job, job_digest, &log);
  std::function<void(const proto::PeerMessage&)> from_own_shard;
  ClusterService service(
      Coordinator(job, job_digest, kVersion, absl::Now()), on_metrics, &log,
      [&](const proto::CoordinatorMessage& message) { host.OnMessage(message, from_own_shard); });
  from_own_shard = [&service](const proto::PeerMessage& message) { service.FromOwnShard(message); };
  const absl::Cleanup stop = [&host] { host.Stop(); };  // before the service goes
  const std::string listen = options.listen.empty() ? job.cluster().address() : options.listen;
  RUBATO_RETURN_IF_ERROR(host.Start(0, listen, &service));
  // Nothing is written for a server that cannot listen; training begins only when this shard has
  // registered.
  RUBATO_ASSIGN_OR_RETURN(const RunFolder folder, OpenRunFolder(job, options));
  RUBATO_ASSIGN_OR_RETURN(
      metrics, MetricsRecorder::Create(folder, job.metrics().tensorboard(), absl::Now(), &log));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder.AddressFile(), host.address() + "\n"));
  log.Info("listening", {{"address", host.address()}, {"run", folder.path()}});
  const std::string advertise = options.advertise.empty() ? host.address() : options.advertise;

  signals->OnSignal([&service](int signal) { service.Fail(InterruptedBy(signal)); });
  proto::PeerMessage registration;
  *registration.mutable_registration() = MakeRegistration(job_digest, 0, advertise);
  service.FromOwnShard(registration);
  const absl::Status status = service.Wait([&](const proto::View& view, int64_t version,
                                               const Summary& summary) -> absl::Status {
    const FlatSpace space(ValueCount(view.layout()), job.wire().chunk() / sizeof(float),
                          view.shards_size());
    RUBATO_ASSIGN_OR_RETURN(std::vector<float> parameters,
                            CollectParameters(view, space, version, job_digest, kCollectTimeout));
    RUBATO_ASSIGN_OR_RETURN(std::string digest,
                            WriteParameters(folder.ParametersFile(), view.layout(), parameters));
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder.SummaryFile(), ToJson(summary, digest)));
    LogFields fields = {{"test_loss", summary.test_loss},
                        {"samples_per_second", summary.samples_per_second},
                        {"digest", digest},
                        {"run", folder.path()}};
    if (summary.test_accuracy.has_value()) {
      fields.insert(fields.begin(), {"test_accuracy", *summary.test_accuracy});
    }
    log.Info("done", fields);
    return absl::OkStatus();
  });
  signals->OnSignal(nullptr);
  return status;
}

absl::Status RunShard(const proto::Job& job, const ServerOptions& options,
                      const std::string& job_digest, const Log& log, SignalWatcher* signals) {
  absl::Mutex mutex;
  std::optional<absl::Status> end;
  const auto finish = [&](const absl::Status& status) {
    absl::MutexLock lock(&mutex);
    if (!end.has_value()) end = status;
  };
  std::unique_ptr<ControlClient> control;
  ShardHost host(job, job_digest, &log);
  RUBATO_RETURN_IF_ERROR(
      host.Start(options.shard, options.listen.empty() ? "127.0.0.1:0" : options.listen, nullptr));
  log.Info("listening", {{"address", host.address()}});

  RUBATO_ASSIGN_OR_RETURN(
      control, ControlClient::Connect(
                   job.cluster().address(), absl::Seconds(job.cluster().start_timeout()),
                   MakeRegistration(job_digest, options.shard,
                                    options.advertise.empty() ? host.address() : options.advertise),
                   [signals] { return signals->signal() != 0; }));
  signals->OnSignal([&finish](int signal) { finish(InterruptedBy(signal)); });
  ControlCallbacks callbacks;
  callbacks.on_message = [&](const proto::CoordinatorMessage& message) {
    if (message.has_stop()) {
      finish(FromStop(message.stop()));
    } else {
      host.OnMessage(message,
                     [&control](const proto::PeerMessage& reply) { control->Send(reply); });
    }
  };
  callbacks.on_failure = finish;
  control->Start(std::move(callbacks));
  const auto ended = [&] { return end.has_value(); };
  mutex.LockWhen(absl::Condition(&ended));
  const absl::Status status = *end;
  mutex.Unlock();
  signals->OnSignal(nullptr);
  host.Stop();
  control.reset();  // before the host, which its thread calls
  return status;
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
  if (job.model().has_init_from()) {
    return absl::FailedPreconditionError(
        "model.init_from: found a file, expected none: this build's servers only draw parameters");
  }
  const Log log("server", options.shard, static_cast<LogLevel>(job.log().level()),
                static_cast<LogFormat>(job.log().format()));
  const std::string job_digest = JobDigest(job);
  return options.shard == 0 ? RunCoordinator(job, options, job_digest, log, signals)
                            : RunShard(job, options, job_digest, log, signals);
}

}  // namespace rubato
