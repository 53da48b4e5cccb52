#include "worker/process/worker.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/busy_clock.h"
#include "common/base/bytes.h"
#include "common/base/entropy.h"
#include "common/base/exit_code.h"
#include "common/base/isa.h"
#include "common/base/log.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/space/job_codec.h"
#include "common/space/modes.h"
#include "common/space/placement.h"
#include "common/wire/control_client.h"
#include "common/wire/heartbeat.h"
#include "common/wire/reach.h"
#include "common/wire/shard_streams.h"
#include "worker/data/load.h"
#include "worker/process/mailbox.h"
#include "worker/process/test_hooks.h"
#include "worker/script/script_opening.h"
#include "worker/script/script_values.h"
#include "worker/session/worker_session.h"
#include "worker/step/model_values.h"
#include "worker/step/pulled_parameters.h"
#include "worker/step/worker_values.h"

namespace rubato {
namespace {

class Worker {
 public:
  Worker(const proto::Job& job, const WorkerOptions& options, Departure* departure)
      : job_(job),
        options_(options),
        departure_(*departure),
        job_digest_(JobDigest(job)),
        mailbox_([this] { parameters_.Wake(); }),
        parameters_(&mailbox_.waiting()) {}

  // Who computes its values tells results of tests by this, until they are told to end.
  std::function<void(const proto::EvaluationResult& result)> OnTested() {
    return [this](const proto::EvaluationResult& result) {
      proto::PeerMessage message;
      *message.mutable_evaluation() = result;
      if (!result.is_final()) message.mutable_evaluation()->set_version(tested_version_);
      control_->Send(message);
      mailbox_.Post(Session::Tested{result.is_final()});
    };
  }
  // Takes part with these values until the session ends.
  absl::Status Run(std::unique_ptr<WorkerValues> values);

 private:
  using Session = WorkerSession;

  proto::Registration MakeRegistration() const;
  Log MakeLog(int rank) const;

  // Gives the session an event and carries out what comes of it.
  void Handle(const Session::Event& event);
  void HandleInBatch(const Session::Event& event);

  void Run(const Session::Connect& connect);
  void Run(const Session::UseView& use);
  void Run(const Session::OpenStreams& open);
  void Run(const Session::SendToCoordinator& send);
  void Run(const Session::StartPull& start) { parameters_.Begin(start.pull, is_sending_); }
  void Run(const Session::SendFrame& send) {
    Frame frame = send.frame;
    if (frame.worker != kObserver) frame.version = attempt_;
    streams_->Send(send.shard, frame, {});
  }
  void Run(const Session::Test& test);
  void Run(const Session::ReadAhead& read);
  void Run(const Session::Compute& compute);
  void Run(const Session::GiveValues& give);
  void Run(const Session::Disconnect& disconnect);
  void Run(const Session::End& end) { end_ = end.status; }

  // Registers at the coordinator.
  absl::StatusOr<std::unique_ptr<ControlClient>> Call(const Session::Connect& connect) const;

  // Session::DeadlinePassed's.
  absl::Time HeardAt() const {
    return heartbeat_ != nullptr ? heartbeat_->heard_at() : absl::InfinitePast();
  }

  void OpenParameters();
  // All parameters of the last pull are here.
  void MeasureWaiting();
  void AddFigures(int64_t pushed_bytes, proto::Progress* progress);
  void ReportProgress(const Session::Compute& compute, const proto::Progress& progress);
  // Waits as long as the computation is to take, beside its own time.
  void Delay(const Session::Compute& compute);

  // How long the computing thread had nothing to do but wait for parameters, of the time from the
  // first push before them to their last block.
  struct Waiting {
    double seconds = 0;
    double communicating_seconds = 0;
  };

  const proto::Job job_;
  const WorkerOptions options_;
  Departure& departure_;
  const std::string job_digest_;
  uint64_t attempt_ = 0;  // of the registration; its heartbeats show it
  TestHooks hooks_;
  std::optional<Log> log_;
  std::optional<absl::Status> end_;

  std::atomic<int64_t> tested_version_ = 0;  // of the test that is under way

