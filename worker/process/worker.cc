#include "worker/process/worker.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/isa.h"
#include "common/base/log.h"
#include "common/base/process_exit.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/job/job.h"
#include "common/space/job_codec.h"
#include "common/space/placement.h"
#include "common/wire/control_client.h"
#include "common/wire/heartbeat.h"
#include "common/wire/shard_streams.h"
#include "common/wire/shared_arena.h"
#include "common/wire/stream_memory.h"
#include "tensor/kernels.h"
#include "worker/data/batch_reader.h"
#include "worker/data/load.h"
#include "worker/model/model.h"
#include "worker/process/mailbox.h"
#include "worker/process/test_hooks.h"
#include "worker/process/worker_loop.h"
#include "worker/step/compute_device.h"
#include "worker/step/contributions.h"
#include "worker/step/evaluator.h"
#include "worker/step/micro_batches.h"
#include "worker/step/pulled_parameters.h"

namespace rubato {
namespace {

// A stream that breaks is a symptom: a shard has died, or the job is over. The coordinator knows
// which, and tells within this time.
constexpr absl::Duration kStreamFailureGrace = absl::Seconds(2);

constexpr int kBeatsPerLease = 5;
constexpr absl::Duration kBetweenTries = absl::Milliseconds(200);

class Worker {
 public:
  Worker(const proto::Job& job, const Data* data)
      : job_(job), data_(data), job_digest_(JobDigest(job)) {}

  // Takes part until the job is over; joins anew after it was taken for dead or cut off.
  absl::Status Run(const WorkerOptions& options, SignalWatcher* signals);

 private:
  absl::Status Prepare(int local_rank);
  // Takes part once, from a registration to its end.
  absl::Status TakePart(const WorkerOptions& options, absl::Duration patience,
                        SignalWatcher* signals);
  proto::Registration MakeRegistration(const WorkerOptions& options) const;
  void OnControlMessage(const proto::CoordinatorMessage& message);
  void OnView(const proto::View& view, WorkerLoop::Actions* actions);
  void OnStreamFailure(const absl::Status& status);
  void OnSignal(int signal);

  void RunActions(const WorkerLoop::Actions& actions);
  void Run(const WorkerLoop::Pull& pull);
  void Run(const WorkerLoop::RequestWork& request);
  void Run(const WorkerLoop::Test& test);
  void Run(const WorkerLoop::ReadAhead& read);
  void Run(const WorkerLoop::Compute& action);
  void Run(const WorkerLoop::SayIdle& idle);
  void Run(const WorkerLoop::Leave& leave);
  // Begins to compute on what has arrived, if the core wants it.
  void MaybeBeginEarly();
  // All parameters of the last pull are here.
  void OnAllParameters(const PulledParameters::Arrived& arrived);
  // A loss or gradient is not finite: leaves it to the coordinator to end the job.
  void OnDiverged(const std::string& reason);
  void OpenParameters();
  void JoinShards(const proto::View& view);
  void SendEvaluation(int64_t unit, bool is_final, const BatchResult& result);

  // How long the computing thread had nothing to do but wait for parameters, of the time from the
  // first push before them to their last block.
  struct Waiting {
    double seconds = 0;
    double communicating_seconds = 0;
  };

  void End(const absl::Status& status) {
    if (!end_.has_value()) end_ = status;
  }

  const proto::Job job_;
  const Data* const data_;
  const std::string job_digest_;
  ComputeDevice compute_;
  std::unique_ptr<Model> model_;
  std::vector<std::unique_ptr<Model>> more_models_;  // one for each further thread
  std::optional<Log> log_;
  TestHooks hooks_;
  bool has_taken_part_ = false;  // ever

  // Of one taking part.
  std::unique_ptr<PulledParameters> parameters_;
  std::unique_ptr<Mailbox> mailbox_;
  std::optional<WorkerLoop> loop_;
  std::optional<absl::Status> end_;
  bool took_part_ = false;       // was a member
  bool has_parameters_ = false;  // all shards have answered: it is worth joining again
  bool may_join_anew_ = false;   // after this end
  bool was_stopped_ = false;     // by the coordinator
  absl::Status stream_failure_;
  absl::Status interrupted_;  // by a signal
  absl::Status diverged_;
  absl::Time deadline_ = absl::InfiniteFuture();  // after any of them

