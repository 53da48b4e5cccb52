#include "worker/step/micro_batches.h"

#include <algorithm>
#include <utility>

#include "common/base/kernels.h"
#include "common/base/random.h"
#include "common/space/reduction_tree.h"
#include "worker/step/model_pins.h"

namespace rubato {

MicroBatches::MicroBatches(std::vector<Model*> models, const FlatSpace* space, BatchReader* reader,
                           uint64_t seed, std::shared_ptr<SharedArena> arena, bool is_split,
                           ExchangedSums* exchange)
    : space_(space),
      reader_(reader),
      seed_(seed),
      buffers_(space->values(), std::move(arena), PinIn(models)),
      lacks_spare_(is_split),
      exchange_(exchange) {
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
  if (!WeighsLabels(objective)) return 1;
  int64_t labels = 0;
  double weights = 0;
  for (int64_t leaf = 0; leaf < schedule.leaves(); ++leaf) {
    const SampleRange range = schedule.MicroBatch(unit, leaf);
    labels += static_cast<int64_t>(range.positions.size()) * objective.places;
    weights += reader_->WeightOf(range, objective);
  }
  return TargetWeight(labels, weights);
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
  {
    absl::MutexLock lock(&mutex_);
    outcome_ = Outcome::kOpen;
  }
  const auto agreed = [&](Range values) { return Agree(await(values)); };
  const auto cancelled = [] {
    return absl::CancelledError("nobody waits for the parameters any more");
  };
  if (exchange_ != nullptr && !exchange_->SendParameters(parameters, agreed)) return cancelled();
  const ReductionTree tree(schedule.leaves());
  const Work work{schedule, unit, WeightOf(schedule, unit), parameters, agreed};
  std::vector<BatchResult> results(node.size());
  Waiting waiting;
  for (LaneRound& plan : PlanLanes(node, lanes(), keeps())) {
    Round round = PlanRound(tree, node, std::move(plan), &waiting);
    for (int64_t turn = 0; turn < round.plan.turns; ++turn) {
      ComputeTurn(work, turn, &round, push, node.begin, &results);
      if (ends()) return cancelled();
    }
  }
  return results;
}

std::vector<int64_t> MicroBatches::ReadingOrder(int64_t leaves, Range own) const {
  std::vector<int64_t> order;
  for (const Range& node : ReductionTree(leaves).MaximalNodes(own)) {
    for (const LaneRound& round : PlanLanes(node, lanes(), keeps())) {
      for (int64_t turn = 0; turn < round.turns; ++turn) {
        for (size_t i = 0; i < round.items.size(); ++i) {
          if (const std::optional<int64_t> leaf = round.Leaf(i, turn)) order.push_back(*leaf);
        }
      }
    }
  }
  return order;
}

MicroBatches::Round MicroBatches::PlanRound(const ReductionTree& tree, Range node, LaneRound plan,
                                            Waiting* waiting) {
  Round round;
  round.next_block = space_->blocks() - 1;
  for (const Range& item : plan.items) {
    round.summings.push_back(SummingsOf(tree.leaves(), item));
    round.summings.back().back().stays = exchange_ != nullptr;
    if (exchange_ == nullptr) round.gradients.push_back(buffers_.Take());
  }
  SumsOfRound sums = SumRound(tree, node, plan.items, &waiting->nodes);
  round.plan = std::move(plan);
  if (exchange_ != nullptr) {
    if (sums.whole >= 0) round.sum = buffers_.Take();
    exchange_->BeginRound(std::move(sums),
                          round.sum == nullptr ? absl::Span<float>() : absl::MakeSpan(*round.sum));
    return round;
  }
  for (const SumsOfRound::Addition& addition : sums.additions) {
    round.additions.push_back(
        {addition.from < 0 ? waiting->gradients[~addition.from] : round.gradients[addition.from],
         round.gradients[addition.to]->data()});
  }
  waiting->gradients.resize(waiting->nodes.size());
  for (const SumsOfRound::Wait& wait : sums.waits) {
    waiting->gradients[wait.place] = round.gradients[wait.item];
  }
  if (sums.whole >= 0) round.sum = round.gradients[sums.whole];
  return round;
}

void MicroBatches::ComputeTurn(const Work& work, int64_t turn, Round* round, Push push,
                               int64_t first, std::vector<BatchResult>* results) {
  const size_t count = round->plan.items.size();
  std::optional<Task> here;
  for (size_t i = 0; i < count; ++i) {
    Lane* const lane = lanes_[i].get();
    const std::optional<int64_t> leaf = round->plan.Leaf(i, turn);
    if (!leaf.has_value()) continue;
    const SampleRange range = work.schedule.MicroBatch(work.unit, *leaf);
    const Task task{
        *leaf, range.positions.empty(), round->summings[i][*leaf - round->plan.items[i].begin],
        exchange_ == nullptr ? absl::MakeSpan(*round->gradients[i]) : absl::Span<float>()};
    if (!task.is_empty) reader_->ReadShuffled(range, &lane->batch);
    i > 0 ? ComputeBeside(work, task, lane) : static_cast<void>(here = task);
  }
  if (here.has_value()) {
    lanes_[0]->result = ComputeLeaf(work, *here, lanes_[0].get(), [&](int64_t begin) {
      Fold(std::max(begin, OthersReadyBelow(space_->values() + 1, count)), round, push);
    });
  }
  if (turn + 1 == round->plan.turns) FoldRest(count, round, push);
  OthersReadyBelow(1, count);
  for (size_t i = 0; i < count && !ends(); ++i) {
    const std::optional<int64_t> leaf = round->plan.Leaf(i, turn);
    if (leaf.has_value()) (*results)[*leaf - first] = *lanes_[i]->result;
  }
}

void MicroBatches::Fold(int64_t done, Round* round, Push push) {
  // The first lane has all parameters by now, so the others may go on, too.
  if (round->sum != nullptr && !Commit()) return;
  FoldBlocks(exchange_ == nullptr ? done : exchange_->Give(done), round, push);
}

void MicroBatches::FoldRest(size_t count, Round* round, Push push) {
  if (exchange_ != nullptr) {
    while (const std::optional<int64_t> begin = exchange_->next()) {
      Fold(OthersReadyBelow(*begin + 1, count), round, push);
    }
    FoldBlocks(exchange_->Finish(), round, push);
  }
  while (round->next_block >= 0 && !ends()) {
    const int64_t begin = space_->BlockValues(round->next_block).begin;
    Fold(OthersReadyBelow(begin + 1, count), round, push);
  }
}

void MicroBatches::FoldBlocks(int64_t done, Round* round, Push push) {
  for (; round->next_block >= 0 && space_->BlockValues(round->next_block).begin >= done;
       --round->next_block) {
    const Range values = space_->BlockValues(round->next_block);
    for (const Addition& addition : round->additions) {
      float* const to = addition.to + values.begin;
      Add(addition.from->data() + values.begin, to, to, values.size());
    }
    if (round->sum == nullptr) continue;
    is_known_finite_ = lanes() == 1 && exchange_ == nullptr && round->additions.empty() &&
                       lanes_[0]->model->is_known_finite();
    push(
        round->next_block,
        Payload{round->sum, absl::MakeConstSpan(*round->sum).subspan(values.begin, values.size())});
  }
}

std::optional<BatchResult> MicroBatches::ComputeLeaf(
    const Work& work, const Task& task, Lane* lane,
    absl::FunctionRef<void(int64_t begin)> ready) const {
  const uint64_t key = Key(seed_, "dropout", work.unit, task.leaf);
  const Targets targets = task.is_empty ? Targets() : lane->batch.targets(work.weight);
  const absl::Span<const float> inputs =
      task.is_empty ? absl::Span<const float>() : lane->batch.inputs();
  if (lane->model->keeps() > 0 || exchange_ != nullptr) {
    return lane->model->GradientOnDevice(work.parameters, inputs, targets, key,
                                         TensorRef(task.gradient), task.summing, ready, work.await);
  }
  if (task.is_empty) {
    std::fill(task.gradient.begin(), task.gradient.end(), 0.0f);
    if (!work.await({0, space_->values()})) return std::nullopt;
    return BatchResult();
  }
  return lane->model->Gradient(work.parameters, inputs, targets, key, TensorRef(task.gradient),
                               ready, work.await);
}

void MicroBatches::ComputeBeside(const Work& work, const Task& task, Lane* lane) {
  absl::MutexLock lock(&mutex_);
  lane->ready = space_->values();
  lane->work = [this, lane, work, task] {
    lane->result = ComputeLeaf(work, task, lane,
                               [&](int64_t begin) { SetReady(lane, std::max<int64_t>(begin, 1)); });
    SetReady(lane, 0);  // not before its result is there
  };
}

int64_t MicroBatches::MaxBuffers(int64_t leaves, Range node, int64_t lanes, int keeps) {
  const ReductionTree tree(leaves);
  std::vector<Range> sums;
  size_t most = 0;
  for (const LaneRound& round : PlanLanes(node, lanes, keeps)) {
    most = std::max(most, sums.size() + round.items.size());
    for (Range sum : round.items) {
      while (!(sum == node) && !sums.empty() && tree.Sibling(sum) == sums.back()) {
        sums.pop_back();
        sum = tree.Parent(sum);
      }
      sums.push_back(sum);
    }
  }
  return static_cast<int64_t>(most);
}

}  // namespace rubato
