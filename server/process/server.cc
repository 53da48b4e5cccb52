#include "server/process/server.h"

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
#include "common/base/log.h"
#include "common/base/process_exit.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/files/checkpoint.h"
#include "common/files/record_file.h"
#include "common/files/resume_point.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "common/space/job_codec.h"
#include "common/wire/address.h"
#include "common/wire/channel.h"
#include "common/wire/control_client.h"
#include "common/wire/data_service.h"
#include "common/wire/listener.h"
#include "common/wire/shared_arena.h"
#include "common/wire/stream_memory.h"
#include "server/coordinator/coordinator.h"
#include "server/process/cluster_service.h"
#include "server/run/journal.h"
#include "server/run/metrics_recorder.h"
#include "server/run/recording.h"
#include "server/run/resumed_slots.h"
#include "server/run/run_files.h"
#include "server/shard/float_values.h"
#include "server/shard/shard_protocol.h"
#include "server/shard/shard_record.h"

namespace rubato {
namespace {

// The shard itself: its protocol behind its data service, on one gRPC server.
class ShardHost {
 public:
  // Says something to the coordinator.
  using Reporter = std::function<void(const proto::PeerMessage& message)>;

  // `recording` may be null.
  ShardHost(const proto::Job& job, const std::string& job_digest, const Log* log, Reporter report,
            std::unique_ptr<RecordingWriter> recording)
      : job_(job),
        report_(std::move(report)),
        recording_(std::move(recording)),
        arena_(ArenaFor(job, log)),
        data_(job_digest, SharesMemory(job), log, arena_) {}

  ~ShardHost() { Stop(); }

  // Breaks all calls and takes no more.
  void Stop() {
    if (listener_.has_value()) listener_->Shutdown();
    data_.Stop();
  }

  // Listens at `listen`, with `cluster` beside the data service if it is given. Unavailable if the
  // address is in use.
  absl::Status Start(int shard, const std::string& listen, grpc::Service* cluster) {
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<ShardValues> values,
                            FloatValues::Create(job_, shard, arena_));
    const auto sink = [this](const ShardOutcome& outcome) {
      if (const auto* sent = std::get_if<shard_outcome::Sent>(&outcome)) {
        data_.Send(sent->stream, sent->frame, sent->payload);
      } else if (const auto* said = std::get_if<shard_outcome::Said>(&outcome)) {
        report_(said->message);
      }
    };
    shard_.emplace(std::move(values), RecordingSink(sink, recording_.get()));
    RUBATO_ASSIGN_OR_RETURN(
        listener_, Listener::Listen(listen, Credentials(), [&](grpc::ServerBuilder* builder) {
          data_.Register(builder);
          if (cluster != nullptr) builder->RegisterService(cluster);
        }));
    DataService::Callbacks callbacks;
    callbacks.on_frame = [this](uint64_t stream, const Frame& frame, const ReceivedValues& values) {
      return Handle(shard_event::Arrival{stream, frame, values});
    };
    callbacks.on_gone = [this](uint64_t stream) {
      Handle(shard_event::StreamGone{stream}).IgnoreError();
    };
    data_.Start(std::move(callbacks));
    return absl::OkStatus();
  }

  const std::string& address() const { return listener_->address(); }

  // What the coordinator asks of a shard; answers go to `report`, from the data service's thread.
  // Never blocks.
  void OnMessage(const proto::CoordinatorMessage& message) {
    data_.Post([this, message] { Handle(shard_event::Message{message}).IgnoreError(); });
  }

 private:
  absl::Status Handle(const ShardEvent& event) {
    return HandleAndRecord(event, &*shard_, recording_.get());
  }

  static std::shared_ptr<SharedArena> ArenaFor(const proto::Job& job, const Log* log) {
    if (!IsLent(SharesMemory(job), PullCodec(job), job.wire().chunk())) return nullptr;
    absl::StatusOr<std::shared_ptr<SharedArena>> arena = SharedArena::Create();
    if (arena.ok()) return *std::move(arena);
    log->Warning("lends no parameters to workers of this host",
                 {{"reason", arena.status().message()}});
    return nullptr;
  }