  // From the view on.
  std::optional<Placement> placement_;
  std::unique_ptr<BatchReader> reader_;
  std::shared_ptr<SharedArena> arena_;  // of the gradients; may be null
  std::unique_ptr<MicroBatches> micro_batches_;
  std::unique_ptr<PushEncoder> encoder_;
  std::unique_ptr<Contributions> contributions_;
  int64_t pushed_bytes_ = 0;  // since the last progress
  double staleness_ = 0;      // mean over blocks, of this worker's last contribution
  int64_t pushed_at_ = 0;     // nanoseconds: the first push behind the last pull; 0: none
  Waiting waiting_;           // for the parameters at hand

  std::unique_ptr<ControlClient> control_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<ShardStreams> streams_;
};

absl::Status Worker::Prepare(int local_rank) {
  RUBATO_ASSIGN_OR_RETURN(compute_, ComputeDevice::Choose(job_.device(), local_rank));
  const Dataset& train = data_->train;
  const ExampleShape& shape = train.shape();
  const int64_t micro_batch = job_.train().batch_size() / job_.train().micro_batches();
  RUBATO_ASSIGN_OR_RETURN(
      const Objective objective,
      ObjectiveFor(job_.loss(), train.classes(), train.target_values(), train.labels_each()));
  const auto make = [&]() -> absl::StatusOr<std::unique_ptr<Model>> {
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, compute_.Open());
    return Model::Create(job_.model(), shape.dimensions(), objective, micro_batch, compute_.dtype(),
                         Purpose::kTraining, std::move(device),
                         WaitingSums(job_.train().micro_batches()));
  };
  RUBATO_ASSIGN_OR_RETURN(model_, make());
  // A GPU is kept busy by one micro-batch at a time.
  const int64_t threads =
      compute_.is_cpu() ? std::min<int64_t>(job_.device().threads(), job_.train().micro_batches())
                        : 1;
  for (int64_t i = 1; i < threads; ++i) {
    more_models_.emplace_back();
    RUBATO_ASSIGN_OR_RETURN(more_models_.back(), make());
  }
  const bool on_test = job_.evaluation().split() == proto::Evaluation::SPLIT_TEST;
  RUBATO_ASSIGN_OR_RETURN(
      evaluator_, Evaluator::Create(job_.model(), objective, compute_, micro_batch,
                                    on_test ? &data_->test : &data_->validation, &data_->test,
                                    [this](int64_t unit, bool is_final, const BatchResult& result) {
                                      SendEvaluation(unit, is_final, result);
                                    }));
  return absl::OkStatus();
}

proto::Registration Worker::MakeRegistration(const WorkerOptions& options) const {
  proto::Registration registration;
  registration.set_version(kVersion);
  registration.set_job_digest(job_digest_);
  registration.set_process(ProcessDescription());
  proto::WorkerRegistration* worker = registration.mutable_worker();
  worker->set_rank(options.rank);
  *worker->mutable_layout() = model_->layout();
  worker->set_data_digest(data_->digest);
  worker->set_train_samples(data_->train.size());
  worker->set_test_samples(data_->test.size());
  worker->set_numerics(compute_.numerics());
  return registration;
}

absl::Status Worker::Run(const WorkerOptions& options, SignalWatcher* signals) {
  RUBATO_RETURN_IF_ERROR(Prepare(options.local_rank));
  log_.emplace("worker", options.rank, static_cast<LogLevel>(job_.log().level()),
               static_cast<LogFormat>(job_.log().format()));
  for (const std::string& note : data_->notes) log_->Info(note);
  if (!compute_.note().empty()) log_->Info(compute_.note());
  log_->Info("ready; waiting for the coordinator and the others",
             {{"coordinator", job_.cluster().address()}});
  absl::Status status = TakePart(options, absl::Seconds(job_.cluster().start_timeout()), signals);
  // While its place may still be held by what it was before, and while a cut may heal.
  const absl::Duration patience = 2 * absl::Seconds(job_.cluster().lease()) + absl::Seconds(1);
  absl::Time deadline = absl::Now() + patience;
  while (may_join_anew_ && signals->signal() == 0) {
    log_->Warning("joins anew", {{"reason", status.message()}});
    const absl::Status end = status;
    status = TakePart(options, patience, signals);
    if (has_parameters_) deadline = absl::Now() + patience;
    if (absl::Now() >= deadline) break;
    // Nobody answers any more: why it was left alone says more.
    if (absl::IsDeadlineExceeded(status)) return end;
    if (may_join_anew_ && !took_part_) absl::SleepFor(kBetweenTries);
  }
  return status;
}

absl::Status Worker::TakePart(const WorkerOptions& options, absl::Duration patience,
                              SignalWatcher* signals) {
  mailbox_ = std::make_unique<Mailbox>([this] { parameters_->Wake(); });
  parameters_ = std::make_unique<PulledParameters>(&mailbox_->waiting());
  loop_.emplace(job_);
  contributions_.reset();
  encoder_.reset();  // with what it had not sent
  // A server may still read what it was lent before: that is not written again.
  micro_batches_.reset();
  arena_ = nullptr;
  if (IsLent(job_.wire(), PushCodec(job_))) {
    if (auto arena = SharedArena::Create(); arena.ok()) {
      arena_ = *std::move(arena);
    } else {
      log_->Warning("copies its gradients to servers of this host",
                    {{"reason", arena.status().message()}});
    }
  }
  end_.reset();
  may_join_anew_ = was_stopped_ = took_part_ = has_parameters_ = false;
  stream_failure_ = absl::OkStatus();
  deadline_ = absl::InfiniteFuture();
  RUBATO_ASSIGN_OR_RETURN(control_, ControlClient::Connect(job_.cluster().address(), patience,
                                                           MakeRegistration(options), [signals] {
                                                             return signals->signal() != 0;
                                                           }));
  signals->OnSignal([this](int signal) { mailbox_->Post([this, signal] { OnSignal(signal); }); });
  ControlCallbacks callbacks;
  callbacks.on_message = [this](const proto::CoordinatorMessage& message) {
    mailbox_->Post([this, message] { OnControlMessage(message); });
  };
  callbacks.on_failure = [this](const absl::Status& status) {
    mailbox_->Post([this, status] {
      may_join_anew_ = true;
      End(status);
    });
  };
  control_->Start(std::move(callbacks));

  while (!end_.has_value()) {
    if (const std::function<void()> event = mailbox_->Take(deadline_)) {
      {
        const ShardStreams::Batch batch(streams_.get());  // pushes and the pull behind them
        event();
      }
      // A computation that waits must find what it waits for asked for.
      const ShardStreams::Batch batch(streams_.get());
      MaybeBeginEarly();
    } else {
      // The coordinator has not ended the job: only this worker was cut off.
      may_join_anew_ = interrupted_.ok() && diverged_.ok() && absl::IsUnavailable(stream_failure_);
      end_ = !interrupted_.ok() ? interrupted_ : !diverged_.ok() ? diverged_ : stream_failure_;
    }
  }
  if (!interrupted_.ok()) end_ = interrupted_;
  signals->OnSignal(nullptr);
  if (!end_->ok() && !was_stopped_) {
    proto::PeerMessage message;
    message.mutable_failure()->set_exit_code(ExitCode(*end_));
    message.mutable_failure()->set_reason(std::string(end_->message()));
    control_->Send(message);
  }
  heartbeat_.reset();
  streams_.reset();
  evaluator_->Wait();
  control_.reset();
  return *end_;
}

void Worker::OnControlMessage(const proto::CoordinatorMessage& message) {
  if (end_.has_value()) return;
  WorkerLoop::Actions actions;
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kView:
      if (std::none_of(message.view().members().begin(), message.view().members().end(),
                       [&](const auto& m) { return m.rank() == message.view().your_rank(); })) {
        End(absl::InternalError("the coordinator sent a view without this worker"));
        return;
      }
      OnView(message.view(), &actions);
      break;
    case proto::CoordinatorMessage::kWork:
      loop_->OnWork(message.work(), &actions);
      break;
    case proto::CoordinatorMessage::kEvaluationRequest:
      if (streams_ != nullptr) loop_->OnEvaluationRequest(message.evaluation_request(), &actions);
      break;
    case proto::CoordinatorMessage::kStop:
      was_stopped_ = true;
      // Taken for dead; or back before that was noticed.
      may_join_anew_ = message.stop().evicted() || (has_taken_part_ && message.stop().refused() &&
                                                    message.stop().exit_code() == 1);
      End(FromStop(message.stop()));
      break;
    default:
      break;  // not for workers
  }
  RunActions(actions);
}

