#include "server/metrics.h"

namespace rubato {
namespace {

// Who watches shall see something.
constexpr absl::Duration kLongestWindow = absl::Seconds(5);

}  // namespace

absl::string_view KindName(const MetricsLine& line) {
  switch (line.kind) {
    case MetricsLine::Kind::kTrain:
      return "train";
    case MetricsLine::Kind::kEval:
      return "eval";
    case MetricsLine::Kind::kTest:
      break;
  }
  return "test";
}

Metrics::Metrics(const proto::Job& job, bool sync, const SampleSchedule& schedule,
                 int64_t samples_per_epoch, int64_t units_before, absl::Time start, absl::Time now)
    : sync_(sync),
      schedule_(schedule),
      samples_per_epoch_(samples_per_epoch),
      batch_size_(job.train().batch_size()),
      parity_(job.optimizer().learning_rate_parity()),
      evaluated_split_(job.evaluation().split() == proto::Evaluation::SPLIT_TEST ? "test"
                                                                                 : "validation"),
      every_steps_(sync && job.metrics().every().has_steps() ? job.metrics().every().steps() : 0),
      every_samples_(SamplesAt(job.metrics().every(), job.train().batch_size(), samples_per_epoch)),
      learning_rate_(job.optimizer(), job.train().batch_size(), samples_per_epoch,
                     job.train().until()),
      start_(start),
      samples_before_(schedule.SamplesBefore(units_before)),
      units_(units_before),
      samples_(samples_before_),
      window_start_(now) {}

void Metrics::OnProgress(const proto::Progress& progress, absl::Time now,
                         std::vector<MetricsLine>* lines) {
  const int64_t parts = progress.loss_sum_size();
  const int64_t first = progress.first_leaf();
  const bool has_correct = progress.correct_size() > 0;
  if ((has_correct && progress.correct_size() != parts) || progress.samples_size() != parts ||
      first < 0 || first + parts > schedule_.leaves()) {
    return;  // of no worker of ours; figures for people are all that is lost
  }
  if (sync_ && progress.unit() < units_) return;
  std::vector<Leaf> leaves(schedule_.leaves());
  std::vector<Leaf>& unit =
      sync_ ? open_.try_emplace(progress.unit(), leaves).first->second : leaves;
  for (int64_t i = 0; i < parts; ++i) {
    Leaf& leaf = unit[first + i];
    leaf = {true, progress.loss_sum(i), std::nullopt, progress.samples(i)};
    if (has_correct) leaf.correct = progress.correct(i);
  }
  if (!sync_) {
    CountUnit(unit, progress.staleness(), now, lines);
    return;
  }
  const auto is_whole = [](const std::vector<Leaf>& leaves) {
    for (const Leaf& leaf : leaves) {
      if (!leaf.done) return false;
    }
    return true;
  };
  while (!open_.empty() && open_.begin()->first == units_ && is_whole(open_.begin()->second)) {
    CountUnit(open_.begin()->second, 0, now, lines);
    open_.erase(open_.begin());
  }
}

void Metrics::CountUnit(const std::vector<Leaf>& leaves, double staleness, absl::Time now,
                        std::vector<MetricsLine>* lines) {
  double loss = 0;
  int64_t samples = 0;
  for (const Leaf& leaf : leaves) {
    loss += leaf.loss_sum;
    samples += leaf.samples;
    window_correct_ += leaf.correct.value_or(0);
    window_has_correct_ = window_has_correct_ || leaf.correct.has_value();
  }
  const int64_t before = samples_;
  last_seconds_ = Seconds(now);
  window_loss_ += loss;
  window_samples_ += samples;
  window_staleness_ += staleness;
  samples_ += samples;
  ++units_;
  ++window_units_;
  const bool is_due = every_steps_ > 0 ? units_ % every_steps_ == 0
                                       : before / every_samples_ != samples_ / every_samples_;
  last_rate_ = learning_rate_.At(before);
  if (!sync_ && parity_) last_rate_ *= static_cast<double>(samples) / batch_size_;
  if (is_due || now - window_start_ >= kLongestWindow) CloseWindow(now, lines);
}

void Metrics::CloseWindow(absl::Time now, std::vector<MetricsLine>* lines) {
  if (window_units_ == 0) return;
  MetricsLine line;
  line.step = steps();
  line.samples = samples_;
  line.epoch = static_cast<double>(samples_) / samples_per_epoch_;
  line.time = Seconds(now);
  line.loss = window_loss_ / window_samples_;
  if (window_has_correct_) line.accuracy = static_cast<double>(window_correct_) / window_samples_;
  line.learning_rate = last_rate_;
  const double seconds = absl::ToDoubleSeconds(now - window_start_);
  line.samples_per_second = seconds > 0 ? window_samples_ / seconds : 0;
  line.staleness = window_staleness_ / window_units_;
  lines->push_back(line);

  window_start_ = now;
  window_units_ = window_correct_ = window_samples_ = 0;
  window_loss_ = window_staleness_ = 0;
  window_has_correct_ = false;
}

MetricsLine Metrics::OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now) const {
  MetricsLine line;
  line.kind = evaluation.is_final() ? MetricsLine::Kind::kTest : MetricsLine::Kind::kEval;
  if (!evaluation.is_final()) line.split = evaluated_split_;
  line.unit = evaluation.unit();
  line.samples = schedule_.SamplesBefore(evaluation.unit());
  line.step = sync_ ? evaluation.unit() : line.samples / batch_size_;
  line.epoch = static_cast<double>(line.samples) / samples_per_epoch_;
  line.time = Seconds(now);
  line.loss = evaluation.loss_sum() / evaluation.samples();
  if (evaluation.has_correct()) {
    line.accuracy = static_cast<double>(evaluation.correct()) / evaluation.samples();
  }
  return line;
}

}  // namespace rubato
