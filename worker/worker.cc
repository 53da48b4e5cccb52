#include "worker/worker.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/finite.h"
#include "common/flat_space.h"
#include "common/isa.h"
#include "common/job/job.h"
#include "common/log.h"
#include "common/status.h"
#include "common/sum_of_squares.h"
#include "common/version.h"
#include "common/wire/control_client.h"
#include "common/wire/shard_streams.h"
#include "tensor/kernels.h"
#include "worker/batch_reader.h"
#include "worker/data/load.h"
#include "worker/evaluator.h"
#include "worker/micro_batches.h"
#include "worker/model.h"
#include "worker/worker_loop.h"

namespace rubato {
namespace {

// A stream that breaks is a symptom: a shard has died, or the job is over. The coordinator knows
// which, and tells within this time.
constexpr absl::Duration kStreamFailureGrace = absl::Seconds(2);

// How long a process that was told to end waits for the coordinator to end the job in order.
constexpr absl::Duration kStopGrace = absl::Seconds(30);

// What other threads bring to the worker's own thread, in order.
class Mailbox {
 public:
  void Post(std::function<void()> event) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
  }

  // The next event; null if none has come by `deadline`.
  std::function<void()> Take(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto filled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !events_.empty(); };
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithDeadline(absl::Condition(&filled), deadline)) return nullptr;
    std::function<void()> event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  absl::Mutex mutex_;
  std::deque<std::function<void()>> events_ ABSL_GUARDED_BY(mutex_);
};

class Worker {
 public:
  Worker(const proto::Job& job, const Data* data)
      : job_(job),
        data_(data),
        job_digest_(JobDigest(job)),
        loop_(job.train().batch_size(), job.train().micro_batches(), job.data().prefetch()) {}

  absl::Status Run(const WorkerOptions& options, SignalWatcher* signals);

 private:
  absl::Status Prepare();
  proto::Registration MakeRegistration(const WorkerOptions& options) const;
  void OnControlMessage(const proto::CoordinatorMessage& message);
  void OnView(const proto::View& view, WorkerActions* actions);
  void OnStreamFailure(const absl::Status& status);
  void OnSignal(int signal);

  void RunActions(const WorkerActions& actions);
  void Pull(const WorkerAction& action);
  void Compute(const WorkerAction& action);
  // On arrival: scales the gradient of a contribution down to optimizer.clip_grad_norm.
  void Clip(const std::vector<std::pair<int64_t, Payload>>& blocks, int64_t samples) const;
  std::string ParameterAt(int64_t index) const;
  void OnShardMessage(int shard, const Message& message);
  void SendEvaluation(int64_t unit, const BatchResult& result);

  void End(const absl::Status& status) {
    if (!end_.has_value()) end_ = status;
  }

  const proto::Job job_;
  const Data* const data_;
  const std::string job_digest_;
  std::unique_ptr<Model> model_;
  Mailbox mailbox_;
  WorkerLoop loop_;
  std::optional<absl::Status> end_;
  bool was_stopped_ = false;  // by the coordinator
  absl::Status stream_failure_;
  absl::Status interrupted_;                      // by a signal
  absl::Time deadline_ = absl::InfiniteFuture();  // after either of them
  std::optional<Log> log_;

  // From the view on.
  std::optional<FlatSpace> space_;
  std::unique_ptr<BatchReader> reader_;
  std::unique_ptr<MicroBatches> micro_batches_;
  std::vector<float> parameters_;
  std::vector<int64_t> versions_;  // by block, of parameters_

  // Of the outstanding pull: the streams' thread fills parameters_ while this thread waits.
  int64_t pull_clock_ = 0;
  bool pull_exact_ = false;  // sync: the version must be the clock
  int64_t missing_blocks_ = 0;
  int64_t staleness_sum_ = 0;

  std::unique_ptr<ControlClient> control_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<ShardStreams> streams_;
};

