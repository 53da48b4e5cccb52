#include "server/metrics.h"

namespace rubato {

Metrics::Metrics(const proto::Job& job, bool sync, const SampleSchedule& schedule,
                 int64_t samples_per_epoch, int64_t units_before, absl::Time start, absl::Time now)
    : sync_(sync),
      schedule_(schedule),
      samples_per_epoch_(samples_per_epoch),
      batch_size_(job.train().batch_size()),
      parity_(job.optimizer().learning_rate_parity()),
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
  if (progress.correct_size() != parts || progress.samples_size() != parts || first < 0 ||
      first + parts > schedule_.leaves()) {
    return;  // of no worker of ours; figures for people are all that is lost
  }
  std::vector<Leaf> leaves(schedule_.leaves());
  std::vector<Leaf>& unit =
      sync_ ? open_.try_emplace(progress.unit(), leaves).first->second : leaves;
  for (int64_t i = 0; i < parts; ++i) {
    unit[first + i] = {true, progress.loss_sum(i), progress.correct(i), progress.samples(i)};
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
    window_correct_ += leaf.correct;
  }
  const int64_t before = samples_;
  last_seconds_ = Seconds(now);
  window_loss_ += loss;
  window_samples_ += samples;
  window_staleness_ += staleness;
  samples_ += samples;
  ++units_;
  ++window_units_;
  if (every_steps_ > 0 ? units_ % every_steps_ != 0
                       : before / every_samples_ == samples_ / every_samples_) {
    return;
  }

  MetricsLine line;
  line.step = units_;
  line.samples = samples_;
  line.epoch = static_cast<double>(samples_) / samples_per_epoch_;
  line.time = Seconds(now);
  line.loss = window_loss_ / window_samples_;
  line.accuracy = static_cast<double>(window_correct_) / window_samples_;
  line.learning_rate = learning_rate_.At(before);
  if (!sync_ && parity_) line.learning_rate *= static_cast<double>(samples) / batch_size_;
  const double seconds = absl::ToDoubleSeconds(now - window_start_);
  line.samples_per_second = seconds > 0 ? window_samples_ / seconds : 0;
  line.staleness = window_staleness_ / window_units_;
  lines->push_back(line);

  window_start_ = now;
  window_units_ = window_correct_ = window_samples_ = 0;
  window_loss_ = window_staleness_ = 0;
}

MetricsLine Metrics::OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now) const {
  MetricsLine line;
  line.is_test = true;
  line.step = evaluation.unit();
  line.samples = schedule_.SamplesBefore(evaluation.unit());
  line.epoch = static_cast<double>(line.samples) / samples_per_epoch_;
  line.time = Seconds(now);
  line.loss = evaluation.loss_sum() / evaluation.samples();
  line.accuracy = static_cast<double>(evaluation.correct()) / evaluation.samples();
  return line;
}

}  // namespace rubato
