#include "worker/step/micro_batches.h"

#include <algorithm>
#include <utility>

#include "common/base/kernels.h"
#include "common/base/random.h"
#include "common/space/reduction_tree.h"

namespace rubato {

MicroBatches::MicroBatches(std::vector<Model*> models, const FlatSpace* space, BatchReader* reader,
                           uint64_t seed, std::shared_ptr<SharedArena> arena, bool is_split)
    : space_(space),
      reader_(reader),
      seed_(seed),
      buffers_(space->values(), std::move(arena)),
      lacks_spare_(is_split) {
  for (Model* model : models) {
    lanes_.push_back(std::make_unique<Lane>());
    Lane* const lane = lanes_.back().get();
    lane->model = model;
    if (lanes_.size() > 1) lane->thread = std::thread([this, lane] { RunLane(lane); });
  }
}

MicroBatches::~MicroBatches() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

int WaitingSums(int64_t leaves) {
  int height = 0;
  while ((int64_t{1} << height) < leaves) ++height;
  return height;
}

std::vector<Summing> SummingsOf(int64_t leaves, Range node) {
  const ReductionTree tree(leaves);
  std::vector<Summing> summings;
  std::vector<Range> kept;  // outermost first
  for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
    Range whole = {leaf, leaf + 1};
    Summing summing;
    while (!(whole == node) && !kept.empty() && tree.Sibling(whole) == kept.back()) {
      kept.pop_back();
      ++summing.adds;
      whole = tree.Parent(whole);
    }
    summing.leaves = whole == node;
    if (!summing.leaves) kept.push_back(whole);
    summings.push_back(summing);
  }
  return summings;
}

double MicroBatches::WeightOf(const SampleSchedule& schedule, int64_t unit) const {
  const Objective& objective = lanes_[0]->model->objective();
  if (objective.ignore_index < 0) return 1;
  int64_t labels = 0, ignored = 0;
  for (int64_t leaf = 0; leaf < schedule.leaves(); ++leaf) {
    const SampleRange range = schedule.MicroBatch(unit, leaf);
    labels += static_cast<int64_t>(range.positions.size()) * objective.places;
    ignored += reader_->CountLabels(range, objective.ignore_index);
  }
  return TargetWeight(labels, ignored);
}

absl::StatusOr<std::vector<BatchResult>> MicroBatches::ComputeOnDevice(
    const SampleSchedule& schedule, int64_t unit, Range node, absl::Span<const float> parameters,
    Push push, AwaitParameters await) {
  Lane& lane = *lanes_[0];
  const Gradient sum = buffers_.Take();
  const std::vector<Summing> summings = SummingsOf(schedule.leaves(), node);
  const double weight = WeightOf(schedule, unit);
  std::vector<BatchResult> results;
  int64_t next_block = space_->blocks() - 1;
  const auto leave = [&](int64_t done) {
    for (; next_block >= 0 && space_->BlockValues(next_block).begin >= done; --next_block) {
      const Range values = space_->BlockValues(next_block);
      push(next_block,
           Payload{sum, absl::MakeConstSpan(*sum).subspan(values.begin, values.size())});
    }
  };
  for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
    const SampleRange range = schedule.MicroBatch(unit, leaf);
    const bool is_empty = range.positions.empty();  // of a short unit
    if (!is_empty) reader_->ReadShuffled(range, &lane.batch);
    const std::optional<BatchResult> result = lane.model->GradientOnDevice(
        parameters, is_empty ? absl::Span<const float>() : lane.batch.inputs(),
        is_empty ? Targets() : lane.batch.targets(weight), Key(seed_, "dropout", unit, leaf),
        TensorRef(absl::MakeSpan(*sum)), summings[leaf - node.begin], leave, await);
    if (!result.has_value()) {
      return absl::CancelledError("nobody waits for the parameters any more");
    }
    results.push_back(*result);
  }
  return results;
}