absl::Status Worker::Prepare() {
  const Dataset& train = data_->train;
  const ExampleShape& shape = train.shape();
  const int64_t micro_batch = job_.train().batch_size() / job_.train().micro_batches();
  RUBATO_ASSIGN_OR_RETURN(
      const Objective objective,
      ObjectiveFor(job_.loss(), train.classes(), train.target_values(), train.labels_each()));
  RUBATO_ASSIGN_OR_RETURN(model_,
                          Model::Create(job_.model(), shape.dimensions(), objective, micro_batch));
  RUBATO_RETURN_IF_ERROR(CheckServable(model_->layout()));
  RUBATO_ASSIGN_OR_RETURN(evaluator_,
                          Evaluator::Create(job_.model(), objective, &data_->test,
                                            [this](int64_t unit, const BatchResult& result) {
                                              SendEvaluation(unit, result);
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
  worker->set_numerics(absl::StrCat("cpu, ", MatMulSignature()));
  return registration;
}

absl::Status Worker::Run(const WorkerOptions& options, SignalWatcher* signals) {
  RUBATO_RETURN_IF_ERROR(Prepare());
  const Log log("worker", options.rank, static_cast<LogLevel>(job_.log().level()),
                static_cast<LogFormat>(job_.log().format()));
  log.Info("ready; waiting for the coordinator and the others",
           {{"coordinator", job_.cluster().address()}});
  RUBATO_ASSIGN_OR_RETURN(
      control_, ControlClient::Connect(
                    job_.cluster().address(), absl::Seconds(job_.cluster().start_timeout()),
                    MakeRegistration(options), [signals] { return signals->signal() != 0; }));
  const auto end_with = [this](const absl::Status& status) {
    mailbox_.Post([this, status] { End(status); });
  };
  signals->OnSignal([this](int signal) { mailbox_.Post([this, signal] { OnSignal(signal); }); });
  ControlCallbacks callbacks;
  callbacks.on_message = [this](const proto::CoordinatorMessage& message) {
    mailbox_.Post([this, message] { OnControlMessage(message); });
  };
  callbacks.on_failure = end_with;
  control_->Start(std::move(callbacks));

  while (!end_.has_value()) {
    if (const std::function<void()> event = mailbox_.Take(deadline_)) {
      event();
    } else {
      end_ = interrupted_.ok() ? stream_failure_ : interrupted_;
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
  streams_.reset();
  evaluator_.reset();
  control_.reset();
  return *end_;
}

void Worker::OnControlMessage(const proto::CoordinatorMessage& message) {
  if (end_.has_value()) return;
  WorkerActions actions;
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kView:
      if (message.view().your_rank() < 0 ||
          message.view().your_rank() >= message.view().members_size()) {
        End(absl::InternalError("the coordinator sent a view without this worker"));
        return;
      }
      OnView(message.view(), &actions);
      break;
    case proto::CoordinatorMessage::kWork:
      loop_.OnWork(message.work(), &actions);
      break;
    case proto::CoordinatorMessage::kEvaluationRequest:
      if (streams_ != nullptr) loop_.OnEvaluationRequest(message.evaluation_request(), &actions);
      break;
    case proto::CoordinatorMessage::kEndAt:
      loop_.OnEndAt(message.end_at(), &actions);
      break;
    case proto::CoordinatorMessage::kStop:
      was_stopped_ = true;
      End(FromStop(message.stop()));
      break;
    default:
      break;  // not for workers
  }
  RunActions(actions);
}

void Worker::OnView(const proto::View& view, WorkerActions* actions) {
  log_.emplace("worker", view.your_rank(), static_cast<LogLevel>(job_.log().level()),
               static_cast<LogFormat>(job_.log().format()));
  log_->Info("takes part", {{"view", view.number()}, {"workers", view.members_size()}});
  space_.emplace(model_->parameter_count(), job_.wire().chunk() / sizeof(float),
                 view.shards_size());
  // `prefetch` global batches, of which a worker's share is one of `workers` in either mode.
  const int64_t share =
      (job_.train().micro_batches() + view.members_size() - 1) / std::max(1, view.members_size());
  reader_ = std::make_unique<BatchReader>(&data_->train, job_.seed(), model_->max_batch(),
                                          job_.data().prefetch() * share);
  micro_batches_ =
      std::make_unique<MicroBatches>(model_.get(), &*space_, reader_.get(), job_.seed());
  parameters_.resize(space_->values());
  versions_.assign(space_->blocks(), 0);
  ShardStreams::Callbacks callbacks;
  callbacks.on_message = [this](int shard, const Message& message) {
    OnShardMessage(shard, message);
  };
  callbacks.on_failure = [this](int, const absl::Status& status) {
    mailbox_.Post([this, status] { OnStreamFailure(status); });
  };
  const std::vector<std::string> addresses(view.shards().begin(), view.shards().end());
  streams_ = std::make_unique<ShardStreams>(addresses, job_digest_, std::move(callbacks));
  loop_.OnView(view, actions);
}

void Worker::OnStreamFailure(const absl::Status& status) {
  if (!stream_failure_.ok()) return;
  stream_failure_ = StoppedByOthers(status);
  deadline_ = std::min(deadline_, absl::Now() + kStreamFailureGrace);
}

// Goes on working until the coordinator has ended the job in order, with a checkpoint.
void Worker::OnSignal(int signal) {
  interrupted_ = InterruptedBy(signal);
  if (streams_ == nullptr) {
    End(interrupted_);
    return;
  }
  proto::PeerMessage message;
  message.mutable_stop_request()->set_reason(std::string(interrupted_.message()));
  control_->Send(message);
  deadline_ = std::min(deadline_, absl::Now() + kStopGrace);
}

void Worker::RunActions(const WorkerActions& actions) {
  for (const WorkerAction& action : actions) {
    if (end_.has_value()) return;
    proto::PeerMessage message;
    switch (action.kind) {
      case WorkerAction::Kind::kPull:
        Pull(action);
        break;
      case WorkerAction::Kind::kRequestWork:
        message.mutable_work_request();
        control_->Send(message);
        break;
      case WorkerAction::Kind::kEvaluate:
        evaluator_->Start(action.unit, parameters_);
        break;
      case WorkerAction::Kind::kReadAhead:
        for (int64_t leaf = action.leaves.begin; leaf < action.leaves.end; ++leaf) {
          const SampleRange range = loop_.schedule().MicroBatch(action.unit, leaf);
          if (!range.positions.empty()) reader_->Announce(range);
        }
        break;
      case WorkerAction::Kind::kCompute:
        Compute(action);
        break;
      case WorkerAction::Kind::kFinish:
        message.mutable_worker_finished();
        control_->Send(message);
        break;
    }
  }
}

void Worker::Pull(const WorkerAction& action) {
  const proto::View& view = loop_.view();
  pull_clock_ = action.clock;
  pull_exact_ = view.mode() == proto::View::MODE_SYNC;
  missing_blocks_ = space_->blocks();
  staleness_sum_ = 0;
  for (int shard = 0; shard < space_->shards(); ++shard) {
    const Range blocks = space_->ShardBlocks(shard);
    if (blocks.empty()) continue;
    Frame frame;
    frame.kind = FrameKind::kPull;
    frame.view = view.number();
    frame.worker = action.observer ? kObserver : static_cast<uint32_t>(view.your_rank());
    frame.block = static_cast<uint64_t>(blocks.begin);
    frame.block_count = static_cast<uint32_t>(blocks.size());
    frame.clock = static_cast<uint64_t>(action.clock);
    streams_->Send(shard, frame, {});
  }
}

// On the streams' thread; nothing else touches what the pull fills until it is complete.
void Worker::OnShardMessage(int shard, const Message& message) {
  const Frame& frame = message.frame;
  const int64_t block = static_cast<int64_t>(frame.block);
  absl::Status status;
  if (frame.kind != FrameKind::kParameters || !space_->ShardBlocks(shard).Contains(block) ||
      static_cast<int64_t>(message.payload.values.size()) != space_->BlockValues(block).size()) {
    status = absl::InternalError(absl::StrFormat("shard %d sent %d values as block %d", shard,
                                                 message.payload.values.size(), block));
  } else if (pull_exact_ && static_cast<int64_t>(frame.version) != pull_clock_) {
    status =
        absl::InternalError(absl::StrFormat("shard %d sent version %d of block %d; expected %d",
                                            shard, frame.version, block, pull_clock_));
  }
  if (!status.ok()) {
    mailbox_.Post([this, status] { End(status); });
    return;
  }
  std::copy(message.payload.values.begin(), message.payload.values.end(),
            parameters_.begin() + space_->BlockValues(block).begin);
  versions_[block] = static_cast<int64_t>(frame.version);
  staleness_sum_ += frame.staleness;
  if (--missing_blocks_ > 0) return;
  mailbox_.Post([this] {
    WorkerActions actions;
    loop_.OnParameters(&actions);
    RunActions(actions);
  });
}

void Worker::Compute(const WorkerAction& action) {
  const proto::View& view = loop_.view();
  const bool on_arrival = view.mode() != proto::View::MODE_SYNC;
  const bool skip = job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP;
  // What must be judged as a whole is kept back until it is; else blocks leave while backward runs.
  const bool judge = on_arrival && (skip || job_.optimizer().has_clip_grad_norm());
  proto::PeerMessage message;
  proto::Progress* progress = message.mutable_progress();
  progress->set_unit(action.unit);
  progress->set_first_leaf(action.leaves.begin);
  progress->set_staleness(static_cast<double>(staleness_sum_) / space_->blocks());
  int64_t non_finite = -1;  // the first such value of the flat gradient
  for (const Range& node : action.nodes) {
    Frame frame;
    frame.kind = FrameKind::kPush;
    frame.view = view.number();
    frame.worker = static_cast<uint32_t>(view.your_rank());
    frame.incarnation = view.members(view.your_rank()).incarnation();
    frame.clock = static_cast<uint64_t>(action.clock);
    frame.unit = static_cast<uint64_t>(action.unit);
    frame.first_leaf = static_cast<uint32_t>(node.begin);
    frame.end_leaf = static_cast<uint32_t>(node.end);
    int64_t samples = 0;
    for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
      samples += loop_.schedule().MicroBatch(action.unit, leaf).positions.size();
    }
    frame.samples = static_cast<uint32_t>(samples);
    const auto send = [&](int64_t block, const Payload& payload) {
      frame.block = static_cast<uint64_t>(block);
      frame.version = static_cast<uint64_t>(versions_[block]);
      streams_->Send(space_->ShardOfBlock(block), frame, payload);
    };
    std::vector<std::pair<int64_t, Payload>> kept;
    const std::vector<BatchResult> results = micro_batches_->Compute(
        loop_.schedule(), action.unit, node, parameters_,
        [&](int64_t block, const Payload& payload) {
          // In sync with `skip`, the shards judge the whole step.
          if (on_arrival || !skip) {
            const size_t index = FirstNonFinite(payload.values);
            if (index < payload.values.size()) {
              non_finite = space_->BlockValues(block).begin + static_cast<int64_t>(index);
            }
          }
          if (judge) {
            kept.emplace_back(block, payload);
          } else if (non_finite < 0) {
            send(block, payload);
          }
        });
    for (size_t i = 0; i < results.size(); ++i) {
      if (!std::isfinite(results[i].loss_sum) && !skip) {
        End(absl::AbortedError(
            absl::StrFormat("%s %d: the loss of micro-batch %d is %g",
                            on_arrival ? "contribution" : "step", action.unit, node.begin + i,
                            results[i].loss_sum / static_cast<double>(results[i].samples))));
        return;
      }
      progress->add_loss_sum(results[i].loss_sum);
      if (IsClassification(job_.loss().name()))
        progress->add_correct(std::llround(results[i].correct));
      progress->add_samples(results[i].samples);
    }
    if (non_finite >= 0) break;
    if (judge) Clip(kept, samples);
    for (const auto& [block, payload] : kept) send(block, payload);
  }
  WorkerActions actions;
  if (non_finite >= 0 && !skip) {
    End(absl::AbortedError(absl::StrFormat("%s %d: the gradient of %s is not finite",
                                           on_arrival ? "contribution" : "step", action.unit,
                                           ParameterAt(non_finite))));
    return;
  }
  progress->set_left_out(non_finite >= 0);
  control_->Send(message);
  if (non_finite >= 0) {
    loop_.OnLeftOut(&actions);
  } else {
    loop_.OnComputed(&actions);
  }
  RunActions(actions);
}

void Worker::Clip(const std::vector<std::pair<int64_t, Payload>>& blocks, int64_t samples) const {
  if (!job_.optimizer().has_clip_grad_norm()) return;
  SumOfSquares squares(space_->values());
  for (const auto& [block, payload] : blocks) {
    squares.Add(space_->BlockValues(block).begin, payload.values);
  }
  const double norm = std::sqrt(squares.sum()) / static_cast<double>(samples);
  const double factor = std::min(1.0, job_.optimizer().clip_grad_norm() / (norm + 1e-6));
  if (factor >= 1) return;
  for (const auto& [block, payload] : blocks) {
    // The gradient is this worker's own, and nobody reads it yet.
    float* values = const_cast<float*>(payload.values.data());
    for (size_t i = 0; i < payload.values.size(); ++i) {
      values[i] *= static_cast<float>(factor);
    }
  }
}

std::string Worker::ParameterAt(int64_t index) const {
  for (const proto::Parameter& parameter : model_->layout().parameters()) {
    if (index < ValueCount(parameter)) return parameter.name();
    index -= ValueCount(parameter);
  }
  return "an unknown parameter";
}

// On the evaluator's thread.
void Worker::SendEvaluation(int64_t unit, const BatchResult& result) {
  proto::PeerMessage message;
  proto::EvaluationResult* evaluation = message.mutable_evaluation();
  evaluation->set_unit(unit);
  evaluation->set_loss_sum(result.loss_sum);
  if (IsClassification(job_.loss().name())) evaluation->set_correct(result.correct);
  evaluation->set_samples(result.samples);
  control_->Send(message);
}

// device.isa, for our own kernels and the matrix library's. Before any thread computes.
absl::Status FixIsa(proto::Device::Isa wanted) {
  const std::string name = proto::Device::Isa_Name(wanted);  // "ISA_AVX2"
  RUBATO_ASSIGN_OR_RETURN(const Isa isa,
                          IsaFromName(absl::AsciiStrToLower(absl::StripPrefix(name, "ISA_"))));
  SetIsa(isa);
  if (wanted != proto::Device::ISA_AUTO) FixMatMulKernels(isa);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunWorker(const proto::Job& job, const WorkerOptions& options,
                       SignalWatcher* signals) {
  RUBATO_RETURN_IF_ERROR(FixIsa(job.device().isa()));
  RUBATO_ASSIGN_OR_RETURN(const Data data, LoadData(job));
  Worker worker(job, &data);
  return worker.Run(options, signals);
}

}  // namespace rubato