void Worker::OnView(const proto::View& view, WorkerLoop::Actions* actions) {
  took_part_ = has_taken_part_ = true;
  log_.emplace("worker", view.your_rank(), static_cast<LogLevel>(job_.log().level()),
               static_cast<LogFormat>(job_.log().format()));
  hooks_.OnMember(view.your_rank());
  log_->Info("takes part", {{"view", view.number()}, {"workers", view.members_size()}});
  // `prefetch` global batches, of which a worker's share is one of `workers` in either mode.
  const int64_t share =
      (job_.train().micro_batches() + view.members_size() - 1) / std::max(1, view.members_size());
  reader_ = std::make_unique<BatchReader>(&data_->train, job_.seed(), model_->max_batch(),
                                          job_.data().prefetch() * share);
  absl::StatusOr<Placement> placement = Placement::Of(job_, view);
  if (placement.ok() && placement->space().values() != model_->parameter_count()) {
    placement = absl::InvalidArgumentError("the coordinator sent a view of another model");
  }
  if (!placement.ok()) {
    End(placement.status());
    return;
  }
  if (!placement_.has_value()) placement_ = *std::move(placement);
  const FlatSpace& space = placement_->space();
  if (micro_batches_ == nullptr) {
    std::vector<Model*> models = {model_.get()};
    for (const std::unique_ptr<Model>& model : more_models_) models.push_back(model.get());
    micro_batches_ =
        std::make_unique<MicroBatches>(std::move(models), &space, reader_.get(), job_.seed(),
                                       LendsGradients(placement_->max_values()) ? arena_ : nullptr);
  } else {
    micro_batches_->Use(reader_.get());
  }
  if (encoder_ == nullptr) {
    encoder_ = std::make_unique<PushEncoder>(job_, space, model_->trainable_count());
  }
  contributions_ = std::make_unique<Contributions>(job_, &model_->layout(), &space,
                                                   micro_batches_.get(), encoder_.get());
  if (streams_ == nullptr) JoinShards(view);
  loop_->OnView(view, actions);
}

