#include "worker/data/target_column.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/data/field.h"

namespace rubato {

namespace {

// "nan", "-inf": what a program writes that had no label.
bool IsNotFinite(absl::string_view text) {
  std::string word = absl::AsciiStrToLower(text);
  if (word[0] == '+' || word[0] == '-') word.erase(0, 1);
  return word == "nan" || word == "inf" || word == "infinity";
}

}  // namespace

void TargetColumn::OpenFile(const std::string& path) {
  files_.emplace_back();
  files_.back().path = path;
}

bool TargetColumn::Add(absl::string_view text, int64_t line) {
  File& file = files_.back();
  if (!classification_) {
    double value;
    if (!ParseNumber(text, &value)) return false;
    file.values.push_back(static_cast<float>(value / scale_));
    return std::isfinite(file.values.back());
  }
  const absl::string_view word = absl::StripAsciiWhitespace(text);
  if (word.empty() || IsNotFinite(word)) return false;
  const int32_t number = names_.Number(text);
  file.labels.push_back(number);
  if (number >= static_cast<int64_t>(file.first_lines.size())) file.first_lines.resize(number + 1);
  if (file.first_lines[number] == 0) file.first_lines[number] = line;
  return true;
}

absl::Status TargetColumn::CheckNumbers(Source* source) const {
  // Of fewer classes, or of more lines each, numbers may well be labels.
  constexpr int64_t kFewClasses = 20, kLinesEach = 10;
  std::optional<int32_t> fraction;  // the first
  for (int32_t number = 0; number < names_.size(); ++number) {
    double value;
    if (!ParseNumber(names_.name(number), &value)) return absl::OkStatus();
    if (value != std::floor(value) && !fraction.has_value()) fraction = number;
  }
  if (fraction.has_value()) {
    const auto has_it = [number = *fraction](const File& file) {
      return number < static_cast<int64_t>(file.first_lines.size()) && file.first_lines[number] > 0;
    };
    const File& file = *std::find_if(files_.begin(), files_.end(), has_it);
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, ":", file.first_lines[*fraction], ": found the target ",
        Quoted(names_.name(*fraction)),
        ", a number with a fraction, as the label of a class, expected an integer or "
        "a name (loss: mse, l1 and huber predict numbers; data.task: classification says that they "
        "are classes)"));
  }
  const int64_t classes = static_cast<int64_t>(source->classes.size());
  const int64_t lines = static_cast<int64_t>(files_[0].labels.size());
  if (classes > kFewClasses && lines < kLinesEach * classes) {
    source->notes.push_back(absl::StrCat(
        "warning: ", files_[0].path, ": the targets are ", classes, " different numbers in ", lines,
        " lines, and each is taken for a class; if they are quantities, expected loss: mse, "
        "l1 or huber "
        "(data.task: classification says that they are classes)"));
  }
  return absl::OkStatus();
}

absl::Status TargetColumn::Finish(Source* source) const {
  std::vector<Examples*> splits = {&source->train, &source->test};
  if (!classification_) {
    source->description.set_target_scale(scale_);
    for (size_t i = 0; i < files_.size(); ++i) splits[i]->values = files_[i].values;
    return absl::OkStatus();
  }
  const std::vector<int32_t> ranks = names_.Ranks(&source->classes);
  if (source->classes.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(files_[0].path, ": all targets are ", Quoted(names_.name(0)),
                     ", expected at least two classes (data.task: regression takes numbers)"));
  }
  if (!is_asked_for_) RUBATO_RETURN_IF_ERROR(CheckNumbers(source));
  std::vector<bool> trained(source->classes.size());
  for (const int32_t label : files_[0].labels) trained[ranks[label]] = true;
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const int32_t label : files_[i].labels) {
      if (!trained[ranks[label]]) {
        return absl::InvalidArgumentError(
            absl::StrCat(files_[i].path, ":", files_[i].first_lines[label], ": found the label ",
                         Quoted(names_.name(label)), ", which ", files_[0].path, " does not have"));
      }
      splits[i]->labels.push_back(ranks[label]);
    }
  }
  for (Examples* examples : splits) {
    examples->classes = static_cast<int64_t>(source->classes.size());
  }
  return absl::OkStatus();
}

}  // namespace rubato