  const proto::Job job_;
  const Reporter report_;
  const std::unique_ptr<RecordingWriter> recording_;
  std::optional<ShardProtocol> shard_;  // once it has been started
  const std::shared_ptr<SharedArena> arena_;  // of the parameters; may be null
  DataService data_;
  std::optional<Listener> listener_;
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

proto::RecordHeader MakeRecordHeader(const proto::Job& job, const std::string& job_digest) {
  proto::RecordHeader header;
  header.set_version(kVersion);
  header.set_job_digest(job_digest);
  *header.mutable_job() = job;
  return header;
}

// None if nothing is to be recorded.
absl::StatusOr<std::unique_ptr<RecordingWriter>> RecordShard(const proto::Job& job,
                                                             const ServerOptions& options,
                                                             const std::string& job_digest,
                                                             const Log& log) {
  if (options.record.empty()) return nullptr;
  proto::RecordHeader header = MakeRecordHeader(job, job_digest);
  header.set_shard(options.shard);
  return RecordingWriter::Create(ShardRecording(options.record, options.shard), header, &log);
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
  std::optional<proto::Manifest> resume;
  std::string checkpoint;
  std::vector<std::string> warnings;
  RUBATO_ASSIGN_OR_RETURN(checkpoint, ResumePoint(job, options.resume, "runs", &warnings));
  for (const std::string& warning : warnings) log.Warning(warning);
  if (!checkpoint.empty()) {
    RUBATO_ASSIGN_OR_RETURN(resume, CheckCheckpoint(checkpoint));
    RUBATO_ASSIGN_OR_RETURN(const std::string note, MatchSlots(job, &*resume));
    if (!note.empty()) log.Warning(note);
  }
  const bool initial = !resume.has_value() && !job.model().init_from().empty();
  std::optional<MetricsRecorder> metrics;
  std::optional<RunFiles> files;
  std::optional<RecordFile> journal;
  std::optional<RunFolder> folder;
  ClusterService::Outlets outlets;
  outlets.metrics = [&metrics, &files](const MetricsLine& line) {
    metrics->Record(line, absl::Now());
    files->OnMetrics(line);
  };
  outlets.journal = [&, begun = false](const proto::View& view, const std::string& reason) mutable {
    log.Info(absl::StrCat("view ", view.number(), ": ", reason),
             {{"workers", view.members_size()}});
    if (!std::exchange(begun, true)) {
      const absl::Status latest = folder->BecomeLatest();
      if (!latest.ok()) log.Warning(latest.message());
    }
    const absl::Status status = journal->Append(JournalLine(view, reason, absl::Now()));
    if (!status.ok()) log.Warning(status.message());
  };
  ClusterService* service_pointer = nullptr;
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<RecordingWriter> shard_recording,
                          RecordShard(job, options, job_digest, log));
  ShardHost host(
      job, job_digest, &log,
      [&service_pointer](const proto::PeerMessage& message) {
        service_pointer->Post(coordinator::FromPeer{kOwnShard, message});
      },
      std::move(shard_recording));
  outlets.to_own_shard = [&host](const proto::CoordinatorMessage& message) {
    host.OnMessage(message);
  };
  const absl::Time begin = absl::Now();
  std::unique_ptr<RecordingWriter> recording;
  if (!options.record.empty()) {
    proto::RecordHeader header = MakeRecordHeader(job, job_digest);
    header.set_begin_nanos(absl::ToUnixNanos(begin));
    if (resume.has_value()) *header.mutable_resume() = *resume;
    header.set_initial(initial);
    header.set_last_checkpoint(checkpoint);
    RUBATO_ASSIGN_OR_RETURN(
        recording, RecordingWriter::Create(CoordinatorRecording(options.record), header, &log));
  }
  Coordinator core(job, job_digest, kVersion, {resume, checkpoint, initial}, begin);
  ClusterService service(std::move(core), std::move(recording), std::move(outlets), &log);
  service_pointer = &service;
  const absl::Cleanup stop = [&] {  // before the service goes
    if (files.has_value()) files->StopRestoring();
    host.Stop();
  };
  const std::string listen = options.listen.empty() ? job.cluster().address() : options.listen;
  RUBATO_RETURN_IF_ERROR(host.Start(0, listen, &service));
  // Nothing is written for a server that cannot listen; training begins only when this shard has
  // registered.
  RUBATO_ASSIGN_OR_RETURN(folder, OpenRunFolder(job, options));
  RUBATO_ASSIGN_OR_RETURN(
      metrics, MetricsRecorder::Create(*folder, job.metrics().tensorboard(), absl::Now(), &log));
  RUBATO_ASSIGN_OR_RETURN(journal, RecordFile::Open(folder->ViewsFile()));
  RUBATO_ASSIGN_OR_RETURN(std::string token, WriteToken(folder->TokenFile()));
  service.SetToken(std::move(token));
  files.emplace(job, job_digest, *folder, &log);
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder->AddressFile(), host.address() + "\n"));
  log.Info("listening", {{"address", host.address()}, {"run", folder->path()}});
  const std::string advertise = options.advertise.empty() ? host.address() : options.advertise;

  signals->OnSignal([&service](int signal) {
    service.Post(coordinator::StopRequested{InterruptedBy(signal), ""});
  });
  proto::PeerMessage registration;
  *registration.mutable_registration() = MakeRegistration(job_digest, 0, advertise);
  service.Post(coordinator::FromPeer{kOwnShard, registration});
  ClusterService::Tasks tasks;
  tasks.collect = [&files](const proto::View& view, int64_t version, const Summary& summary) {
    return files->WriteResult(view, version, summary);
  };
  tasks.checkpoint = [&files](const proto::View& view, uint32_t snapshot,
                              const proto::Manifest& manifest) {
    return files->WriteSnapshot(view, snapshot, manifest);
  };
  tasks.restore = [&](const proto::View& view) {
    const auto on_failure = [&service](const absl::Status& status) {
      service.Post(coordinator::Failed{status});
    };
    return initial ? files->SendInitial(view, job.model().init_from(), on_failure)
                   : files->Restore(view, checkpoint, *resume, on_failure);
  };
  const absl::Status status = service.Wait(tasks);
  signals->OnSignal(nullptr);
  return status;
}

