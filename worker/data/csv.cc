#include "worker/data/csv.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/nearest.h"
#include "common/base/status.h"
#include "worker/data/csv_reader.h"
#include "worker/data/field.h"
#include "worker/data/gzip_reader.h"
#include "worker/data/names.h"
#include "worker/data/target_column.h"

namespace rubato {
namespace {

// Places of columns in the records of one file.
struct Places {
  size_t width = 0;  // fields of a record
  size_t target = 0;
  std::vector<size_t> numeric, categorical;
};

// A mistake in the record at hand.
absl::Status Wrong(const CsvReader& reader, const std::string& column, absl::string_view sentence) {
  return absl::InvalidArgumentError(
      absl::StrCat(reader.path(), ":", reader.line(), ": column ", column, ": ", sentence));
}

absl::Status Missing(const CsvReader& reader, const std::string& column, absl::string_view field,
                     absl::string_view expected, absl::string_view advice) {
  return Wrong(reader, column,
               absl::StrCat("found ", Quoted(field), ", a missing value, expected ", expected, " (",
                            advice, ")"));
}

class Table {
 public:
  Table(const proto::Data& config, bool classification)
      : config_(config),
        target_(classification, config),
        missing_(config.missing().begin(), config.missing().end()),
        numeric_(config.numeric().begin(), config.numeric().end()),
        categorical_(config.categorical().begin(), config.categorical().end()),
        ignored_(config.ignore().begin(), config.ignore().end()),
        names_(categorical_.size()) {
    if (missing_.empty()) missing_.insert("");
  }

  absl::Status Read(const std::string& path);
  absl::StatusOr<Source> Finish() const;

 private:
  // Inputs that nobody has asked for and that look like a number of the line.
  void WarnOfIndices(Source* source) const;
  // Categorical columns of which most lines have a name of their own.
  void WarnOfNames(Source* source) const;

  struct File {
    std::string path;
    int64_t rows = 0;
    int64_t dropped = 0;          // rows with a missing value
    std::vector<float> numbers;   // (rows, numeric columns)
    std::vector<int32_t> labels;  // (rows, categorical columns): numbers of names_
  };

  absl::StatusOr<Places> FindColumns(const std::string& where,
                                     const std::vector<std::string>& header);
  absl::Status AddRecord(const CsvReader& reader, const Places& places, File* file);
  absl::Status AddNumbers(const CsvReader& reader, const Places& places, File* file);
  // Whether a value is missing in the record.
  bool LacksAny(const std::vector<absl::string_view>& fields, const Places& places) const;
  // Like a number, with or without spaces around it.
  bool IsMissing(absl::string_view field) const {
    return missing_.contains(absl::StripAsciiWhitespace(field));
  }

