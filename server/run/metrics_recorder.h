// Where the figures of a run go: metrics.jsonl and, if the job wants it, TensorBoard's file.
#ifndef RUBATO_SERVER_RUN_METRICS_RECORDER_H_
#define RUBATO_SERVER_RUN_METRICS_RECORDER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/files/run_folder.h"
#include "server/run/metrics_file.h"
#include "server/run/tensorboard_file.h"

namespace rubato {

// For one thread. A file that cannot be written ends no training: it is warned of once, and its
// later lines are tried all the same.
class MetricsRecorder {
 public:
  // Makes the files, or goes on with the lines that metrics.jsonl has: all get into TensorBoard's
  // file. In a run that `goes_on` that takes the place of those that the folder has. An error,
  // which names the file, if metrics.jsonl cannot be made. `log` must outlive the recorder.
  static absl::StatusOr<MetricsRecorder> Create(const RunFolder& folder, bool tensorboard,
                                                bool goes_on, absl::Time now, const Log* log);

  // Of lines of tests, as of those that training makes due, so many for each doubling of the run
  // (line_stride.h).
  void Record(const MetricsLine& line, absl::Time now);

 private:
  MetricsRecorder(MetricsFile file, const Log* log) : file_(std::move(file)), log_(log) {}

  // Whether it has a line.
  bool CountEvaluation();
  void WarnOnce(const absl::Status& status, bool* warned);

  MetricsFile file_;
  std::optional<TensorboardFile> tensorboard_;
  const Log* log_;
  int64_t evaluations_ = 0;  // those of the runs before too, up to the last line
  bool warned_ = false;
  bool warned_of_tensorboard_ = false;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_METRICS_RECORDER_H_