absl::Status RunShard(const proto::Job& job, const ServerOptions& options,
                      const std::string& job_digest, const Log& log, SignalWatcher* signals) {
  absl::Mutex mutex;
  std::optional<absl::Status> end;
  absl::Status interrupted;
  absl::Time interrupt_deadline = absl::InfiniteFuture();
  const auto finish = [&](const absl::Status& status) {
    absl::MutexLock lock(&mutex);
    if (!end.has_value()) end = status;
  };
  std::unique_ptr<ControlClient> control;
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<RecordingWriter> shard_recording,
                          RecordShard(job, options, job_digest, log));
  ShardHost host(
      job, job_digest, &log,
      [&control](const proto::PeerMessage& message) { control->Send(message); },
      std::move(shard_recording));
  RUBATO_RETURN_IF_ERROR(
      host.Start(options.shard, options.listen.empty() ? "127.0.0.1:0" : options.listen, nullptr));
  log.Info("listening", {{"address", host.address()}});

  RUBATO_ASSIGN_OR_RETURN(
      control, ControlClient::Connect(
                   job.cluster().address(), absl::Seconds(job.cluster().start_timeout()),
                   MakeRegistration(job_digest, options.shard,
                                    options.advertise.empty() ? host.address() : options.advertise),
                   [signals] { return signals->signal() != 0; }));
  signals->OnSignal([&](int signal) {
    // The coordinator ends the job in order, or this process ends without it.
    proto::PeerMessage message;
    message.mutable_stop_request()->set_reason(std::string(InterruptedBy(signal).message()));
    control->Send(message);
    absl::MutexLock lock(&mutex);
    if (!end.has_value()) {
      interrupted = InterruptedBy(signal);
      interrupt_deadline = absl::Now() + kStopGrace;
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
  const auto ended = [&] { return end.has_value() || absl::Now() >= interrupt_deadline; };
  constexpr absl::Duration kTick = absl::Milliseconds(100);
  while (!mutex.LockWhenWithTimeout(absl::Condition(&ended), kTick)) mutex.Unlock();
  const absl::Status status = !interrupted.ok() ? interrupted : *end;
  mutex.Unlock();
  signals->OnSignal(nullptr);
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
  return options.shard == 0 ? RunCoordinator(job, options, job_digest, log, signals)
                            : RunShard(job, options, job_digest, log, signals);
}

}  // namespace rubato
