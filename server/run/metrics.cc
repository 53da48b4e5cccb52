#include "server/run/metrics.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/space/modes.h"
#include "server/run/line_stride.h"

namespace rubato {
namespace {

// Whoever watches sees something. Seconds.
constexpr double kLongestWindow = 5;

// Of a speed, where a run is as long: what workers hold back for up to ControlClient::kHeldFor (20
// ms) is then a fifth of it at most, even where one tells of more than another.
constexpr absl::Duration kLeastSpan = absl::Milliseconds(100);

}  // namespace

Metrics::Metrics(const proto::Job& job, int64_t samples_per_epoch, absl::Time start, absl::Time now)
    : samples_per_epoch_(samples_per_epoch),
      batch_size_(job.train().batch_size()),
      evaluated_split_(job.evaluation().split() == proto::Evaluation::SPLIT_TEST ? "test"
                                                                                 : "validation"),
      every_steps_(job.metrics().every().has_steps() ? job.metrics().every().steps() : 0),
      every_samples_(SamplesAt(job.metrics().every(), job.train().batch_size(), samples_per_epoch)),
      learning_rate_(job.optimizer(), job.train().batch_size(), samples_per_epoch,
                     job.train().until()),
      start_(start),
      begun_(now),
      last_(now),
      computed_(now),
      last_seconds_(Seconds(now)),
      window_start_(now),
      marks_({{now, 0}}) {}

void Metrics::Begin(std::shared_ptr<const Policy> policy, const proto::Mode& mode,
                    const SampleSchedule& schedule, int64_t units, int64_t samples,
                    int64_t origin_steps, std::vector<MetricsLine>* lines) {
  AddLine(lines);
  policy_ = std::move(policy);
  mode_ = ModeName(mode);
  sync_ = !policy_->on_arrival();
  schedule_ = schedule;
  units_ = units;
  samples_ = samples;
  origin_steps_ = origin_steps;
  open_.clear();
  if (!std::exchange(has_begun_, true)) samples_before_ = samples_;
}

std::vector<int64_t> Metrics::MissingLeaves() const {
  std::vector<int64_t> missing;
  const auto open = open_.find(units_);
  for (int64_t leaf = 0; leaf < schedule_->leaves(); ++leaf) {
    if (open == open_.end() || !open->second.leaves[leaf].done) missing.push_back(leaf);
  }
  return missing;
}

void Metrics::OnComputed(int rank, double seconds) {
  const size_t index = static_cast<size_t>(rank);
  computing_seconds_.resize(std::max(computing_seconds_.size(), index + 1));
  computing_seconds_[index] += seconds;
}

std::vector<WorkerTime> Metrics::WorkerTimes(absl::Time now) const {
  std::vector<WorkerTime> times;
  for (const double computing : computing_seconds_) {
    times.push_back({computing, 0, std::max(0.0, absl::ToDoubleSeconds(now - begun_) - computing)});
  }
  return times;
}

void Metrics::OnProgress(const proto::Progress& progress, absl::Time at,
                         std::vector<MetricsLine>* lines) {
  const int64_t parts = progress.loss_sum_size();
  const int64_t first = progress.first_leaf();
  const bool has_correct = progress.correct_size() > 0;
  const bool has_judged = progress.judged_size() > 0;
  window_pushed_ += progress.pushed_bytes();
  window_pulled_ += progress.pulled_bytes();
  if (sync_ && progress.unit() < units_) return;
  if (progress.has_communicating_seconds()) {
    for (Overlap* overlap : {&overlap_, &window_overlap_}) {
      overlap->waiting_seconds += progress.waiting_seconds();
      overlap->communicating_seconds += progress.communicating_seconds();
      ++overlap->told;
    }
  }
  // Where one who tells of old steps is long in coming, figures for people are all that is lost.
  if (sync_ && open_.count(progress.unit()) == 0 && open_.size() >= MaxOpen()) return;
  Unit on_arrival;
  Unit& unit = sync_ ? open_[progress.unit()] : on_arrival;
  if (unit.leaves.empty()) {
    unit.leaves.resize(schedule_->leaves());
    unit.missing = schedule_->leaves();
  }
  for (int64_t i = 0; i < parts; ++i) {
    Leaf& leaf = unit.leaves[first + i];
    if (!leaf.done) --unit.missing;
    const int64_t samples = progress.samples(i);
    leaf = {true,    progress.loss_sum(i),        std::nullopt, static_cast<double>(samples),
            samples, static_cast<double>(samples)};
    if (has_correct) leaf.correct = progress.correct(i);
    if (has_judged) leaf.judged = progress.judged(i);
    if (progress.told_size() > 0) leaf.told = progress.told(i);
  }
  if (!sync_) {
    CountUnit(unit.leaves, progress.staleness(), at, lines);
    return;
  }
  unit.at = std::max(unit.at, at);
  while (!open_.empty() && open_.begin()->first == units_ && open_.begin()->second.missing == 0) {
    CountUnit(open_.begin()->second.leaves, 0, open_.begin()->second.at, lines);
    open_.erase(open_.begin());
  }
}

void Metrics::CatchUp(int64_t units, absl::Time now, std::vector<MetricsLine>* lines) {
  if (!sync_) {
    units_ = std::max(units_, units);
    samples_ = std::max(samples_, schedule_->SamplesBefore(units));
    return;
  }
  while (units_ < units) {
    std::vector<Leaf>& leaves = open_[units_].leaves;
    leaves.resize(schedule_->leaves());
    for (int64_t leaf = 0; leaf < schedule_->leaves(); ++leaf) {
      if (leaves[leaf].done) continue;
      const SampleRange range = schedule_->MicroBatch(units_, leaf);
      leaves[leaf].samples = static_cast<int64_t>(range.positions.size());
    }
    CountUnit(leaves, 0, now, lines);
    open_.erase(open_.begin());
  }
}

void Metrics::CountUnit(const std::vector<Leaf>& leaves, double staleness, absl::Time at,
                        std::vector<MetricsLine>* lines) {
  last_ = std::max(last_, at);
  computed_ = std::max(computed_, at);
  double loss = 0;
  int64_t samples = 0;
  for (const Leaf& leaf : leaves) {
    loss += leaf.loss_sum;
    samples += leaf.samples;
    if (leaf.done) window_told_ += leaf.told;
    if (!leaf.correct.has_value()) continue;
    window_correct_ += *leaf.correct;
    window_judged_ += leaf.judged;
  }
  const int64_t before = samples_;
  last_seconds_ = Seconds(last_);
  window_loss_ += loss;
  told_samples_ += samples;
  window_staleness_ += staleness;
  samples_ += samples;
  ++units_;
  ++window_units_;
  last_rate_ = learning_rate_.At(before) * policy_->RateOf(samples);
  if (IsLineDue(before)) AddLine(lines);
}

bool Metrics::IsLineDue(int64_t samples_before) const {
  const int64_t windows = static_cast<int64_t>(last_seconds_ / kLongestWindow);
  const double longest = kLongestWindow * static_cast<double>(LineStride(windows, kMetricsLines));
  if (absl::ToDoubleSeconds(last_ - window_start_) >= longest) return true;
  if (sync_ && every_steps_ > 0) {
    const int64_t intervals = steps() / every_steps_;
    return steps() % every_steps_ == 0 && intervals % LineStride(intervals, kMetricsLines) == 0;
  }
  const int64_t every = every_samples_ * LineStride(samples_ / every_samples_, kMetricsLines);
  return samples_before / every != samples_ / every;
}

void Metrics::CloseWindow(absl::Time now, std::vector<MetricsLine>* lines) {
  last_ = std::max(last_, now);
  computed_ = last_;
  AddLine(lines);
}

double Metrics::Speed() {
  while (marks_.size() > 1 && marks_[1].time <= computed_ - kLeastSpan) marks_.pop_front();
  const Mark& begin = marks_.front();
  const double seconds = absl::ToDoubleSeconds(computed_ - begin.time);
  const double samples = static_cast<double>(told_samples_ - begin.samples);
  marks_.push_back({computed_, told_samples_});
  return seconds > 0 ? samples / seconds : 0;
}

void Metrics::AddLine(std::vector<MetricsLine>* lines) {
  if (window_told_ == 0) return;
  MetricsLine line;
  line.unit = units_;
  line.step = steps();
  line.samples = samples_;
  line.epoch = static_cast<double>(samples_) / samples_per_epoch_;
  line.time = Seconds(last_);
  line.loss = window_loss_ / window_told_;
  if (window_judged_ > 0) line.accuracy = window_correct_ / window_judged_;
  line.mode = mode_;
  line.learning_rate = last_rate_;
  line.samples_per_second = Speed();
  line.staleness = window_staleness_ / window_units_;
  line.pushed_bytes = std::exchange(window_pushed_, 0);
  line.pulled_bytes = std::exchange(window_pulled_, 0);
  line.overlap = std::exchange(window_overlap_, {});
  lines->push_back(line);

  window_start_ = last_;
  window_units_ = 0;
  window_told_ = 0;
  window_loss_ = window_correct_ = window_judged_ = window_staleness_ = 0;
}

MetricsLine Metrics::OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now) {
  last_ = std::max(last_, now);
  MetricsLine line;
  line.kind = evaluation.is_final() ? MetricsLine::Kind::kTest : MetricsLine::Kind::kEval;
  if (!evaluation.is_final()) line.split = evaluated_split_;
  line.due = evaluation.unit();
  // A test may come to its end when another schedule holds.
  const int64_t held = evaluation.has_version() ? evaluation.version() : evaluation.unit();
  line.unit = std::max(held, schedule_->origin_unit());
  line.samples = schedule_->SamplesBefore(line.unit);
  line.step = StepsAt(line.unit, line.samples);
  line.epoch = static_cast<double>(line.samples) / samples_per_epoch_;
  line.time = Seconds(now);
  const double judged =
      evaluation.has_judged() ? evaluation.judged() : static_cast<double>(evaluation.samples());
  line.loss = evaluation.has_loss_sum() && judged > 0 ? evaluation.loss_sum() / judged
                                                      : std::numeric_limits<double>::quiet_NaN();
  if (evaluation.has_correct() && judged > 0) line.accuracy = evaluation.correct() / judged;
  for (const auto& other : evaluation.others()) line.others[other.name()] = other.value();
  return line;
}

}  // namespace rubato