bool MicroBatches::Agree(bool readable) {
  absl::MutexLock lock(&mutex_);
  if (!readable && outcome_ == Outcome::kOpen) outcome_ = Outcome::kEnds;
  return outcome_ != Outcome::kEnds;
}

bool MicroBatches::Commit() {
  absl::MutexLock lock(&mutex_);
  if (outcome_ == Outcome::kOpen) outcome_ = Outcome::kCommitted;
  return outcome_ == Outcome::kCommitted;
}

bool MicroBatches::ends() const {
  absl::MutexLock lock(&mutex_);
  return outcome_ == Outcome::kEnds;
}

void MicroBatches::RunLane(Lane* lane) {
  while (true) {
    std::function<void()> work;
    {
      const auto wanted = [this, lane]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closing_ || lane->work != nullptr;
      };
      absl::MutexLock lock(&mutex_, absl::Condition(&wanted));
      if (closing_) return;
      work = std::exchange(lane->work, nullptr);
    }
    work();
  }
}

void MicroBatches::SetReady(Lane* lane, int64_t begin) {
  absl::MutexLock lock(&mutex_);
  lane->ready = begin;
}

int64_t MicroBatches::OthersReadyBelow(int64_t than, size_t count) {
  int64_t begin = 0;
  const auto below = [&] {
    begin = 0;
    for (size_t i = 1; i < count; ++i) begin = std::max(begin, lanes_[i]->ready);
    return begin < than;
  };
  absl::MutexLock lock(&mutex_, absl::Condition(&below));
  return begin;
}

absl::StatusOr<std::vector<BatchResult>> MicroBatches::Compute(const SampleSchedule& schedule,
                                                               int64_t unit, Range node,
                                                               absl::Span<const float> parameters,
                                                               Push push, AwaitParameters await) {
  Gradient spare;  // held here once, so that there is one more than a step needs
  if (std::exchange(lacks_spare_, false)) spare = buffers_.Take();
  for (const auto& lane : lanes_) lane->model->OnNewParameters();
  if (lanes_.size() == 1 && node.size() > 1 &&
      lanes_[0]->model->keeps() >= WaitingSums(schedule.leaves())) {
    return ComputeOnDevice(schedule, unit, node, parameters, push, await);
  }
  {
    absl::MutexLock lock(&mutex_);
    outcome_ = Outcome::kOpen;
  }
  const auto agreed = [&](Range values) { return Agree(await(values)); };
  const ReductionTree tree(schedule.leaves());
  const Work work{schedule, unit, WeightOf(schedule, unit), parameters, agreed};
  std::vector<BatchResult> results;
  std::vector<Sum> sums;  // of finished left siblings, outermost first
  for (int64_t first = node.begin; first < node.end; first += static_cast<int64_t>(lanes_.size())) {
    Round round = PlanRound(tree, node, first, &sums);
    for (size_t i = round.count; i-- > 1;) ComputeBeside(work, round, i);
    ComputeHere(work, &round, push);
    while (round.next_block >= 0 && !ends()) {
      const int64_t begin = space_->BlockValues(round.next_block).begin;
      Fold(OthersReadyBelow(begin + 1, round.count), &round, push);
    }
    OthersReadyBelow(1, round.count);
    if (ends()) return absl::CancelledError("nobody waits for the parameters any more");
    for (size_t i = 0; i < round.count; ++i) results.push_back(*lanes_[i]->result);
  }
  return results;
}

MicroBatches::Round MicroBatches::PlanRound(const ReductionTree& tree, Range node, int64_t first,
                                            std::vector<Sum>* sums) {
  Round round;
  round.first = first;
  round.count =
      static_cast<size_t>(std::min(static_cast<int64_t>(lanes_.size()), node.end - first));
  round.next_block = space_->blocks() - 1;
  for (size_t i = 0; i < round.count; ++i) {
    const int64_t leaf = first + static_cast<int64_t>(i);
    Sum sum{{leaf, leaf + 1}, buffers_.Take()};
    round.gradients.push_back(sum.gradient);
    while (!(sum.node == node) && !sums->empty() && tree.Sibling(sum.node) == sums->back().node) {
      round.additions.push_back({std::move(sums->back().gradient), sum.gradient->data()});
      sums->pop_back();
      sum.node = tree.Parent(sum.node);
    }
    sums->push_back(std::move(sum));
  }
  if (sums->back().node == node) round.sum = sums->back().gradient;
  return round;
}

