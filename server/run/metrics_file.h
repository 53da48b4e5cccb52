// metrics.jsonl and summary.json of a run folder.
#ifndef RUBATO_SERVER_RUN_METRICS_FILE_H_
#define RUBATO_SERVER_RUN_METRICS_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/files/record_file.h"
#include "server/run/metrics.h"

namespace rubato {

// One JSON object a line, each written whole; numbers that are not finite are null. `accuracy` is
// there only where the loss takes labels.
class MetricsFile {
 public:
  // Makes the file, or goes on with it (RecordFile::OpenLines). The error names it.
  static absl::StatusOr<MetricsFile> Create(const std::string& path);

  // The job goes back to where so many updates were done: tests that were due later, of lines
  // before this one, are of training in vain. On the disk when it returns.
  absl::Status GoBack(int64_t updates);

  // Errors as RecordFile: the file stays valid.
  absl::Status Append(const MetricsLine& line);

 private:
  explicit MetricsFile(RecordFile file) : file_(std::move(file)) {}

  RecordFile file_;
};

// The line, without its newline.
std::string ToJson(const MetricsLine& line);
// Whether such a line is of a test beside the training: sooner known than by parsing it.
bool IsEvaluation(absl::string_view line);
// What such a file tells of a metric such as "eval/f1", by when the test was due (MetricsLine): NaN
// where a test has no number for it; nothing of tests of training in vain. Errors as ForEachLine.
absl::StatusOr<std::map<int64_t, double>> WrittenEvaluations(const std::string& path,
                                                             absl::string_view metric);

// What checkpoint.keep_best has kept.
struct BestCheckpoint {
  std::string path;    // in the run's folder
  std::string metric;  // as the job names it
  double value;
};

// The contents of summary.json; `digest` is that of the final parameters. `test_accuracy` as above.
// Other figures of a script's test are test_NAME.
std::string ToJson(const Summary& summary, const std::string& digest,
                   const std::optional<BestCheckpoint>& best = std::nullopt);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_METRICS_FILE_H_
