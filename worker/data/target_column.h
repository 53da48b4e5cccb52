// The targets of a table, as its lines come.
#ifndef RUBATO_WORKER_DATA_TARGET_COLUMN_H_
#define RUBATO_WORKER_DATA_TARGET_COLUMN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/names.h"
#include "worker/data/source.h"

namespace rubato {

class TargetColumn {
 public:
  // Labels (integers or names), or values, which are divided by data.target_scale.
  TargetColumn(bool classification, const proto::Data& config)
      : classification_(classification),
        is_asked_for_(config.task() == proto::Data::TASK_CLASSIFICATION),
        scale_(config.target_scale()) {}

  // Opens the training file, then, if there is one, that of the test.
  void OpenFile(const std::string& path);
  // False if `text` cannot be a target; Expectation() says what could.
  bool Add(absl::string_view text, int64_t line);
  absl::string_view Expectation() const {
    return classification_ ? "a label, a name or a finite number" : "a number";
  }
  // To add to it, of a text where a number is expected.
  absl::string_view Advice() const {
    return classification_ ? "" : " (are the targets text labels? loss: cross_entropy takes those)";
  }

  // Fills labels or values, and the names of the classes or the scale; notes if the classes look
  // like quantities. InvalidArgument if there is one class only, if the test file has one that the
  // training file lacks, or if they are numbers with fractions and data.task does not say that they
  // are classes.
  absl::Status Finish(Source* source) const;

 private:
  struct File {
    std::string path;
    std::vector<int32_t> labels;       // numbers of names_
    std::vector<int64_t> first_lines;  // by number: where it stands first, 0 if nowhere
    std::vector<float> values;
  };

  // Whether labels are quantities, by a loss that was not meant.
  absl::Status CheckNumbers(Source* source) const;

  const bool classification_;
  const bool is_asked_for_;  // by data.task
  const double scale_;
  Names names_;
  std::vector<File> files_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_TARGET_COLUMN_H_
