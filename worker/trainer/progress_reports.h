// Decides when to report the training's progress to Kubeflow's trainer, and builds the request body
// that sets a TrainJob's status.trainerStatus (trainer.kubeflow.org/v1alpha1). Single-threaded, no
// clock; its shell is trainer_client.h.
#ifndef RUBATO_WORKER_TRAINER_PROGRESS_REPORTS_H_
#define RUBATO_WORKER_TRAINER_PROGRESS_REPORTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace rubato {

// How far the training is, as one of its workers knows it.
struct TrainingFigures {
  std::optional<double> done;  // of the whole, 0 to 1; absent: it ends by time
  double epoch = 0;
  int64_t step = 0;
  int workers = 0;
  std::optional<double> loss;  // mean over the samples that the worker has computed last
};

class ProgressReports {
 public:
  // What the trainer's own clients keep to: each request is a write to the cluster's API.
  static constexpr absl::Duration kInterval = absl::Seconds(5);

  // `now` is of a clock that only goes forward.
  void OnFigures(const TrainingFigures& figures, absl::Time now);
  // The training has come to its end.
  void OnDone() { is_done_ = has_news_ = true; }

  // When Next is to be asked; InfiniteFuture if there is nothing to say.
  absl::Time due() const { return has_news_ ? next_ : absl::InfiniteFuture(); }
  // The body of a request that is to be sent now, if one is. `date` is of the wall clock.
  std::optional<std::string> Next(absl::Time now, absl::Time date);

 private:
  // The estimated remaining time of the training.
  std::optional<absl::Duration> Remaining(absl::Time now) const;

  TrainingFigures figures_;
  bool has_news_ = false;
  bool is_done_ = false;
  absl::Time next_ = absl::InfinitePast();
  // Where the pace is measured from.
  absl::Time begun_;
  std::optional<double> begun_done_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_TRAINER_PROGRESS_REPORTS_H_
