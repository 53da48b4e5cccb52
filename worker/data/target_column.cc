#include "worker/data/target_column.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
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
  text = absl::StripAsciiWhitespace(text);
  if (text.empty() || IsNotFinite(text)) return false;
  const int32_t number = names_.Number(text);
  file.labels.push_back(number);
  if (number >= static_cast<int64_t>(file.first_lines.size())) file.first_lines.resize(number + 1);
  if (file.first_lines[number] == 0) file.first_lines[number] = line;
  return true;
}

absl::Status TargetColumn::Finish(Source* source) const {
  std::vector<Examples*> splits = {&source->train, &source->test};
  if (!classification_) {
    for (size_t i = 0; i < files_.size(); ++i) splits[i]->values = files_[i].values;
    return absl::OkStatus();
  }
  const std::vector<int32_t> ranks = names_.Ranks(&source->classes);
  if (source->classes.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(files_[0].path, ": all targets are ", Quoted(names_.name(0)),
                     ", expected at least two classes (data.task: regression takes numbers)"));
  }
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
