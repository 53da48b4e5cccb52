#include "worker/script/script_values.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/kernels.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "common/space/permutation.h"
#include "common/wire/stream_memory.h"
#include "worker/step/micro_batches.h"

namespace rubato {
namespace {

constexpr int64_t kMostWeight = std::numeric_limits<uint32_t>::max();  // Frame::weight

// A number; null or nothing: not known; "nan" and "inf", which JSON has no numbers for.
std::optional<double> RealAt(const nlohmann::json& frame, const char* name) {
  const auto found = frame.find(name);
  if (found == frame.end() || found->is_null()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  return std::numeric_limits<double>::quiet_NaN();
}

// Nothing: the samples. What no weight can be is -1.
std::optional<int64_t> WeightAt(const nlohmann::json& frame) {
  const std::optional<double> weight = RealAt(frame, "weight");
  if (!weight.has_value()) return std::nullopt;
  const bool is_one = *weight >= 0 && *weight <= static_cast<double>(kMostWeight);
  return is_one ? static_cast<int64_t>(*weight) : -1;
}

}  // namespace

ScriptValues::ScriptValues(const proto::Job& job, const proto::WorkerRegistration& registration,
                           ScriptAbilities abilities, ScriptChannel* channel, Callbacks callbacks)
    : WorkerValues(job, registration.layout()),
      registration_(registration),
      abilities_(abilities),
      channel_(*channel),
      callbacks_(std::move(callbacks)),
      seed_(job.seed()),
      regions_{std::make_shared<absl::Span<float>>(channel->gradient(0)),
               std::make_shared<absl::Span<float>>(channel->gradient(1))},
      hears_([this] { Hear(); }) {}

ScriptValues::~ScriptValues() {
  ends_ = true;
  channel_.EndReading();
  hears_.join();
}

absl::Span<float> ScriptValues::TakeRegion() {
  MonotonicLock lock(&mutex_);
  if (!is_asked_ || given_.id < 0) return {};
  has_of_unit_ = -1;
  return channel_.parameters();
}

void ScriptValues::OnView(const proto::View& view, int64_t max_values) {
  where_ = {{"rank", view.your_rank()},
            {"workers", view.members_size()},
            {"mode", ModeName(view.mode())},
            {"version", absl::StrCat(view.term(), ".", view.lineage(), ".", view.number())}};
  schedule_.emplace(ScheduleOf(job(), view.mode(), view.samples_per_epoch(), view.origin_unit(),
                               view.origin_samples()));
  announced_.clear();
  channel_.Note(ScriptStage::kTraining);
  {
    MonotonicLock lock(&mutex_);
    has_of_unit_ = -1;  // parameters are pulled anew
  }
  if (has_sums()) return;
  lends_ = arena() != nullptr && LendsGradients(max_values);
  buffers_.emplace(space().values(), lends_ ? arena() : nullptr);
  UseSums(this);
}

nlohmann::json ScriptValues::Describe(const SampleSchedule& schedule, int64_t unit,
                                      int64_t leaf) const {
  const SampleRange range = schedule.MicroBatch(unit, leaf);
  nlohmann::json samples = nlohmann::json::array();
  for (int64_t place = range.positions.begin; place < range.positions.end; ++place) {
    samples.push_back(SampleAt(seed_, static_cast<uint64_t>(range.epoch),
                               static_cast<uint64_t>(place),
                               static_cast<uint64_t>(registration_.train_samples())));
  }
  return {{"unit", unit},
          {"leaf", leaf},
          {"epoch", range.epoch},
          {"begin", range.positions.begin},
          {"end", range.positions.end},
          {"samples", std::move(samples)}};
}

void ScriptValues::ReadAhead(const SampleSchedule& schedule, int64_t unit, Range leaves) {
  for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
    if (schedule.MicroBatch(unit, leaf).positions.empty()) continue;
    ahead_.push_back(Describe(schedule, unit, leaf));
    if (abilities_.samples_once) announced_.insert({unit, leaf});
  }
}

nlohmann::json ScriptValues::Lend(absl::Span<float> values) const {
  if (arena() == nullptr || values.empty()) return nullptr;
  const std::optional<uint64_t> offset =
      arena()->Find({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  if (!offset.has_value()) return nullptr;
  return {{"arena", arena()->Offer()}, {"offset", *offset}};
}

bool ScriptValues::ChooseRegion() {
  region_ = 1 - region_;
  const bool is_free = regions_[region_].use_count() == 1;
  const bool other_is_free = regions_[1 - region_].use_count() == 1;
  std::atomic_thread_fence(std::memory_order_acquire);  // after what the last reader did
  if (!is_free) region_ = 1 - region_;
  return is_free && other_is_free;
}

void ScriptValues::HandOut(const SampleSchedule& schedule, int64_t unit, int64_t leaf,
                           absl::Span<const float> parameters, absl::Span<float> sum,
                           const Adding& adding) {
  nlohmann::json work = Describe(schedule, unit, leaf);
  if (announced_.erase({unit, leaf}) > 0) work.erase("samples");
  work.update(where_);
  work["kind"] = "work";
  work["id"] = ++id_;
  work["gradient"] = region_;
  work["lent"] = Lend(sum);
  if (abilities_.adds) {
    work["kept"] = adding.kept;
    work["adds"] = adding.adds;
    work["keeps"] = adding.keeps;
  }
  work["leaves"] = schedule.leaves();
  work["unit_samples"] = schedule.Samples(unit, {0, schedule.leaves()});
  work["samples_before"] = schedule.SamplesBefore(unit);
  work["ahead"] = std::exchange(ahead_, nlohmann::json::array());
  const auto is_asked = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_asked_ || has_gone_;
  };
  MonotonicLock lock(&mutex_, absl::Condition(&is_asked));
  if (has_gone_) return;
  const bool is_new = std::exchange(has_of_unit_, unit) != unit;
  work["new"] = is_new;
  // The script reads its parameters while it has not asked: then they lie elsewhere.
  const absl::Span<float> region = channel_.parameters();
  if (is_new && parameters.data() != region.data()) {
    std::copy(parameters.begin(), parameters.end(), region.begin());
  }
  const bool tests = test_.has_value() && !test_->is_final;
  work["tests"] = tests;
  if (tests) test_->is_handed_out = true;
  is_asked_ = false;
  channel_.Note(ScriptStage::kTraining);
  channel_.Write(work);
}

std::optional<ScriptValues::Given> ScriptValues::AwaitMore(int64_t done) {
  const auto has_more = [this, done]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return given_.id == id_ && (given_.is_whole || given_.begin < done);
  };
  const auto is_over = [this, &has_more]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_gone_ || has_more();
  };
  MonotonicLock lock(&mutex_, absl::Condition(&is_over));
  if (!has_more()) return std::nullopt;
  if (given_.is_whole && test_.has_value() && !test_->is_final) Tell(nullptr);
  return given_;
}

