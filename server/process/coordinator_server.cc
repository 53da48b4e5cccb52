#include "server/process/coordinator_server.h"

#include <unistd.h>

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/files/checkpoint.h"
#include "common/files/resume_point.h"
#include "common/job/job.h"
#include "server/run/journal.h"
#include "server/run/resumed_slots.h"

namespace rubato {
namespace {

constexpr int64_t kMaxJournal = 64 << 20;  // bytes: views of three workers are some 200,000

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

// The checkpoint that the job goes on from, or its first parameters, if any.
absl::StatusOr<Coordinator::Begin> FindBegin(const proto::Job& job, const ServerOptions& options,
                                             const std::string& job_digest, const Log& log) {
  Coordinator::Begin begin;
  std::vector<std::string> warnings;
  RUBATO_ASSIGN_OR_RETURN(begin.path, ResumePoint(job, options.resume, "runs", &warnings));
  for (const std::string& warning : warnings) log.Warning(warning);
  if (!begin.path.empty()) {
    RUBATO_ASSIGN_OR_RETURN(begin.resume, CheckCheckpoint(begin.path));
    if (begin.resume->job_digest() != job_digest) {
      log.Info(
          absl::StrCat("goes on from ", begin.path, ", whose job has other settings than this"),
          {{"job_digest", begin.resume->job_digest()}});
    }
    RUBATO_ASSIGN_OR_RETURN(const std::string note, MatchSlots(job, &*begin.resume));
    if (!note.empty()) log.Warning(note);
  }
  std::random_device random;
  begin.restore_key = uint64_t{random()} << 32 | random() | 1;
  begin.initial = !begin.resume.has_value() && !job.model().init_from().empty();
  return begin;
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
  header.set_restore_key(begin.restore_key);
  return RecordingWriter::Create(CoordinatorRecording(options.record), header, &log);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Create(
    const proto::Job& job, const ServerOptions& options, const std::string& job_digest,
    const Log* log) {
  RUBATO_ASSIGN_OR_RETURN(Coordinator::Begin begin, FindBegin(job, options, job_digest, *log));
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<RecordingWriter> shard_recording,
                          RecordShard(job, options, job_digest, *log));
  const absl::Time now = MonotonicNow();
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<RecordingWriter> recording,
                          RecordCoordinator(job, options, job_digest, begin, now, *log));
  return std::unique_ptr<CoordinatorServer>(
      new CoordinatorServer(job, options, job_digest, log, std::move(begin), now,
                            std::move(shard_recording), std::move(recording)));
}

CoordinatorServer::CoordinatorServer(const proto::Job& job, const ServerOptions& options,
                                     const std::string& job_digest, const Log* log,
                                     Coordinator::Begin begin, absl::Time now,
                                     std::unique_ptr<RecordingWriter> shard_recording,
                                     std::unique_ptr<RecordingWriter> recording)
    : job_(job),
      options_(options),
      job_digest_(job_digest),
      log_(*log),
      begin_(std::move(begin)),
      host_(
          job, job_digest, options.connection, log,
          [this](const proto::PeerMessage& message) {
            service_.Post(coordinator::FromPeer{kOwnShard, message});
          },
          std::move(shard_recording)),
      service_(Coordinator(job, job_digest, kVersion, begin_, now), std::move(recording), Outlets(),
               log) {}

CoordinatorServer::~CoordinatorServer() {  // before the service goes
  if (files_.has_value()) files_->StopRestoring();
  host_.Stop();
}

absl::Status CoordinatorServer::Run(SignalWatcher* signals) {
  const std::string& listen = options_.listen.empty() ? job_.cluster().address() : options_.listen;
  RUBATO_RETURN_IF_ERROR(host_.Start(0, listen, &service_, [this](std::shared_ptr<void> asked) {
    service_.Ask(std::move(asked));
  }));
  // Nothing is written for a server that cannot listen; training begins only when this shard has
  // registered.
  RUBATO_RETURN_IF_ERROR(OpenFiles());
  log_.Info("listening", {{"address", host_.address()}, {"run", folder_->path()}});
  signals->OnSignal([this](int signal) {
    files_->GiveUp();
    service_.Post(coordinator::StopRequested{InterruptedBy(signal), ""});
  });
  proto::PeerMessage registration;
  *registration.mutable_registration() = ShardRegistration(job_digest_, 0, advertised());
  service_.Post(coordinator::FromPeer{kOwnShard, registration});
  const absl::Status status = service_.Wait(Tasks());
  signals->OnSignal(nullptr);
  if (const Summary summary = service_.summary(); !summary.diverged.empty()) {
    const absl::Status written = files_->WriteSummary(summary);
    if (!written.ok()) log_.Warning(written.message());
  }
  if (!status.ok() && !has_view_) folder_->Abandon();
  return status;
}

absl::Status CoordinatorServer::OpenFiles() {
  RUBATO_ASSIGN_OR_RETURN(folder_, OpenRunFolder(job_, options_));
  RUBATO_ASSIGN_OR_RETURN(metrics_, MetricsRecorder::Create(*folder_, job_.metrics().tensorboard(),
                                                            absl::Now(), &log_));
  RUBATO_ASSIGN_OR_RETURN(journal_, RecordFile::Open(folder_->ViewsFile(), kMaxJournal));
  RUBATO_ASSIGN_OR_RETURN(std::string token, WriteToken(folder_->TokenFile()));
  service_.SetToken(std::move(token));
  ConnectionOptions connection = options_.connection;
  connection.own_address = advertised();
  connection.own_channel = host_.OwnChannel();
  files_.emplace(job_, job_digest_, connection, *folder_, &log_);
  return WriteFileAtomically(folder_->AddressFile(), host_.address() + "\n");
}

ClusterService::Outlets CoordinatorServer::Outlets() {
  ClusterService::Outlets outlets;
  outlets.metrics = [this](const MetricsLine& line) {
    metrics_->Record(line, absl::Now());
    files_->OnMetrics(line);
  };
  outlets.journal = [this](const proto::View& view, const std::string& reason) {
    OnView(view, reason);
  };
  outlets.to_own_shard = [this](const proto::CoordinatorMessage& message) {
    host_.OnMessage(message);
  };
  outlets.on_message = [this](const std::string& peer) {
    options_.connection.strangers->OnMessage(peer);
  };
  return outlets;
}

void CoordinatorServer::OnView(const proto::View& view, const std::string& reason) {
  log_.Info(absl::StrCat("view ", view.number(), ": ", reason), {{"workers", view.members_size()}});
  if (!std::exchange(has_view_, true)) {
    const absl::Status latest = folder_->BecomeLatest();
    if (!latest.ok()) log_.Warning(latest.message());
  }
  const absl::Status status = journal_->Append(JournalLine(view, reason, absl::Now()));
  if (!status.ok()) log_.Warning(status.message());
}

ClusterService::Tasks CoordinatorServer::Tasks() {
  ClusterService::Tasks tasks;
  tasks.collect = [this](const proto::View& view, int64_t version, const Summary& summary) {
    return files_->WriteResult(view, version, summary);
  };
  tasks.checkpoint = [this](const proto::View& view, uint32_t snapshot,
                            const proto::Manifest& manifest) {
    return files_->WriteSnapshot(view, snapshot, manifest);
  };
  tasks.restore = [this](const proto::View& view) {
    const auto on_failure = [this](const absl::Status& status) {
      service_.Post(coordinator::Failed{status});
    };
    return begin_.initial ? files_->SendInitial(view, job_.model().init_from(), on_failure)
                          : files_->Restore(view, begin_.path, *begin_.resume, on_failure);
  };
  tasks.stop = [this] { files_->StopCollecting(); };
  return tasks;
}

}  // namespace rubato
