// Records of a CSV file: RFC 4180, with any separator, lines ended by LF or CRLF, and without the
// spaces around a field that has no quotes, where people align columns; in quotes they count.
#ifndef RUBATO_WORKER_DATA_CSV_READER_H_
#define RUBATO_WORKER_DATA_CSV_READER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

class CsvReader {
 public:
  // `text`, which must outlive it, is the content of `path`. A byte order mark is skipped.
  CsvReader(std::string path, absl::string_view text, char separator);

  // Goes to the next record; false at the end. Empty lines are no records. InvalidArgument if a
  // field in quotes does not end, or goes on behind them.
  absl::StatusOr<bool> Next();

  // Of the record at hand, until the next.
  const std::vector<absl::string_view>& fields() const { return fields_; }
  int64_t line() const { return record_line_; }  // where it begins, from 1
  const std::string& path() const { return path_; }

 private:
  // Reads one field; true if another follows in the record.
  absl::StatusOr<bool> ReadField();
  absl::StatusOr<absl::string_view> ReadQuoted();
  // Whether here a line ends; steps over its end.
  bool SkipLineEnd();

  const std::string path_;
  const absl::string_view text_;
  const char separator_;
  size_t at_ = 0;
  int64_t line_ = 1;
  int64_t record_line_ = 0;
  std::vector<absl::string_view> fields_;
  std::deque<std::string> unescaped_;  // fields that do not stand in the text as they are
};

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_CSV_READER_H_
