#include "worker/data/csv_reader.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/data/field.h"

namespace rubato {

CsvReader::CsvReader(std::string path, absl::string_view text, char separator)
    : path_(std::move(path)), text_(text), separator_(separator) {
  constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (absl::StartsWith(text, kByteOrderMark)) at_ = kByteOrderMark.size();
}

bool CsvReader::SkipLineEnd() {
  const absl::string_view rest = text_.substr(at_);
  const size_t length = absl::StartsWith(rest, "\n") ? 1 : absl::StartsWith(rest, "\r\n") ? 2 : 0;
  if (length == 0) return false;
  at_ += length;
  ++line_;
  return true;
}

absl::StatusOr<bool> CsvReader::Next() {
  fields_.clear();
  unescaped_.clear();
  while (SkipLineEnd()) {
  }
  if (at_ == text_.size()) return false;
  record_line_ = line_;
  while (true) {
    RUBATO_ASSIGN_OR_RETURN(const bool more, ReadField());
    if (!more) return true;
  }
}

absl::StatusOr<bool> CsvReader::ReadField() {
  if (at_ < text_.size() && text_[at_] == '"') {
    RUBATO_ASSIGN_OR_RETURN(const absl::string_view field, ReadQuoted());
    fields_.push_back(field);
  } else {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n') ++at_;
    if (at_ > begin && text_[at_ - 1] == '\r' && (at_ == text_.size() || text_[at_] == '\n')) --at_;
    fields_.push_back(absl::StripAsciiWhitespace(text_.substr(begin, at_ - begin)));
    if (text_.substr(at_) == "\r") ++at_;  // a last line that was cut between CR and LF
  }
  if (at_ == text_.size() || SkipLineEnd()) return false;
  if (text_[at_] == separator_) {
    ++at_;
    return true;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path_, ":", line_, ": field ", fields_.size(), ": found ", Quoted(text_.substr(at_, 1)),
      " behind the closing quotation mark, expected a separator or the line's end"));
}

absl::StatusOr<absl::string_view> CsvReader::ReadQuoted() {
  const int64_t begin_line = line_;
  const size_t begin = ++at_;
  bool escaped = false;
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != '"') continue;
    if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
      escaped = true;
      ++at_;
      continue;
    }
    absl::string_view field = text_.substr(begin, at_ - begin);
    ++at_;
    if (!escaped) return field;
    std::string& plain = unescaped_.emplace_back();
    for (size_t i = 0; i < field.size(); ++i) {
      plain.push_back(field[i]);
      if (field[i] == '"') ++i;
    }
    return absl::string_view(plain);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path_, ":", begin_line, ": field ", fields_.size() + 1,
      ": begins with a quotation mark and does not end before the file does, expected another"));
}

}  // namespace rubato