  const proto::Data& config_;
  TargetColumn target_;
  absl::flat_hash_set<std::string> missing_;
  std::vector<std::string> numeric_;  // known from the training file on
  const std::vector<std::string> categorical_;
  const absl::flat_hash_set<std::string> ignored_;
  std::vector<Names> names_;  // (categorical columns)
  std::vector<File> files_;   // training, test
};

absl::StatusOr<Places> Table::FindColumns(const std::string& where,
                                          const std::vector<std::string>& header) {
  absl::flat_hash_map<std::string, size_t> places;
  for (size_t i = 0; i < header.size(); ++i) {
    const std::string& name = header[i];
    const auto [other, is_new] = places.emplace(name, i);
    const bool has_use = name == config_.target() || absl::c_linear_search(categorical_, name);
    const bool names_inputs = config_.numeric_size() > 0;
    const bool is_used = has_use || (names_inputs ? absl::c_linear_search(config_.numeric(), name)
                                                  : !ignored_.contains(name));
    if (is_new || !is_used) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": columns ", other->second + 1, " and ", i + 1, " are both named ",
                     Quoted(name), ", expected different names",
                     has_use || names_inputs
                         ? ""
                         : absl::StrCat(" (data.ignore: [", Quoted(name), "] leaves both out)")));
  }
  Places result;
  result.width = header.size();
  constexpr size_t kShown = 20;
  std::vector<std::string> unknown;
  size_t more = 0;             // of these
  bool shows_columns = false;  // in place of what may have been meant
  const auto find = [&](const std::string& name, absl::string_view key) {
    const auto found = places.find(name);
    if (found != places.end()) return found->second;
    if (unknown.size() == kShown) {
      ++more;
      return size_t{0};
    }
    const auto padded = std::find_if(header.begin(), header.end(), [&](const std::string& column) {
      return absl::StripAsciiWhitespace(column) == name;
    });
    const std::string near = padded != header.end() ? *padded
                             : header.size() > 1    ? NearestWord(name, header)
                                                    : "";
    shows_columns = shows_columns || near.empty();
    unknown.push_back(
        absl::StrCat(Quoted(name), " (", key,
                     near.empty() ? "" : absl::StrCat("; did you mean ", Quoted(near), "?"), ")"));
    return size_t{0};
  };
  result.target = find(config_.target(), "data.target");
  for (const std::string& name : categorical_) {
    result.categorical.push_back(find(name, "data.categorical"));
  }
  if (files_.empty() && numeric_.empty()) {  // of the training file
    std::vector<size_t> others = result.categorical;
    others.push_back(result.target);
    for (const std::string& name : config_.ignore()) find(name, "data.ignore");
    for (size_t i = 0; i < header.size(); ++i) {
      const bool is_input = std::count(others.begin(), others.end(), i) == 0;
      if (is_input && !ignored_.contains(header[i])) numeric_.push_back(header[i]);
    }
  }
  for (const std::string& name : numeric_) {
    result.numeric.push_back(find(name, config_.numeric().empty()
                                            ? "a numeric column of the training file"
                                            : "data.numeric"));
  }
  if (!unknown.empty()) {
    const size_t shown = std::min(header.size(), kShown);
    if (more > 0) unknown.push_back(absl::StrCat(more, " more"));
    const std::string last = unknown.back();
    unknown.pop_back();
    return absl::InvalidArgumentError(
        absl::StrCat(where, unknown.empty() ? ": has no column " : ": has no columns ",
                     absl::StrJoin(unknown, ", "), unknown.empty() ? "" : " and ", last,
                     !shows_columns ? ""
                     : header.size() == 1
                         ? absl::StrCat("; its only column is ", Quoted(header[0]),
                                        " (is data.separator right?)")
                         : absl::StrCat("; its columns are ",
                                        absl::StrJoin(header.begin(), header.begin() + shown, ", "),
                                        shown < header.size() ? ", ..." : "")));
  }
  if (numeric_.empty() && categorical_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": found no column but the target, expected one to learn from"));
  }
  return result;
}

bool Table::LacksAny(const std::vector<absl::string_view>& fields, const Places& places) const {
  bool lacks = IsMissing(fields[places.target]);
  for (const size_t place : places.numeric) lacks = lacks || IsMissing(fields[place]);
  for (const size_t place : places.categorical) lacks = lacks || IsMissing(fields[place]);
  return lacks;
}

absl::Status Table::AddNumbers(const CsvReader& reader, const Places& places, File* file) {
  constexpr size_t kShown = 20;
  std::vector<std::string> wrong;  // of the line all: others are likely to have the same
  for (size_t i = 0; i < numeric_.size(); ++i) {
    const absl::string_view field = reader.fields()[places.numeric[i]];
    float value = std::numeric_limits<float>::quiet_NaN();
    if (IsMissing(field)) {
      if (config_.impute() != proto::Data::IMPUTE_MEAN) {
        if (numeric_[i].empty()) {
          return Wrong(
              reader, absl::StrCat(places.numeric[i] + 1),
              "has no name and is empty: a trailing separator? (data.ignore: [\"\"] leaves "
              "it out)");
        }
        return Missing(reader, numeric_[i], field, "a number",
                       "data.impute: mean fills it in, drop leaves such lines out");
      }
    } else if (!ParseNumber(field, &value)) {
      wrong.emplace_back(
          Wrong(reader, numeric_[i],
                absl::StrCat("found ", Quoted(field), ", expected a number", WhyNoNumber(field),
                             " (data.categorical takes names, data.ignore what is not to be "
                             "used, data.missing what stands for none)"))
              .message());
    }
    file->numbers.push_back(value);
  }
  if (wrong.empty()) return absl::OkStatus();
  if (wrong.size() > kShown) {
    const size_t more = wrong.size() - kShown;
    wrong.resize(kShown);
    wrong.push_back(absl::StrCat(reader.path(), ":", reader.line(), ": ", more, " more columns"));
  }
  return absl::InvalidArgumentError(absl::StrJoin(wrong, "\n"));
}