  Mailbox<Session::Event> mailbox_;
  std::unique_ptr<WorkerValues> values_;
  PulledParameters parameters_;  // pinned by those models
  std::optional<Session> session_;
  std::unique_ptr<TrainerClient> trainer_;

  bool is_reporter_ = false;  // of the view's members it has the lowest rank

  BusyClock busy_;
  int64_t pushed_at_ = 0;  // nanoseconds: the first push behind the last pull; 0: none
  Waiting waiting_;        // for the parameters at hand
  int64_t computations_ = 0;
  bool is_sending_ = false;  // amid a computation that reads no parameters any more

  // While it takes part.
  std::unique_ptr<ControlClient> control_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<ShardStreams> streams_;
  std::optional<ShardStreams::Batch> batch_;
};

Log Worker::MakeLog(int rank) const {
  return Log("worker", rank, static_cast<LogLevel>(job_.log().level()),
             static_cast<LogFormat>(job_.log().format()));
}

proto::Registration Worker::MakeRegistration() const {
  proto::Registration registration;
  registration.set_version(kVersion);
  registration.set_job_digest(job_digest_);
  registration.set_process(ProcessDescription());
  registration.set_attempt(attempt_);
  *registration.mutable_worker() = values_->Registration();
  registration.mutable_worker()->set_rank(options_.rank);
  return registration;
}

absl::Status Worker::Run(std::unique_ptr<WorkerValues> values) {
  values_ = std::move(values);
  session_.emplace(job_, values_->space().values());
  log_.emplace(MakeLog(options_.rank));
  for (const std::string& note : values_->notes()) log_->Info(note);
  for (const std::string& warning : values_->warnings()) log_->Warning(warning);
  if (options_.trainer.has_value()) {
    trainer_ = std::make_unique<TrainerClient>(*options_.trainer, *log_);
  }
  log_->Info("ready; waiting for the coordinator and the others",
             {{"coordinator", job_.cluster().address()}});
  departure_.OnAsked(
      [this](const absl::Status& why) { mailbox_.Post(Session::AskedToLeave{why}); });
  Handle(Session::Started{});
  while (!end_.has_value()) {
    // A test of its own that stands still is nothing that others could end.
    if (!session_->waits_for_test()) busy_.Wait();
    const std::optional<Session::Event> event = mailbox_.Take(session_->deadline());
    busy_.Begin();
    HandleInBatch(event.value_or(Session::DeadlinePassed{HeardAt()}));
    // In another batch: a computation that waits must find what it waits for asked for.
    if (const std::optional<uint64_t> pull = parameters_.MayBegin()) {
      HandleInBatch(Session::SomeArrived{*pull});
    }
  }
  departure_.OnAsked(nullptr);
  values_->EndTests();
  if (trainer_ != nullptr && end_->ok() && is_reporter_) trainer_->Finish();
  trainer_.reset();
  return *end_;
}

void Worker::HandleInBatch(const Session::Event& event) {
  batch_.emplace(streams_.get());  // pushes and the pull behind them
  Handle(event);
  batch_.reset();
}

void Worker::Handle(const Session::Event& event) {
  if (std::holds_alternative<Session::AllArrived>(event)) MeasureWaiting();
  for (const Session::Outcome& outcome : session_->Handle(event, MonotonicNow())) {
    std::visit([this](const auto& what) { Run(what); }, outcome);
  }
}

absl::StatusOr<std::unique_ptr<ControlClient>> Worker::Call(const Session::Connect& connect) const {
  const std::string& coordinator = job_.cluster().address();
  const auto interrupted = [this] { return !departure_.why().ok(); };
  if (!connect.servers.empty()) {
    std::vector<std::string> addresses = connect.servers;
    addresses.push_back(coordinator);
    RUBATO_RETURN_IF_ERROR(StoppedByOthers(
        AwaitServers(addresses, options_.connection, job_.cluster().max_restarts() > 0,
                     connect.longest_mute, connect.patience, interrupted)));
  }
  proto::Registration registration = MakeRegistration();
  if (connect.last_term > 0) registration.set_last_term(connect.last_term);
  return ControlClient::Connect(coordinator, connect.patience, registration, interrupted,
                                options_.connection,
                                [this](const std::string& why) { log_->Info(why); });
}

void Worker::Run(const Session::Connect& connect) {
  if (!connect.again.ok()) log_->Warning("joins anew", {{"reason", connect.again.message()}});
  if (const absl::Status lends = values_->OnJoin(); !lends.ok()) {
    log_->Warning("copies its gradients to servers of this host", {{"reason", lends.message()}});
  }
  attempt_ = DrawEntropy();
  absl::StatusOr<std::unique_ptr<ControlClient>> control = Call(connect);
  if (!control.ok()) {
    // Who is asked to leave has AskedToLeave on its way.
    if (departure_.why().ok()) mailbox_.Post(Session::NotConnected{control.status()});
    return;
  }
  control_ = *std::move(control);
  mailbox_.Post(Session::Registered{});
  ControlCallbacks callbacks;
  callbacks.on_message = [this](proto::CoordinatorMessage message) {
    mailbox_.Post(Session::FromCoordinator{
        std::make_shared<const proto::CoordinatorMessage>(std::move(message))});
  };
  callbacks.on_failure = [this](const absl::Status& status) {
    mailbox_.Post(Session::CallBroke{status});
  };
  control_->Start(std::move(callbacks));
}

void Worker::Run(const Session::UseView&) {
  const proto::View& view = session_->view();
  log_.emplace(MakeLog(view.your_rank()));
  hooks_.OnMember(view.your_rank());
  log_->Info("takes part", {{"view", view.number()}, {"workers", view.members_size()}});
  values_->OnView(view, session_->placement().max_values());
  const auto is_lower = [&](const proto::Member& member) {
    return member.rank() < view.your_rank();
  };
  is_reporter_ = std::none_of(view.members().begin(), view.members().end(), is_lower);
}

void Worker::OpenParameters() {
  PulledParameters::Callbacks callbacks;
  callbacks.on_block = [this](const Frame& frame) {
    hooks_.OnPulled(static_cast<int64_t>(frame.clock), static_cast<int64_t>(frame.block),
                    static_cast<int64_t>(frame.version), frame.staleness);
  };
  callbacks.on_first = [this](uint64_t pull) { mailbox_.Post(Session::SomeArrived{pull}); };
  callbacks.on_all = [this](const PulledParameters::Arrived& arrived) {
    mailbox_.Post(Session::AllArrived{arrived});
  };
  parameters_.Open(session_->placement(), values_->first(), std::move(callbacks), values_->pin(),
                   values_->reader_memory());
}

void Worker::Run(const Session::OpenStreams&) {
  OpenParameters();
  const proto::Member& me = session_->me();
  proto::HeartbeatRequest who;
  who.set_job_digest(job_digest_);
  who.set_rank(me.rank());
  who.set_incarnation(me.incarnation());
  who.set_term(session_->view().term());
  who.set_attempt(attempt_);
  heartbeat_ = std::make_unique<Heartbeat>(
      job_.cluster().address(), who, [this] { return busy_.busy(); }, options_.connection);
  ShardStreams::Callbacks callbacks;
  callbacks.on_frame = [this](int shard, const Frame& frame, const ReceivedValues& values) {
    const absl::Status status = parameters_.OnFrame(shard, frame, values);
    if (!status.ok()) mailbox_.Post(Session::Failed{status});
  };
  callbacks.on_failure = [this](int, const absl::Status& status) {
    mailbox_.Post(Session::StreamBroke{status});
  };
  callbacks.on_shared = [log = *log_](int shard, const absl::Status& shared) {
    if (shared.ok()) {
      log.Info("shares memory with a server", {{"shard", shard}});
    } else {
      log.Warning("uses TCP on one host: no memory can be shared with the server",
                  {{"shard", shard}, {"reason", shared.message()}});
    }
  };
  callbacks.on_copied = [log = *log_](int shard, const absl::Status& why) {
    log.Warning("copies the parameters of a server of this host",
                {{"shard", shard}, {"reason", why.message()}});
  };
  const std::vector<std::string> addresses = ShardAddresses(session_->view());
  // One thread would copy for all servers, while a GPU waits for it.
  const bool hands_over = values_->pin() != nullptr && addresses.size() > 1;
  streams_ = std::make_unique<ShardStreams>(
      addresses, StreamScope{job_digest_, session_->view().term()}, options_.connection,
      std::move(callbacks), SharesMemory(job_), values_->arena(), /*first_shard=*/0, hands_over);
}

void Worker::Run(const Session::SendToCoordinator& send) {
  if (control_ != nullptr) control_->Send(send.message);
}

void Worker::Run(const Session::Test& test) {
  tested_version_ = test.version;  // one test at a time
  if (!test.only_keeps) {
    values_->StartTest(test.unit, parameters_.values(), test.is_final);
    return;
  }
  values_->KeepFinal(test.unit, parameters_.values());
  proto::PeerMessage message;  // that it has them: of no sample
  message.mutable_evaluation()->set_unit(test.unit);
  message.mutable_evaluation()->set_is_final(true);
  if (control_ != nullptr) control_->Send(message);
}

void Worker::Run(const Session::ReadAhead& read) {
  values_->ReadAhead(session_->schedule(), read.unit, read.leaves);
}

void Worker::Run(const Session::Compute& compute) {
  if (compute.early && !parameters_.Use(session_->deadline())) {
    Handle(Session::Interrupted{});
    return;
  }
  const int64_t begun = MonotonicNanos(), waited = parameters_.times().waited;
  bool waits = compute.early;  // until all parameters are here
  const auto begin = [&] {
    if (std::exchange(waits, false)) Handle(Session::AllArrived{parameters_.FinishUse()});
    hooks_.OnCompute(session_->view().lineage(), compute.clock, compute.unit);
    if (options_.delays.has_value()) Delay(compute);
  };
  if (!waits) begin();
  const auto await = [&](Range values) {
    if (!compute.early || is_sending_) return true;
    busy_.Wait();
    const bool readable = parameters_.Await(values);
    busy_.Begin();
    return readable;
  };
  Session::Computed computed;
  int64_t pushed_bytes = 0, waited_meanwhile = 0;
  for (const Range& node : compute.nodes) {
    Frame frame = session_->PushOf(compute, node);
    const bool is_last = node == compute.nodes.back() && values_->copies_parameters();
    const auto send = [&](int64_t block, const Payload& payload) {
      if (waits) begin();  // nothing is pushed before all parameters are here
      if (pushed_at_ == 0) pushed_at_ = MonotonicNanos();
      if (is_last && !std::exchange(is_sending_, true)) {
        waited_meanwhile = parameters_.times().waited - waited;
        Handle(Session::Sending{});
      }
      frame.weight = values_->contributions().weight().value_or(frame.samples);
      frame.block = static_cast<uint64_t>(block);
      // In steps all blocks have one, and those of the next may arrive already.
      frame.version = static_cast<uint64_t>(
          session_->policy().blocks_in_step() ? compute.clock : parameters_.version(block));
      pushed_bytes += static_cast<int64_t>(payload.bytes.size());
      streams_->Send(session_->placement().ShardOf(block), frame, payload);
    };
    const absl::Status status = values_->contributions().Compute(
        session_->schedule(), compute.unit, node, session_->policy(), parameters_.values(), send,
        &computed.progress, await);
    if (absl::IsUnavailable(status)) {  // nobody computes any more: it ends as if it had died
      end_ = absl::CancelledError(status.message());
      return;
    }
    if (absl::IsCancelled(status)) {
      Handle(Session::Interrupted{});
      parameters_.Abandon();
      return;
    }
    if (waits) begin();
    if (absl::IsAborted(status)) {  // not finite
      Handle(Session::Diverged{std::string(status.message())});
      return;
    }
    if (!status.ok()) {
      Handle(Session::Failed{status});
      return;
    }
    if (computed.progress.left_out()) break;
  }
  AddFigures(pushed_bytes, &computed.progress);
  if (trainer_ != nullptr && is_reporter_) ReportProgress(compute, computed.progress);
  if (!is_sending_) waited_meanwhile = parameters_.times().waited - waited;
  computed.progress.set_computing_seconds(
      static_cast<double>(MonotonicNanos() - begun - waited_meanwhile) * 1e-9);
  if (std::exchange(is_sending_, false)) parameters_.BecomeIdle();
  Handle(computed);
}

void Worker::ReportProgress(const Session::Compute& compute, const proto::Progress& progress) {
  const int64_t epoch_samples = session_->view().samples_per_epoch();
  const int64_t before = session_->schedule().SamplesBefore(compute.unit);
  TrainingFigures figures;
  if (!job_.train().until().has_time()) {
    figures.done = static_cast<double>(before) /
                   static_cast<double>(std::max<int64_t>(1, TotalSamples(job_, epoch_samples)));
  }
  figures.epoch = static_cast<double>(before) / static_cast<double>(epoch_samples);
  figures.step = before / job_.train().batch_size();
  figures.workers = session_->view().members_size();
  const auto sum = [](const auto& parts) {
    return std::accumulate(parts.begin(), parts.end(), 0.0);
  };
  const double weight = progress.told_size() > 0 ? sum(progress.told()) : sum(progress.samples());
  if (weight > 0) figures.loss = sum(progress.loss_sum()) / weight;
  trainer_->Report(figures);
}

void Worker::Delay(const Session::Compute& compute) {
  int64_t samples = 0;
  for (const Range& node : compute.nodes) samples += session_->PushOf(compute, node).samples;
  absl::SleepFor(options_.delays->Next(session_->me().rank(), computations_++, samples));
}

void Worker::MeasureWaiting() {
  const PulledParameters::Times times = parameters_.times();
  waiting_.seconds = static_cast<double>(times.waited) * 1e-9;
  waiting_.communicating_seconds =
      static_cast<double>(times.arrived - (pushed_at_ > 0 ? pushed_at_ : times.begun)) * 1e-9;
  pushed_at_ = 0;
}

void Worker::AddFigures(int64_t pushed_bytes, proto::Progress* progress) {
  progress->set_pushed_bytes(pushed_bytes);
  progress->set_pulled_bytes(parameters_.TakePulledBytes());
  if (waiting_.communicating_seconds <= 0) return;
  progress->set_waiting_seconds(waiting_.seconds);
  progress->set_communicating_seconds(waiting_.communicating_seconds);
  waiting_ = {};
}

void Worker::Run(const Session::GiveValues& give) {
  const absl::Span<const float> values = values_->initial();
  if (control_ == nullptr || values.empty()) return;
  proto::PeerMessage message;
  message.mutable_initial_values()->set_begin(give.values.begin);
  message.mutable_initial_values()->set_values(
      std::string(AsBytes(values.subspan(give.values.begin, give.values.size()))));
  control_->Send(message);
}

void Worker::Run(const Session::Disconnect&) {
  is_sending_ = false;
  batch_.reset();
  heartbeat_.reset();
  streams_.reset();
  parameters_.Close();
  values_->EndTests();
  control_.reset();
  mailbox_.Clear();  // of what is over
  if (const absl::Status why = departure_.why(); !why.ok()) {
    mailbox_.Post(Session::AskedToLeave{why});
  }
}

}  // namespace

absl::Status RunWorker(const proto::Job& job, const WorkerOptions& options, Departure* departure) {
  RUBATO_RETURN_IF_ERROR(FixIsa(job.device()));
  RUBATO_ASSIGN_OR_RETURN(const Data data, LoadData(job));
  Worker worker(job, options, departure);
  RUBATO_ASSIGN_OR_RETURN(
      std::unique_ptr<WorkerValues> values,
      ModelValues::Create(job, &data, GpuShare{options.local_rank, 1, options.working_gpus},
                          worker.OnTested()));
  return worker.Run(std::move(values));
}

absl::Status RunScriptWorker(const proto::Job& job, const WorkerOptions& options,
                             ScriptChannel* channel, Departure* departure) {
  RUBATO_RETURN_IF_ERROR(FixIsa(job.device()));
  RUBATO_ASSIGN_OR_RETURN(const ScriptOpening opening, OpenScript(job, channel));
  Worker worker(opening.job, options, departure);
  const auto on_leave = [departure](absl::Status why) { departure->Ask(std::move(why)); };
  return worker.Run(
      std::make_unique<ScriptValues>(opening.job, opening.registration, opening.abilities, channel,
                                     ScriptValues::Callbacks{worker.OnTested(), on_leave}));
}

}  // namespace rubato
