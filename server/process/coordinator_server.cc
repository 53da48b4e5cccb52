#include "server/process/coordinator_server.h"

#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/exit_code.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/job/job.h"
#include "server/run/journal.h"
#include "server/run/run_state.h"

namespace rubato {
namespace {

constexpr int64_t kMaxJournal = 64 << 20;  // bytes: views of three workers are some 200,000

// Whether the file has these contents. A later term finds what the first has written: it need not
// write it again, on a disk that may be full.
bool Holds(const std::string& path, const std::string& contents) {
  const absl::StatusOr<std::string> there = ReadSmallFile(path);
  return there.ok() && *there == contents;
}

// None if nothing is to be recorded.
absl::StatusOr<std::unique_ptr<RecordingWriter>> RecordCoordinator(const proto::Job& job,
                                                                   const ServerOptions& options,
                                                                   const std::string& job_digest,
                                                                   const Coordinator::Begin& begin,
                                                                   absl::Time now, const Log& log) {
  if (options.record.empty()) return nullptr;
  proto::RecordHeader header = MakeRecordHeader(job, job_digest);
  header.set_begin_nanos(absl::ToUnixNanos(now));
  if (begin.resume.has_value()) *header.mutable_resume() = *begin.resume;
  header.set_initial(begin.initial);
  header.set_last_checkpoint(begin.path);
  header.set_shared_checkpoint(begin.shared_path);
  header.set_restore_key(begin.restore_key);
  *header.mutable_state() = begin.state;
  header.set_stood_still_nanos(absl::ToInt64Nanoseconds(begin.stood_still));
  const std::string path = CoordinatorRecording(options.record);
  return RecordingWriter::Create(begin.state.term() > 1 ? NextRecording(path) : path, header, &log);
}

// The job has ended well.
void TellOfEnd(SignalWatcher* signals, const Log& log, ClusterService* service) {
  if (const int untold = service->untold(); untold > 0) {
    log.Info("the training is over; tells those that come late", {{"missing", untold}});
  }
  signals->OnSignal([](int) {});
  service->TellOfEnd(kTellPatience, [signals] { return signals->signal() != 0; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Create(
    const proto::Job& job, const ServerOptions& options, const std::string& job_digest,
    const Log* log, ShardHost::Remains remains) {
  RUBATO_ASSIGN_OR_RETURN(TermBegin term, FindTermBegin(job, options, job_digest, *log));
  std::unique_ptr<RecordingWriter> shard_recording;
  if (!options.coordinator) {
    RUBATO_ASSIGN_OR_RETURN(shard_recording,
                            RecordShard(job, options, job_digest, remains.kept, *log));
  }
  const absl::Time now = MonotonicNow();
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<RecordingWriter> recording,
                          RecordCoordinator(job, options, job_digest, term.begin, now, *log));
  return std::unique_ptr<CoordinatorServer>(
      new CoordinatorServer(job, options, job_digest, log, std::move(term), now,
                            std::move(shard_recording), std::move(recording), std::move(remains)));
}

CoordinatorServer::CoordinatorServer(const proto::Job& job, const ServerOptions& options,
                                     const std::string& job_digest, const Log* log, TermBegin term,
                                     absl::Time now,
                                     std::unique_ptr<RecordingWriter> shard_recording,
                                     std::unique_ptr<RecordingWriter> recording,
                                     ShardHost::Remains remains)
    : job_(job),
      options_(options),
      job_digest_(job_digest),
      log_(*log),
      begin_(std::move(term.begin)),
      initial_file_(std::move(term.initial_file)),
      state_(begin_.state),
      lock_(std::move(term.lock)),
      registration_(ShardRegistration(job_digest, 0, remains.kept)),
      service_(Coordinator(job, job_digest, kVersion, begin_, now), std::move(recording), Outlets(),
               log, options.connection),
      folder_(std::move(term.folder)) {
  if (options.coordinator) return;
  host_.emplace(
      job, job_digest, options.connection, log,
      [this](const proto::PeerMessage& message) {
        service_.Post(coordinator::FromPeer{kOwnShard, message});
      },
      std::move(shard_recording), std::move(remains));
}

CoordinatorServer::~CoordinatorServer() { Stop(); }

void CoordinatorServer::Stop() {  // before the service goes
  if (files_.has_value()) files_->StopRestoring();
  watch_.reset();
  if (host_.has_value()) host_->Stop();
  if (listener_.has_value()) listener_->Shutdown();
  service_.Stop();
}

ShardHost::Remains CoordinatorServer::TakeRemains() {
  Stop();
  if (!host_.has_value()) return {};
  return host_->TakeRemains();
}

absl::Status CoordinatorServer::Listen() {
  const std::string& listen = options_.listen.empty() ? job_.cluster().address() : options_.listen;
  const auto ask = [this](std::shared_ptr<void> asked) { service_.Ask(std::move(asked)); };
  if (host_.has_value()) {
    RUBATO_RETURN_IF_ERROR(host_->Start(
        0, listen,
        [this](grpc::ServerBuilder* builder) {
          service_.Register(ClusterService::Beside::kDataService, builder);
        },
        ask));
    service_.Start();
    return absl::OkStatus();
  }
  RUBATO_ASSIGN_OR_RETURN(
      listener_,
      Listener::Listen(
          listen, options_.connection, [this](const std::string& text) { log_.Warning(text); },
          [this](grpc::ServerBuilder* builder) {
            service_.Register(ClusterService::Beside::kNothing, builder);
          },
          Accepting::kLater));
  service_.Start();
  watch_.emplace(
      options_.connection.lease,
      [ask](std::function<void()> answer) {
        ask(std::shared_ptr<void>(nullptr, [answer](void*) { answer(); }));
      },
      [this] { OnStuck(); });
  return absl::OkStatus();
}

void CoordinatorServer::OnStuck() {
  log_.Fatal(absl::DeadlineExceededError(absl::StrFormat(
      "the coordinator is stuck: it has done nothing for most of cluster.lease (%s)",
      absl::FormatDuration(options_.connection.lease))));
  std::_Exit(kExitFailure);
}

void CoordinatorServer::OnSignal(int signal) {
  if (!options_.leaves) {
    files_->GiveUp();
    service_.Post(coordinator::StopRequested{InterruptedBy(signal), ""});
    return;
  }
  log_.Info("leaves the job to its successor", {{"reason", InterruptedBy(signal).message()}});
  if (service_.AwaitCheckpointOrEnd(kLeavePatience)) return;
  std::_Exit(ExitCode(InterruptedBy(signal)));  // as a death, of which everything recovers
}

absl::Status CoordinatorServer::Run(SignalWatcher* signals) {
  RUBATO_RETURN_IF_ERROR(Listen());
  // Nothing is written for a server that cannot listen, and callers wait until there are files to
  // write to.
  RUBATO_RETURN_IF_ERROR(OpenFiles());
  log_.Info("listening", {{"address", address()}, {"run", folder_.path()}});
  signals->OnSignal([this](int signal) { OnSignal(signal); });
  service_.Post(coordinator::PartsFolder{files_->parts_folder()});
  host_.has_value() ? host_->Accept() : listener_->Accept();
  if (host_.has_value()) {
    proto::PeerMessage registration;
    *registration.mutable_registration() = registration_;
    registration.mutable_registration()->set_address(advertised());
    service_.Post(coordinator::FromPeer{kOwnShard, registration});
  }
  options_.on_ready(true);
  const absl::Status status = service_.Wait(Tasks());
  options_.on_ready(false);
  signals->OnSignal([](int) {});  // it ends anyway, and has files to finish
  if (host_.has_value()) host_->StopParts();
  files_->FlushLast();
  files_->RemovePartsFolder();
  if (const std::optional<int> lost = service_.lost_shard(); lost.has_value()) {
    goes_back_ = true;
    const int vain = service_.has_trained() ? 0 : begin_.state.terms_in_vain() + 1;
    KeepState([&](proto::RunState* state) {
      if (const std::optional<ClusterService::Place> place = service_.place()) {
        state->set_samples(place->samples);
        state->set_seconds(place->seconds);
      }
      state->set_reason(std::string(status.message()));
      state->set_lost_shard(*lost);
      state->set_terms_in_vain(vain);
    });
    return status;
  }
  // A successor is to go on from the last checkpoint where there was no place for the result.
  const bool is_for_successor = options_.leaves && files_->lacks_result();
  if (!status.ok() && has_view_ && !is_for_successor) {
    KeepState([&](proto::RunState* state) {
      if (absl::IsCancelled(status)) {
        state->set_interrupted(true);
      } else {
        state->set_ended(std::string(status.message()));
      }
    });
  }
  if (const Summary summary = service_.summary(); !summary.diverged.empty()) {
    const absl::Status written = files_->WriteSummary(summary);
    if (!written.ok()) log_.Warning(written.message());
  }
  if (!status.ok() && !has_view_ && is_first_term()) folder_.Abandon();
  if (status.ok() && options_.leaves) TellOfEnd(signals, log_, &service_);
  return status;
}

absl::Status TellOfEnd(const proto::Job& job, const ServerOptions& options,
                       const std::string& job_digest, const Log& log, SignalWatcher* signals) {
  log.Info("the job has ended well: its result is there", {{"run", options.run_dir}});
  Coordinator::Begin begin;
  begin.is_over = true;
  ClusterService service(Coordinator(job, job_digest, kVersion, begin, MonotonicNow()), nullptr,
                         ClusterService::Outlets(), &log, options.connection);
  RUBATO_ASSIGN_OR_RETURN(
      Listener listener,
      Listener::Listen(
          options.listen.empty() ? job.cluster().address() : options.listen, options.connection,
          [&log](const std::string& text) { log.Warning(text); },
          [&service](grpc::ServerBuilder* builder) {
            service.Register(ClusterService::Beside::kNothing, builder);
          },
          Accepting::kLater));
  service.Start();
  listener.Accept();
  TellOfEnd(signals, log, &service);
  listener.Shutdown();
  service.Stop();
  return absl::OkStatus();
}

absl::Status CoordinatorServer::OpenFiles() {
  if (is_first_term()) {
    RUBATO_ASSIGN_OR_RETURN(folder_, OpenRunFolder(job_, options_, folder_));
    RUBATO_ASSIGN_OR_RETURN(lock_, FolderLock::Take(folder_.path()));
  } else {
    folder_.RemoveUnfinished();
  }
  // From here on the term's number is taken, whoever dies; until it begins the job is where the
  // term before ended.
  KeepState(
      [this](proto::RunState* state) {
        if (is_first_term()) {
          state->set_samples(begin_.resume.has_value() ? begin_.resume->samples() : 0);
        }
        state->clear_reason();
        state->clear_lost_shard();
        state->clear_interrupted();
      },
      WriteFirstRunState);
  RUBATO_ASSIGN_OR_RETURN(
      metrics_, MetricsRecorder::Create(folder_, job_.metrics().tensorboard(),
                                        /*goes_on=*/!is_first_term(), absl::Now(), &log_));
  RUBATO_ASSIGN_OR_RETURN(journal_, RecordFile::OpenLines(folder_.ViewsFile(), kMaxJournal));
  RUBATO_RETURN_IF_ERROR(WriteKeys());
  ConnectionOptions connection = options_.connection;
  if (host_.has_value()) {
    connection.own_address = advertised();
    connection.own_channel = host_->OwnChannel();
  }
  files_.emplace(job_, job_digest_, connection, folder_, &log_,
                 /*uses_other_disk=*/!options_.leaves);
  if (!is_first_term()) {
    files_->KeepWritten();
    files_->RemovePartsFolder();  // of a term that was killed
  }
  const std::string listens = address() + "\n";
  if (Holds(folder_.AddressFile(), listens)) return absl::OkStatus();
  return WriteFileAtomically(folder_.AddressFile(), listens);
}

absl::Status CoordinatorServer::WriteKeys() {
  const Credentials& credentials = options_.connection.credentials;
  const std::optional<JobKey> operators = credentials.KeyOf(Role::kOperator);
  const std::optional<JobKey> workers = credentials.KeyOf(Role::kWorker);
  if (!operators.has_value() || !workers.has_value()) {
    if (credentials.asks_callers()) return absl::OkStatus();  // for certificates: there are no keys
    RUBATO_ASSIGN_OR_RETURN(std::string token, OpenToken(folder_.TokenFile()));
    service_.SetToken(std::move(token));
    return absl::OkStatus();
  }
  const auto keep = [](const std::string& path, const JobKey& key) {
    const std::string text = key.ToText() + "\n";
    return Holds(path, text) ? absl::OkStatus() : WritePrivateFile(path, text);
  };
  RUBATO_RETURN_IF_ERROR(keep(folder_.TokenFile(), *operators));
  return keep(folder_.WorkerKeyFile(), *workers);
}

ClusterService::Outlets CoordinatorServer::Outlets() {
  ClusterService::Outlets outlets;
  outlets.metrics = [this](const MetricsLine& line) {
    const bool is_written = metrics_->Record(line, absl::Now());
    files_->OnMetrics(line);
    if (line.kind != MetricsLine::Kind::kTrain) return;
    const bool was_written = std::exchange(last_is_written_, is_written);
    if (std::exchange(has_trained_, true) && is_written && was_written) return;
    KeepState([&](proto::RunState* state) {
      state->clear_samples();  // metrics.jsonl has them
      state->clear_seconds();
      if (!is_written) {
        state->set_samples(line.samples);
        state->set_seconds(line.time);
      }
      state->clear_terms_in_vain();
    });
  };
  outlets.journal = [this](const coordinator::Journal& journal) {
    if (journal.goes_back && !is_first_term()) {
      const int64_t step = begin_.resume.has_value() ? begin_.resume->step() : 0;
      files_->GoBack(step);
      metrics_->GoBack(step);
    }
    OnView(journal.view, journal.reason);
  };
  outlets.keep = [this](const proto::Lasting& lasting) {
    KeepState([&](proto::RunState* state) {
      *state->mutable_lasting() = lasting;
      if (lasting.begun_term() == state->term() && !has_trained_) {
        state->set_samples(lasting.begun_samples());
      }
    });
  };
  outlets.data = [this](const proto::DataDescription& data) {
    const absl::Status status = files_->SaveData(data);
    if (!status.ok()) log_.Warning(status.message());
  };
  outlets.to_own_shard = [this](const proto::CoordinatorMessage& message) {
    host_->OnMessage(message);
  };
  return outlets;
}

void CoordinatorServer::KeepState(absl::FunctionRef<void(proto::RunState*)> change,
                                  decltype(WriteRunState) write) {
  absl::MutexLock lock(&state_mutex_);
  change(&state_);
  const absl::Status status = write(folder_, state_);
  // Of a folder that is gone the next checkpoint or the result tells.
  if (!status.ok() && !folder_.IsRemoved()) log_.Warning(status.message());
}

void CoordinatorServer::FlushBegun() {
  proto::RunState begun;
  {
    absl::MutexLock lock(&state_mutex_);
    if (has_flushed_begun_ || state_.lasting().begun_term() != state_.term()) return;
    begun = state_;
  }
  // Nobody waits for this one's disk. If it fails, the next checkpoint tries it again.
  const absl::Status status = WriteTermState(folder_, begun);
  if (!status.ok() && !folder_.IsRemoved()) log_.Warning(status.message());
  absl::MutexLock lock(&state_mutex_);
  has_flushed_begun_ = status.ok();
}

void CoordinatorServer::OnView(const proto::View& view, const std::string& reason) {
  log_.Info(absl::StrCat("view ", view.number(), ": ", reason), {{"workers", view.members_size()}});
  if (!std::exchange(has_view_, true)) {
    const absl::Status latest = folder_.BecomeLatest();
    if (!latest.ok()) log_.Warning(latest.message());
    files_->MakePartsFolder();
  }
  const absl::Status status = journal_->Append(JournalLine(view, reason, absl::Now()));
  if (!status.ok()) log_.Warning(status.message());
}

ClusterService::Tasks CoordinatorServer::Tasks() {
  ClusterService::Tasks tasks;
  tasks.collect = [this](const proto::View& view, int64_t version, const Summary& summary) {
    return files_->WriteResult(view, version, summary);
  };
  tasks.checkpoint = [this](const proto::View& view, const coordinator::WriteCheckpoint& write) {
    absl::StatusOr<std::string> path =
        files_->WriteSnapshot(view, write.snapshot, write.manifest, write.unseen, write.failure);
    FlushBegun();
    return path;
  };
  tasks.restore = [this](const proto::View& view, const coordinator::Restore& restore) {
    const auto on_failure = [this](const absl::Status& status) {
      service_.Post(coordinator::RestoreBroke{status});
    };
    return begin_.resume.has_value()
               ? files_->Restore(view, restore.shards, begin_.path, *begin_.resume, restore.slots,
                                 on_failure)
               : files_->SendInitial(view, restore.shards, initial_file_, on_failure);
  };
  tasks.save_values = [this](const coordinator::SaveValues& save) {
    initial_file_ = folder_.InitialFile();
    return files_->SaveInitial(save.layout, save.begin, save.values, save.is_last);
  };
  tasks.rest = [this] {
    FlushBegun();
    files_->FlushLast();
  };
  tasks.stop = [this] { files_->StopCollecting(); };
  return tasks;
}

}  // namespace rubato
