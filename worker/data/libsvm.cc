#include "worker/data/libsvm.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "worker/data/field.h"
#include "worker/data/gzip_reader.h"
#include "worker/data/target_column.h"

namespace rubato {
namespace {

// A matrix of more columns has no place in memory as a dense one; proto/job.proto says the same.
constexpr int64_t kMaxFeatures = int64_t{1} << 20;

struct Entry {
  int64_t row;
  int64_t column;
  float value;
};

struct Rows {
  std::string path;
  int64_t count = 0;
  std::vector<Entry> entries;
};

class Matrix {
 public:
  Matrix(const proto::Data& config, bool classification)
      : config_(config),
        base_(config.index_base()),
        limit_(config.has_features() ? config.features() : kMaxFeatures),
        columns_(config.features()),  // 0 if not given
        target_(classification, config) {}

  absl::Status Read(const std::string& path);
  absl::StatusOr<Source> Finish() const;

 private:
  absl::Status AddLine(absl::string_view line, int64_t number, Rows* rows);

  const proto::Data& config_;
  const int64_t base_;
  const int64_t limit_;  // of columns
  int64_t columns_;
  TargetColumn target_;
  std::vector<Rows> files_;  // training, test
};

absl::Status Matrix::AddLine(absl::string_view line, int64_t number, Rows* rows) {
  int field_number = 0;
  absl::string_view field;
  const auto wrong = [&](absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat(rows->path, ":", number, ": field ",
                                                   field_number, ": found ", Quoted(field),
                                                   ", expected ", expected));
  };
  line = line.substr(0, line.find('#'));
  int64_t last = base_ - 1;
  for (absl::string_view part : absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
    field = part;
    if (++field_number == 1) {
      if (absl::StrContains(field, ':') || !target_.Add(field, number)) {
        return wrong(target_.Expectation());
      }
      continue;
    }
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(field, absl::MaxSplits(':', 1));
    int64_t index;
    Entry entry{rows->count, 0, 0};
    if (!absl::ascii_isdigit(field[0]) || !absl::SimpleAtoi(halves.first, &index) ||
        !ParseNumber(halves.second, &entry.value)) {
      return wrong("INDEX:VALUE");
    }
    if (index < base_) return wrong(absl::StrCat("an index from ", base_, " on (data.index_base)"));
    if (index <= last) return wrong(absl::StrCat("an index above ", last, ", the one before"));
    if (index - base_ >= limit_) {
      return wrong(absl::StrCat("an index of at most ", limit_ - 1 + base_, ": there are ",
                                limit_ == kMaxFeatures ? "at most " : "", limit_, " features"));
    }
    last = index;
    entry.column = index - base_;
    columns_ = std::max(columns_, entry.column + 1);
    if (entry.value != 0) rows->entries.push_back(entry);
  }
  if (field_number > 0) ++rows->count;
  return absl::OkStatus();
}

absl::Status Matrix::Read(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadWholeLines(path));
  target_.OpenFile(path);
  Rows& rows = files_.emplace_back();
  rows.path = path;
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    RUBATO_RETURN_IF_ERROR(AddLine(line, ++number, &rows));
  }
  if (rows.count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds no lines with a label, expected at least one"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Source> Matrix::Finish() const {
  if (columns_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(files_[0].path, ": has no features, expected at least one field INDEX:VALUE"));
  }
  Source source;
  source.quantities = columns_;
  source.description.set_index_base(config_.index_base());
  RUBATO_RETURN_IF_ERROR(target_.Finish(&source));
  for (Examples* examples : {&source.train, &source.test}) examples->shape = {columns_, 0, 0};
  for (size_t i = 0; i < files_.size(); ++i) {
    RUBATO_RETURN_IF_ERROR(CheckSize(config_, files_[i].path, files_[i].count, columns_));
    std::vector<float>& features = (i == 0 ? source.train : source.test).features;
    features.resize(files_[i].count * columns_);
    for (const Entry& entry : files_[i].entries) {
      features[entry.row * columns_ + entry.column] = entry.value;
    }
  }
  source.digest = DigestOf(source);
  return source;
}

}  // namespace

absl::StatusOr<Source> ReadLibsvm(const proto::Data& config, bool classification) {
  Matrix matrix(config, classification);
  RUBATO_RETURN_IF_ERROR(matrix.Read(config.path()));
  if (config.has_test_path()) RUBATO_RETURN_IF_ERROR(matrix.Read(config.test_path()));
  return matrix.Finish();
}

}  // namespace rubato