void MicroBatches::Fold(int64_t done, Round* round, Push push) {
  // The first lane has all parameters by now, so the others may go on, too.
  if (round->sum != nullptr && !Commit()) return;
  for (; round->next_block >= 0 && space_->BlockValues(round->next_block).begin >= done;
       --round->next_block) {
    const Range values = space_->BlockValues(round->next_block);
    for (const Addition& addition : round->additions) {
      float* const to = addition.to + values.begin;
      Add(addition.from->data() + values.begin, to, to, values.size());
    }
    if (round->sum == nullptr) continue;
    push(
        round->next_block,
        Payload{round->sum, absl::MakeConstSpan(*round->sum).subspan(values.begin, values.size())});
  }
}

void MicroBatches::ComputeBeside(const Work& work, const Round& round, size_t i) {
  Lane* const lane = lanes_[i].get();
  const int64_t leaf = round.first + static_cast<int64_t>(i);
  const SampleRange range = work.schedule.MicroBatch(work.unit, leaf);
  const absl::Span<float> gradient = absl::MakeSpan(*round.gradients[i]);
  lane->result = BatchResult();
  if (range.positions.empty()) {  // of a short unit
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    SetReady(lane, 0);
    return;
  }
  reader_->ReadShuffled(range, &lane->batch);
  const uint64_t key = Key(seed_, "dropout", work.unit, leaf);
  absl::MutexLock lock(&mutex_);
  lane->ready = space_->values();
  lane->work = [this, lane, work, gradient, key] {
    lane->result = lane->model->Gradient(
        work.parameters, lane->batch.inputs(), lane->batch.targets(work.weight), key,
        TensorRef(gradient), [&](int64_t begin) { SetReady(lane, std::max<int64_t>(begin, 1)); },
        work.await);
    SetReady(lane, 0);  // not before its result is there
  };
}

void MicroBatches::ComputeHere(const Work& work, Round* round, Push push) {
  Lane* const lane = lanes_[0].get();
  const SampleRange range = work.schedule.MicroBatch(work.unit, round->first);
  const absl::Span<float> gradient = absl::MakeSpan(*round->gradients[0]);
  lane->result = BatchResult();
  if (range.positions.empty()) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    if (!work.await({0, space_->values()})) lane->result.reset();
    return;
  }
  reader_->ReadShuffled(range, &lane->batch);
  lane->result = lane->model->Gradient(
      work.parameters, lane->batch.inputs(), lane->batch.targets(work.weight),
      Key(seed_, "dropout", work.unit, round->first), TensorRef(gradient),
      [&](int64_t begin) {
        Fold(std::max(begin, OthersReadyBelow(space_->values() + 1, round->count)), round, push);
      },
      work.await);
}

int64_t MicroBatches::MaxBuffers(int64_t leaves, Range node, int64_t threads) {
  const ReductionTree tree(leaves);
  std::vector<Range> sums;
  int64_t most = 0;
  for (int64_t first = node.begin; first < node.end; first += threads) {
    const int64_t count = std::min(threads, node.end - first);
    most = std::max(most, static_cast<int64_t>(sums.size()) + count);
    for (int64_t leaf = first; leaf < first + count; ++leaf) {
      Range sum{leaf, leaf + 1};
      while (!(sum == node) && !sums.empty() && tree.Sibling(sum) == sums.back()) {
        sums.pop_back();
        sum = tree.Parent(sum);
      }
      sums.push_back(sum);
    }
  }
  return most;
}

}  // namespace rubato