absl::StatusOr<BatchResult> ScriptValues::ComputeLeaf(const SampleSchedule& schedule, int64_t unit,
                                                      int64_t leaf,
                                                      absl::Span<const float> parameters,
                                                      absl::Span<float> sum, const Adding& adding,
                                                      absl::FunctionRef<void(int64_t)> on_filled) {
  HandOut(schedule, unit, leaf, parameters, sum, adding);
  const int64_t samples = schedule.MicroBatch(unit, leaf).positions.size();
  const int64_t before = weight_;
  std::optional<int64_t> said;  // the weight, with values that have left
  for (int64_t done = space().values();;) {
    const std::optional<Given> given = AwaitMore(done);
    if (!given.has_value()) return absl::UnavailableError("the script has ended");
    const int64_t weight = given->weight.value_or(samples);
    if (weight < 0 || weight > kMostWeight - before) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "step or contribution %d: found a micro-batch of weight %d, expected 0 to %d, and no "
          "more in all",
          unit, weight, kMostWeight));
    }
    if (said.value_or(weight) != weight) {
      return absl::InvalidArgumentError(
          absl::StrFormat("step or contribution %d: found a micro-batch of weight %d, expected %d, "
                          "as was said with its first values",
                          unit, weight, *said));
    }
    said = weight;
    weight_ = before + weight;
    given_in_place_ = given->is_in_place;
    if (given->is_whole) {
      BatchResult result;
      result.samples = samples;
      result.loss_sum = given->loss_sum.value_or(0);
      result.told = given->loss_sum.has_value() ? static_cast<double>(weight) : 0;
      return result;
    }
    done = given->begin;
    on_filled(done);
  }
}