void Worker::OpenParameters() {
  // The first layer's, with which a computation can begin.
  Range first{0, placement_->space().values()};
  for (const Graph::Node& node : model_->graph().nodes) {
    if (node.parameters == 0) continue;
    first = {node.begin, node.begin + node.parameters};
    break;
  }
  PulledParameters::Callbacks callbacks;
  callbacks.on_block = [this](const Frame& frame) {
    hooks_.OnPulled(static_cast<int64_t>(frame.clock), static_cast<int64_t>(frame.block),
                    static_cast<int64_t>(frame.version), frame.staleness);
  };
  callbacks.on_first = [this] { mailbox_->Post([] {}); };  // and MaybeBeginEarly follows
  callbacks.on_all = [this](const PulledParameters::Arrived& arrived) {
    mailbox_->Post([this, arrived] { OnAllParameters(arrived); });
  };
  parameters_->Open(*placement_, first, std::move(callbacks));
}

void Worker::JoinShards(const proto::View& view) {
  OpenParameters();
  const absl::Duration lease = absl::Seconds(job_.cluster().lease());
  for (const proto::Member& member : view.members()) {
    if (member.rank() != view.your_rank()) continue;
    heartbeat_ = std::make_unique<Heartbeat>(job_.cluster().address(), member.rank(),
                                             member.incarnation(), lease / kBeatsPerLease);
  }
  ShardStreams::Callbacks callbacks;
  callbacks.on_frame = [this](int shard, const Frame& frame, const ReceivedValues& values) {
    const absl::Status status = parameters_->OnFrame(shard, frame, values);
    if (!status.ok()) mailbox_->Post([this, status] { End(status); });
  };
  callbacks.on_failure = [this](int, const absl::Status& status) {
    mailbox_->Post([this, status] { OnStreamFailure(status); });
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
  streams_ = std::make_unique<ShardStreams>(
      ShardAddresses(view), job_digest_, std::move(callbacks),
      job_.wire().shared_memory() == proto::Wire::SHARED_MEMORY_AUTO, arena_);
}

void Worker::OnStreamFailure(const absl::Status& status) {
  if (!stream_failure_.ok()) return;
  stream_failure_ = StoppedByOthers(status);
  deadline_ = std::min(deadline_, absl::Now() + kStreamFailureGrace);
}

// Leaves the others to go on: first what it has begun.
void Worker::OnSignal(int signal) {
  interrupted_ = InterruptedBy(signal);
  if (streams_ == nullptr) {
    End(interrupted_);
    return;
  }
  deadline_ = std::min(deadline_, absl::Now() + kStopGrace);
  WorkerLoop::Actions actions;
  loop_->OnLeave(&actions);
  RunActions(actions);
}

void Worker::RunActions(const WorkerLoop::Actions& actions) {
  for (const WorkerLoop::Action& action : actions) {
    if (end_.has_value()) return;
    std::visit([this](const auto& what) { Run(what); }, action);
  }
}

void Worker::Run(const WorkerLoop::RequestWork& request) {
  proto::PeerMessage message;
  message.mutable_work_request()->set_applied(request.applied);
  control_->Send(message);
}

void Worker::Run(const WorkerLoop::Test& test) {
  evaluator_->Start(test.unit, parameters_->values(), test.is_final);
}

void Worker::Run(const WorkerLoop::ReadAhead& read) {
  for (int64_t leaf = read.leaves.begin; leaf < read.leaves.end; ++leaf) {
    const SampleRange range = loop_->schedule().MicroBatch(read.unit, leaf);
    if (!range.positions.empty()) reader_->Announce(range);
  }
}

void Worker::Run(const WorkerLoop::SayIdle& idle) {
  proto::PeerMessage message;
  message.mutable_idle()->set_view(loop_->view().number());
  message.mutable_idle()->set_applied(idle.applied);
  control_->Send(message);
}

void Worker::Run(const WorkerLoop::Leave& leave) {
  // Who has left is not heard any more.
  evaluator_->Wait(std::max(deadline_ - absl::Now(), absl::ZeroDuration()));
  proto::PeerMessage message;
  message.mutable_leave()->set_reason(std::string(interrupted_.message()));
  message.mutable_leave()->set_applied(leave.applied);
  control_->Send(message);
}

void Worker::Run(const WorkerLoop::Pull& pull) {
  const proto::View& view = loop_->view();
  parameters_->Begin({pull.number, pull.clock, loop_->sync(), pull.observer});
  for (int shard = 0; shard < placement_->shards(); ++shard) {
    const Range blocks = placement_->Blocks(shard);
    if (blocks.empty()) continue;
    Frame frame;
    frame.kind = pull.retire ? FrameKind::kRetire : FrameKind::kPull;
    frame.unit = pull.number;
    frame.view = view.number();
    frame.worker = pull.observer ? kObserver : static_cast<uint32_t>(view.your_rank());
    frame.block = static_cast<uint64_t>(blocks.begin);
    frame.block_count = static_cast<uint32_t>(blocks.size());
    frame.clock = static_cast<uint64_t>(pull.clock);
    // The final test is of what is in force.
    frame.codec = pull.observer ? Codec::kFloat32 : PullCodec(job_);
    streams_->Send(shard, frame, {});
  }
}

void Worker::MaybeBeginEarly() {
  if (end_.has_value() || streams_ == nullptr || absl::Now() >= deadline_) return;
  const std::optional<uint64_t> pull = parameters_->MayBegin();
  if (!pull.has_value()) return;
  WorkerLoop::Actions actions;
  loop_->OnSomeParameters(*pull, &actions);
  RunActions(actions);
}

void Worker::OnAllParameters(const PulledParameters::Arrived& arrived) {
  has_parameters_ = true;
  staleness_ = arrived.staleness;
  const PulledParameters::Times times = parameters_->times();
  waiting_.seconds = static_cast<double>(times.waited) * 1e-9;
  waiting_.communicating_seconds =
      static_cast<double>(times.arrived - (pushed_at_ > 0 ? pushed_at_ : times.begun)) * 1e-9;
  pushed_at_ = 0;
  WorkerLoop::Actions actions;
  loop_->OnParameters(arrived.number, arrived.passed, &actions);
  RunActions(actions);
}

void Worker::Run(const WorkerLoop::Compute& action) {
  if (action.early && !parameters_->Use(deadline_)) {
    loop_->OnInterrupted();
    return;
  }
  bool waits = action.early;  // until all parameters are here
  const auto begin = [&] {
    if (std::exchange(waits, false)) OnAllParameters(parameters_->FinishUse());
    hooks_.OnCompute(loop_->view().lineage(), action.clock, action.unit);
  };
  if (!waits) begin();
  const auto await = [&](Range values) { return !action.early || parameters_->Await(values); };
  const proto::View& view = loop_->view();
  const bool on_arrival = !loop_->sync();
  proto::PeerMessage message;
  proto::Progress* progress = message.mutable_progress();
  progress->set_unit(action.unit);
  progress->set_first_leaf(action.leaves.begin);
  progress->set_clock(action.clock);
  for (const Range& node : action.nodes) {
    Frame frame;
    frame.kind = FrameKind::kPush;
    frame.view = view.number();
    frame.worker = static_cast<uint32_t>(view.your_rank());
    frame.lineage = view.lineage();
    frame.incarnation = loop_->me().incarnation();
    frame.clock = static_cast<uint64_t>(action.clock);
    frame.unit = static_cast<uint64_t>(action.unit);
    frame.first_leaf = static_cast<uint32_t>(node.begin);
    frame.end_leaf = static_cast<uint32_t>(node.end);
    int64_t samples = 0;
    for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
      samples += loop_->schedule().MicroBatch(action.unit, leaf).positions.size();
    }
    frame.samples = static_cast<uint32_t>(samples);
    const auto send = [&](int64_t block, const Payload& payload) {
      if (waits) begin();  // nothing is pushed before all parameters are here
      if (pushed_at_ == 0) pushed_at_ = absl::GetCurrentTimeNanos();
      frame.block = static_cast<uint64_t>(block);
      frame.version = static_cast<uint64_t>(parameters_->version(block));
      pushed_bytes_ += static_cast<int64_t>(payload.bytes.size());
      streams_->Send(placement_->ShardOf(block), frame, payload);
    };
    const absl::Status status =
        contributions_->Compute(loop_->schedule(), action.unit, node, on_arrival,
                                parameters_->values(), send, progress, await);
    if (absl::IsCancelled(status)) {
      loop_->OnInterrupted();
      parameters_->Abandon();
      return;
    }
    if (waits) begin();
    if (!status.ok()) {
      OnDiverged(std::string(status.message()));
      return;
    }
    if (progress->left_out()) break;
  }
  progress->set_staleness(staleness_);
  progress->set_pushed_bytes(std::exchange(pushed_bytes_, 0));
  progress->set_pulled_bytes(parameters_->TakePulledBytes());
  if (waiting_.communicating_seconds > 0) {
    progress->set_waiting_seconds(waiting_.seconds);
    progress->set_communicating_seconds(waiting_.communicating_seconds);
    waiting_ = {};
  }
  control_->Send(message);
  WorkerLoop::Actions actions;
  if (progress->left_out()) {
    loop_->OnLeftOut(&actions);
  } else {
    loop_->OnComputed(&actions);
  }
  RunActions(actions);
}

