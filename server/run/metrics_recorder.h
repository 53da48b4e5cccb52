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

// For one thread. A failed write does not end the training: it is logged once as a warning, and
// later lines are still tried.
class MetricsRecorder {
 public:
  // Creates the files, or continues an existing metrics.jsonl, whose lines are all copied to
  // TensorBoard's file, unless the run `goes_on` in its folder: the files in it have them already.
  // An error, which names the file, if metrics.jsonl cannot be made. `log` must outlive the
  // recorder.
  static absl::StatusOr<MetricsRecorder> Create(const RunFolder& folder, bool tensorboard,
                                                bool goes_on, absl::Time now, const Log* log);

  // Lines of tests are thinned out like those of the training: a fixed number for each doubling of
  // the run (line_stride.h). False if metrics.jsonl has not taken the line.
  bool Record(const MetricsLine& line, absl::Time now);
  // As MetricsFile.
  void GoBack(int64_t updates);

 private:
  MetricsRecorder(MetricsFile file, const Log* log) : file_(std::move(file)), log_(log) {}

  // Whether it has a line.
  bool CountEvaluation();
  // Returns whether it is OK.
  bool WarnOnce(const absl::Status& status, bool* warned);

  MetricsFile file_;
  std::optional<TensorboardFile> tensorboard_;
  const Log* log_;
  int64_t evaluations_ = 0;  // those of the runs before too, up to the last line
  bool warned_ = false;
  bool warned_of_tensorboard_ = false;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_METRICS_RECORDER_H_