absl::StatusOr<std::vector<BatchResult>> ScriptValues::Compute(const SampleSchedule& schedule,
                                                               int64_t unit, Range node,
                                                               absl::Span<const float> parameters,
                                                               Push push, AwaitParameters await) {
  if (!await({0, space().values()})) {
    return absl::CancelledError("nobody waits for the parameters any more");
  }
  const std::vector<Summing> summings = SummingsOf(schedule.leaves(), node);
  const auto is_empty_at = [&](int64_t leaf) {  // of a short unit
    return schedule.MicroBatch(unit, leaf).positions.empty();
  };
  // A script does not hear of micro-batches without samples.
  bool script_adds = abilities_.adds;
  for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
    script_adds = script_adds && !is_empty_at(leaf);
  }
  weight_ = 0;
  std::vector<BatchResult> results;
  std::vector<GradientBuffers::Gradient> sums;  // of finished left siblings, outermost first
  Adding adding;
  for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
    Summing summing = summings[leaf - node.begin];
    const bool may_send_region = ChooseRegion();
    if (script_adds) {
      adding.adds = std::exchange(summing.adds, 0);
      adding.keeps = !summing.leaves;
      if (adding.keeps) {
        RUBATO_ASSIGN_OR_RETURN(
            results.emplace_back(),
            ComputeLeaf(schedule, unit, leaf, parameters, {}, adding, [](int64_t) {}));
        adding.kept += 1 - adding.adds;
        continue;
      }
    }
    const bool is_empty = is_empty_at(leaf);
    // The sum that leaves takes the place of the last gradient, unless servers read it elsewhere.
    const bool is_region = may_send_region && !lends_ && summing.leaves;
    const GradientBuffers::Gradient sum = is_region ? regions_[region_] : buffers_->Take();
    int64_t next_block = space().blocks() - 1;
    // Values from `done` on are final: blocks of them are added up and, of the last leaf, leave.
    const auto on_filled = [&](int64_t done) {
      const float* const gradient =
          is_empty || given_in_place_ ? sum->data() : regions_[region_]->data();
      for (; next_block >= 0 && space().BlockValues(next_block).begin >= done; --next_block) {
        const Range values = space().BlockValues(next_block);
        const float* from = gradient + values.begin;
        float* const to = sum->data() + values.begin;
        for (int added = 0; added < summing.adds; ++added) {
          Add(sums[sums.size() - 1 - added]->data() + values.begin, from, to, values.size());
          from = to;
        }
        if (from != to) std::copy_n(from, values.size(), to);
        if (!summing.leaves) continue;
        push(next_block,
             Payload{sum, absl::MakeConstSpan(*sum).subspan(values.begin, values.size())});
      }
    };
    if (is_empty) {
      std::fill(sum->begin(), sum->end(), 0.0f);
      results.emplace_back();
    } else {
      RUBATO_ASSIGN_OR_RETURN(
          results.emplace_back(),
          ComputeLeaf(schedule, unit, leaf, parameters, absl::MakeSpan(*sum), adding, on_filled));
    }
    on_filled(0);
    sums.resize(sums.size() - static_cast<size_t>(summing.adds));
    sums.push_back(sum);
  }
  return results;
}

void ScriptValues::StartTest(int64_t unit, absl::Span<const float> parameters, bool is_final) {
  MonotonicLock lock(&mutex_);
  test_ = Test{unit, is_final, false, schedule_->SamplesBefore(unit)};
  if (has_gone_) {  // the coordinator need not wait for it
    Tell(nullptr);
    return;
  }
  if (!is_final) return;  // it is handed out with the micro-batch that follows
  final_.assign(parameters.begin(), parameters.end());
  MaybeHandOutFinal();
}