absl::Status Table::AddRecord(const CsvReader& reader, const Places& places, File* file) {
  const std::vector<absl::string_view>& fields = reader.fields();
  if (fields.size() != places.width) {
    return absl::InvalidArgumentError(
        absl::StrCat(reader.path(), ":", reader.line(), ": found ", fields.size(),
                     fields.size() == 1 ? " field" : " fields", ", expected ", places.width,
                     ", as in the ", config_.header() ? "header" : "first line"));
  }
  if (config_.impute() == proto::Data::IMPUTE_DROP && LacksAny(fields, places)) {
    ++file->dropped;
    return absl::OkStatus();
  }
  const absl::string_view target = fields[places.target];
  if (IsMissing(target)) {
    return Missing(reader, config_.target(), target, target_.Expectation(),
                   "data.impute: drop leaves such lines out");
  }
  if (!target_.Add(target, reader.line())) {
    return Wrong(reader, config_.target(),
                 absl::StrCat("found ", Quoted(target), ", expected ", target_.Expectation(),
                              WhyNoNumber(target), target_.Advice()));
  }
  RUBATO_RETURN_IF_ERROR(AddNumbers(reader, places, file));
  for (size_t i = 0; i < categorical_.size(); ++i) {
    const absl::string_view field = fields[places.categorical[i]];
    if (IsMissing(field)) {
      return Missing(reader, categorical_[i], field, "a text label",
                     "data.impute: drop leaves such lines out; mean is for numbers only");
    }
    file->labels.push_back(names_[i].Number(field));
  }
  ++file->rows;
  return absl::OkStatus();
}

absl::Status Table::Read(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadWholeLines(path));
  CsvReader reader(path, text, config_.separator()[0]);
  RUBATO_ASSIGN_OR_RETURN(bool more, reader.Next());
  if (!more) {
    return absl::InvalidArgumentError(absl::StrCat(path,
                                                   ": holds nothing but empty lines, expected ",
                                                   config_.header() ? "a header" : "records"));
  }
  std::vector<std::string> header;
  for (size_t i = 0; i < reader.fields().size(); ++i) {
    header.push_back(config_.header() ? std::string(reader.fields()[i]) : absl::StrCat(i + 1));
  }
  RUBATO_ASSIGN_OR_RETURN(const Places places,
                          FindColumns(absl::StrCat(path, ":", reader.line()), header));
  target_.OpenFile(path);
  File& file = files_.emplace_back();
  file.path = path;
  if (!config_.header()) RUBATO_RETURN_IF_ERROR(AddRecord(reader, places, &file));
  while (true) {
    RUBATO_ASSIGN_OR_RETURN(more, reader.Next());
    if (!more) break;
    RUBATO_RETURN_IF_ERROR(AddRecord(reader, places, &file));
  }
  if (file.rows == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds no records",
                     config_.impute() == proto::Data::IMPUTE_DROP ? " without a missing value" : "",
                     ", expected at least one"));
  }
  return absl::OkStatus();
}

