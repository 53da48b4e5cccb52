// What the folder of a drawn job holds of its tests and checkpoints: the real rules of what is kept
// (server/run/kept_checkpoints.h), over a real file of metrics, as server/run/run_files.h has them;
// and a list of all that there was, which says what they must come to.
#ifndef RUBATO_TOOLS_SIMULATOR_KEPT_FOLDER_H_
#define RUBATO_TOOLS_SIMULATOR_KEPT_FOLDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "server/run/kept_checkpoints.h"
#include "server/run/metrics.h"
#include "server/run/metrics_file.h"

namespace rubato {

class KeptFolder {
 public:
  explicit KeptFolder(const proto::Job& job);
  KeptFolder(const KeptFolder&) = delete;
  ~KeptFolder();

  void OnLine(const MetricsLine& line);
  // It has been written, and expired ones are removed.
  void OnCheckpoint(const proto::Manifest& manifest);
  // A term is about to begin, whose newest checkpoint is of `step`: that one is there.
  absl::Status OnTerm(std::optional<int64_t> step);
  // And goes back to it.
  void GoBack(int64_t step);
  // The last checkpoint, and what is behind a place in the term's lines, are lost; `draw` says
  // which place.
  void OnPowerLoss(uint64_t draw);

  // What the job tells of its best checkpoint in the end is true.
  absl::Status CheckTruth() const;
  // And of all that there were, none was better.
  absl::Status CheckBest() const;

 private:
  void Open();
  bool IsBetter(double value, double other) const {
    return job_.checkpoint().keep_best().mode() == proto::KeepBest::MODE_MAX ? value > other
                                                                             : value < other;
  }
  // What the last test up to that step has shown.
  std::optional<double> ValueOf(int64_t step) const;

  const proto::Job job_;
  std::string folder_;
  std::string path_;  // of metrics
  std::optional<MetricsFile> metrics_;
  KeptCheckpoints kept_;
  std::map<int64_t, proto::Manifest> there_;  // in the folder, by step
  // Of the training that counts: steps of all checkpoints that were written; tests by when they
  // were due, with the end of their line in the file.
  std::map<int64_t, bool> written_;  // whether it is on the disk
  struct Test {
    double value;
    uint64_t end;
  };
  std::map<int64_t, Test> tests_;
  uint64_t begun_at_ = 0;  // the term, of the file
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_KEPT_FOLDER_H_