void ScriptValues::MaybeHandOutFinal() {
  if (!is_asked_ || !test_.has_value() || !test_->is_final || test_->is_handed_out) return;
  is_asked_ = false;
  test_->is_handed_out = true;
  has_of_unit_ = -1;
  std::copy(final_.begin(), final_.end(), channel_.parameters().begin());
  nlohmann::json frame = where_;
  frame["kind"] = "final";
  frame["tests"] = true;
  frame["new"] = true;
  frame["unit"] = test_->unit;
  frame["samples_before"] = test_->samples_before;
  channel_.Note(ScriptStage::kFinal);
  channel_.Write(frame);
}

// Nothing is being computed any more: the gradients' regions are free (if something of them is
// still being sent, it counts nowhere), and that of the parameters is the script's. So this frame
// need not be asked for. The script writes to its region when it takes them, and asks again: what
// it has asked, or is about to, before that does not count.
void ScriptValues::KeepFinal(int64_t unit, absl::Span<const float> parameters) {
  MonotonicLock lock(&mutex_);
  if (!std::exchange(is_asked_, false)) ++asks_before_;
  has_of_unit_ = -1;
  std::copy(parameters.begin(), parameters.end(), channel_.gradient(0).begin());
  nlohmann::json frame = where_;
  frame["kind"] = "final";
  frame["tests"] = false;
  frame["unit"] = unit;
  frame["samples_before"] = schedule_->SamplesBefore(unit);
  channel_.Note(ScriptStage::kFinal);
  channel_.Write(frame);
}

void ScriptValues::Tell(const nlohmann::json& frame) {
  if (!test_.has_value()) return;
  proto::EvaluationResult result;
  result.set_unit(test_->unit);
  result.set_is_final(test_->is_final);
  result.set_samples(has_gone_ ? 0 : 1);  // 0: it is not tested
  if (const auto loss = RealAt(frame, "loss")) result.set_loss_sum(*loss);
  if (const auto accuracy = RealAt(frame, "accuracy")) result.set_correct(*accuracy);
  const auto figures = frame.find("figures");
  if (figures != frame.end() && figures->is_object()) {
    for (const auto& figure : figures->items()) {
      const std::optional<double> value = RealAt(*figures, figure.key().c_str());
      if (!value.has_value()) continue;
      proto::EvaluationResult::Figure& other = *result.add_others();
      other.set_name(figure.key());
      other.set_value(*value);
    }
  }
  const bool is_told = result.has_loss_sum() || result.has_correct() || result.others_size() > 0;
  result.set_judged(is_told ? 1 : 0);
  test_.reset();
  callbacks_.on_tested(result);
}

void ScriptValues::EndTests() {
  MonotonicLock lock(&mutex_);
  test_.reset();
  channel_.Note(ScriptStage::kOutside);
}

void ScriptValues::Hear() {
  absl::StatusOr<nlohmann::json> frame = channel_.Read();
  for (; frame.ok(); frame = channel_.Read()) On(*frame);
  if (!ends_) channel_.EndNotes();
  callbacks_.on_leave(absl::CancelledError(frame.status().message()));
  MonotonicLock lock(&mutex_);
  has_gone_ = true;
  Tell(nullptr);
}

void ScriptValues::On(const nlohmann::json& frame) {
  const std::string kind = TextAt(frame, "kind");
  if (kind == "leave") {
    callbacks_.on_leave(InterruptedBy(SIGTERM));
    return;
  }
  MonotonicLock lock(&mutex_);
  if (kind == "next") {
    if (asks_before_ > 0) {
      --asks_before_;
      return;
    }
    is_asked_ = true;
    MaybeHandOutFinal();
  } else if (kind == "ready" || kind == "give") {
    given_.id = static_cast<int64_t>(NumberAt(frame, "id"));
    given_.is_whole = kind == "give";
    given_.begin = static_cast<int64_t>(NumberAt(frame, "begin"));
    given_.is_in_place = FlagAt(frame, "in_place");
    given_.weight = WeightAt(frame);
    given_.loss_sum = RealAt(frame, "loss_sum");
  } else if (kind == "tested" && test_.has_value() && test_->is_handed_out) {  // not an older one
    Tell(frame);
  }
}

}  // namespace rubato