void Table::WarnOfIndices(Source* source) const {
  constexpr int64_t kFewest = 10;  // rows that show that a column counts
  if (config_.numeric_size() > 0) return;
  const File& file = files_[0];
  for (size_t column = 0; column < numeric_.size(); ++column) {
    const auto value = [&](int64_t row) { return file.numbers[row * numeric_.size() + column]; };
    const float first = value(0);
    bool counts = file.rows >= kFewest && (first == 0 || first == 1);
    for (int64_t row = 1; counts && row < file.rows; ++row) {
      counts = value(row) == first + static_cast<float>(row);
    }
    const bool has_name = !numeric_[column].empty();
    if (has_name && !counts) continue;
    source->notes.push_back(
        absl::StrCat("warning: ", file.path, ": ",
                     has_name ? absl::StrCat("the column ", Quoted(numeric_[column]))
                              : "a column without a name",
                     counts ? absl::StrCat(" counts the lines from ", first, " on, and") : "",
                     " is an input of the model; if it is an index, name it in data.ignore"));
  }
}

void Table::WarnOfNames(Source* source) const {
  // Of fewer names, or of more lines each, a column may well be of kinds.
  constexpr int64_t kFewNames = 100, kLinesEach = 10;
  int64_t lines = 0;
  for (const File& file : files_) lines += file.rows;
  for (size_t i = 0; i < categorical_.size(); ++i) {
    const int64_t names = names_[i].size();
    if (names <= kFewNames || lines >= kLinesEach * names) continue;
    source->notes.push_back(absl::StrCat(
        "warning: ", files_[0].path, ": the column ", Quoted(categorical_[i]), " has ", names,
        " different names in ", lines,
        " lines, and each is an input of its own; if they are of one line each, name it in "
        "data.ignore in place of data.categorical"));
  }
}

absl::StatusOr<Source> Table::Finish() const {
  Source source;
  source.quantities = static_cast<int64_t>(numeric_.size());
  source.columns = numeric_;
  proto::DataDescription& description = source.description;
  *description.mutable_numeric() = {numeric_.begin(), numeric_.end()};
  description.set_target(config_.target());
  std::vector<std::vector<int32_t>> channels;  // of each number of each categorical column
  for (size_t i = 0; i < categorical_.size(); ++i) {
    const int32_t first = static_cast<int32_t>(source.columns.size());
    std::vector<std::string> ordered;
    channels.push_back(names_[i].Ranks(&ordered));
    for (int32_t& channel : channels.back()) channel += first;
    proto::DataDescription::Categorical& described = *description.add_categorical();
    described.set_column(categorical_[i]);
    for (const std::string& name : ordered) {
      described.add_names(name);
      source.columns.push_back(absl::StrCat(categorical_[i], "=", name));
    }
  }
  const size_t width = source.columns.size();
  RUBATO_RETURN_IF_ERROR(target_.Finish(&source));
  for (size_t f = 0; f < files_.size(); ++f) {
    const File& file = files_[f];
    Examples& examples = f == 0 ? source.train : source.test;
    RUBATO_RETURN_IF_ERROR(CheckSize(config_, file.path, file.rows, static_cast<int64_t>(width)));
    examples.features.resize(file.rows * width);
    if (file.dropped > 0) {
      source.notes.push_back(absl::StrCat(file.path, ": ", file.dropped, " of ",
                                          file.rows + file.dropped,
                                          " records are left out, with a missing value "
                                          "(data.impute: drop)"));
    }
    const float* number = file.numbers.data();
    const int32_t* label = file.labels.data();
    for (int64_t row = 0; row < file.rows; ++row) {
      float* out = examples.features.data() + row * width;
      std::copy_n(number, numeric_.size(), out);
      number += numeric_.size();
      for (const std::vector<int32_t>& its_channels : channels) out[its_channels[*label++]] = 1;
    }
  }
  for (Examples* examples : {&source.train, &source.test}) {
    examples->shape = {static_cast<int64_t>(width), 0, 0};
  }
  WarnOfIndices(&source);
  WarnOfNames(&source);
  source.digest = DigestOf(source);
  return source;
}

}  // namespace

absl::StatusOr<Source> ReadCsv(const proto::Data& config, bool classification) {
  Table table(config, classification);
  RUBATO_RETURN_IF_ERROR(table.Read(config.path()));
  if (config.has_test_path()) RUBATO_RETURN_IF_ERROR(table.Read(config.test_path()));
  return table.Finish();
}

}  // namespace rubato
