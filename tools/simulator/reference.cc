#include "tools/simulator/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/simulator/symbol.h"

namespace rubato::reference {

Units::Units(const proto::Job& job, bool on_arrival, int64_t epoch_samples, int64_t first,
             int64_t samples)
    : is_script_(job.model().preset() == proto::Model::PRESET_SCRIPT),
      seed_(job.seed()),
      epoch_samples_(epoch_samples),
      first_(first) {
  const int64_t micro_batches = job.train().micro_batches();
  const int64_t workers = on_arrival ? job.cluster().workers().start() : 1;
  parts_ = workers > micro_batches ? 1 : micro_batches / workers;
  unit_samples_ = parts_ * (job.train().batch_size() / micro_batches);
  const int64_t begin = samples % epoch_samples;
  units_.push_back(
      {samples / epoch_samples, begin, std::min(begin + unit_samples_, epoch_samples)});
}

const Samples& Units::At(int64_t unit) const {
  while (static_cast<int64_t>(units_.size()) <= unit - first_) {
    Samples next = units_.back();
    next.begin = next.end;
    if (next.begin == epoch_samples_) {
      ++next.epoch;
      next.begin = 0;
    }
    next.end = std::min(next.begin + unit_samples_, epoch_samples_);
    units_.push_back(next);
  }
  return units_[unit - first_];
}

int64_t Units::Before(int64_t unit) const {
  const Samples& at = At(unit);
  return at.epoch * epoch_samples_ + at.begin;
}

int64_t Units::From(int64_t samples) const {
  int64_t unit = first_;
  while (Before(unit) < samples) ++unit;
  return unit;
}

Samples Units::Part(int64_t unit, int64_t part) const {
  const Samples& all = At(unit);
  return {all.epoch, all.begin + part * all.count() / parts_,
          all.begin + (part + 1) * all.count() / parts_};
}

int64_t Units::Weight(int64_t unit) const {
  if (!is_script_) return At(unit).count();
  int64_t weight = 0;
  for (int64_t part = 0; part < parts_; ++part) {
    const Samples of = Part(unit, part);
    weight += WeightOf(seed_, of.epoch, of.begin, of.end);
  }
  return weight;
}

uint64_t Units::Gradient(uint64_t seed, int64_t unit, int64_t block, uint64_t parameters) const {
  struct Waiting {
    int64_t parts;
    uint64_t sum;
  };
  std::vector<Waiting> waiting;
  for (int64_t part = 0; part < parts_; ++part) {
    const Samples of = Part(unit, part);
    waiting.push_back({1, LeafSymbol(seed, of.epoch, of.begin, of.end, block, parameters)});
    for (size_t n = waiting.size(); n > 1 && waiting[n - 1].parts == waiting[n - 2].parts; --n) {
      waiting[n - 2].sum = SumSymbol(waiting[n - 2].sum, waiting[n - 1].sum);
      waiting[n - 2].parts *= 2;
      waiting.pop_back();
    }
  }
  while (waiting.size() > 1) {
    const uint64_t right = waiting.back().sum;
    waiting.pop_back();
    waiting.back().sum = SumSymbol(waiting.back().sum, right);
  }
  return waiting.back().sum;
}

int64_t TotalSamples(const proto::Job& job, int64_t epoch_samples) {
  if (job.train().until().has_time()) return std::numeric_limits<int64_t>::max();
  return Units(job, /*on_arrival=*/false, epoch_samples, 0, 0).Before(job.train().until().steps());
}

Stage StageAt(const proto::Job& job, int64_t epoch_samples, int64_t samples) {
  const int64_t total = TotalSamples(job, epoch_samples);
  for (const proto::Stage& stage : job.consistency().schedule()) {
    if (stage.has_until() && samples < stage.until().samples()) {
      return {stage.mode(), std::min(stage.until().samples(), total)};
    }
    if (!stage.has_until()) return {stage.mode(), total};
  }
  return {job.consistency().mode(), total};
}

bool IsDue(const proto::Job& job, const proto::Point& every, bool on_arrival, int64_t epoch_samples,
           const Units& units, int64_t first, int64_t unit) {
  if (unit <= first) return false;
  if (every.has_steps() && !on_arrival) return unit % every.steps() == 0;
  int64_t samples = every.samples();
  if (every.has_steps()) samples = every.steps() * job.train().batch_size();
  if (every.has_epochs()) {
    samples =
        std::max<int64_t>(1, std::llround(every.epochs() * static_cast<double>(epoch_samples)));
  }
  return units.Before(unit) / samples > units.Before(unit - 1) / samples;
}

bool IsTarget(const proto::Job& job, int64_t unit) {
  return job.train().has_stop_when() && TestLoss(unit) <= job.train().stop_when().at_most();
}

double RateOf(const proto::Job& job, int64_t samples) {
  if (!job.optimizer().learning_rate_parity()) return 1;
  return static_cast<double>(samples) / static_cast<double>(job.train().batch_size());
}

double ClipFactor(const proto::Job& job, double squares, int64_t weight) {
  if (!job.optimizer().has_clip_grad_norm()) return 1;
  const double norm = std::sqrt(squares) / static_cast<double>(weight);
  return std::min(1.0, job.optimizer().clip_grad_norm() / (norm + 1e-6));
}

}  // namespace rubato::reference
