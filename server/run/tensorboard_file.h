// Metrics as TensorBoard reads them: `tensorboard --logdir runs`.
//
// The file is a sequence of records of TensorFlow's TFRecord format
// (tensorflow/core/lib/io/record_writer.h): the length of the data as 8 bytes, its masked CRC-32C,
// the data, their masked CRC-32C, all little-endian. The data of each is an Event
// (proto/tensorboard_event.proto).
#ifndef RUBATO_SERVER_RUN_TENSORBOARD_FILE_H_
#define RUBATO_SERVER_RUN_TENSORBOARD_FILE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/files/record_file.h"
#include "server/run/figures.h"

namespace rubato {

class TensorboardFile {
 public:
  // Makes FOLDER/events.out.tfevents.SECONDS.WRITER. By default the writer is HOST.PID: the name
  // sorts by time and is new for each process, as TensorBoard expects of a run that is taken up
  // again. A process that takes it up within the same second goes on in its file.
  static absl::StatusOr<TensorboardFile> Create(const std::string& folder, absl::Time now,
                                                const std::string& writer = "");
  // The same file under a name that TensorBoard does not read, for lines that are copied before the
  // run has its own: a process that dies leaves no part of them to be read. Publish gives it its
  // name.
  static absl::StatusOr<TensorboardFile> CreateUnpublished(const std::string& folder,
                                                           absl::Time now);
  absl::Status Publish();

  const std::string& path() const { return file_.path(); }

  // Adds the line's curves, as scalars train/loss, eval/accuracy, test/loss and so on, at its
  // step. A figure that is not finite goes in as it is; one that the line lacks is left out. Errors
  // as RecordFile.
  absl::Status Append(const MetricsLine& line, absl::Time now);
  // The same for a line of metrics.jsonl of the run that this one continues; other lines are
  // skipped.
  absl::Status AppendJson(const nlohmann::json& line, absl::Time now);

 private:
  TensorboardFile(RecordFile file, std::string published)
      : file_(std::move(file)), published_(std::move(published)) {}
  // In `path`, until it is published.
  static absl::StatusOr<TensorboardFile> Open(std::string path, std::string published,
                                              absl::Time now);

  RecordFile file_;
  std::string published_;  // its path then
};

// One record, framed.
std::string TfRecord(absl::string_view data);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_TENSORBOARD_FILE_H_