void Worker::OnDiverged(const std::string& reason) {
  proto::PeerMessage message;
  message.mutable_failure()->set_exit_code(ExitCode(absl::AbortedError(reason)));
  message.mutable_failure()->set_reason(reason);
  message.mutable_failure()->set_non_finite(true);
  control_->Send(message);
  diverged_ = absl::AbortedError(reason);
  deadline_ = std::min(deadline_, absl::Now() + kStopGrace);
}

// On the evaluator's thread.
void Worker::SendEvaluation(int64_t unit, bool is_final, const BatchResult& result) {
  proto::PeerMessage message;
  proto::EvaluationResult* evaluation = message.mutable_evaluation();
  evaluation->set_unit(unit);
  evaluation->set_is_final(is_final);
  evaluation->set_loss_sum(result.loss_sum);
  if (IsClassification(job_.loss().name())) {
    evaluation->set_correct(result.correct);
    evaluation->set_judged(result.judged);
  }
  evaluation->set_samples(result.samples);
  control_->Send(message);
}

}  // namespace

absl::Status RunWorker(const proto::Job& job, const WorkerOptions& options,
                       SignalWatcher* signals) {
  RUBATO_RETURN_IF_ERROR(FixIsa(job.device()));
  RUBATO_ASSIGN_OR_RETURN(const Data data, LoadData(job));
  Worker worker(job, &data);
  return worker.Run(options, signals);
}

}  // namespace rubato
