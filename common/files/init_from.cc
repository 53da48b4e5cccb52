#include "common/files/init_from.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/base/status.h"
#include "common/space/flat_space.h"

namespace rubato {
namespace {

// More would hide the rest of the message.
constexpr size_t kMaxNames = 10;

// Beside a batch norm's "running_mean".
constexpr char kBatchCount[] = "num_batches_tracked";

template <typename Shape>
std::string ShapeText(const Shape& shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ", "), ")");
}

// "a, b, c and 7 more".
std::string Names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxNames);
  std::string text = absl::StrJoin(names.begin(), names.begin() + shown, ", ",
                                   [](std::string* out, const std::string& name) {
                                     out->append(absl::Utf8SafeCHexEscape(name));
                                   });
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

}  // namespace

absl::Status CheckInitialParameters(const SafetensorsReader& file, const proto::Layout& layout) {
  std::vector<std::string> missing, unexpected, unlike;
  std::set<std::string> known;
  for (const proto::Parameter& parameter : layout.parameters()) {
    known.insert(parameter.name());
    const std::optional<size_t> index = file.Find(parameter.name());
    if (!index.has_value()) {
      missing.push_back(parameter.name());
      continue;
    }
    const TensorInfo& tensor = file.tensors()[*index];
    if (!std::equal(tensor.shape.begin(), tensor.shape.end(), parameter.shape().begin(),
                    parameter.shape().end())) {
      unlike.push_back(absl::StrCat(parameter.name(), ": found shape ", ShapeText(tensor.shape),
                                    ", expected ", ShapeText(parameter.shape())));
    } else if (tensor.dtype != Dtype::kF32) {
      unlike.push_back(absl::StrCat(parameter.name(), ": found type ", DtypeName(tensor.dtype),
                                    ", expected F32"));
    }
  }
  for (const TensorInfo& tensor : file.tensors()) {
    const bool is_count =
        absl::EndsWith(tensor.name, kBatchCount) &&
        known.count(absl::StrCat(absl::StripSuffix(tensor.name, kBatchCount), "running_mean")) > 0;
    if (known.count(tensor.name) == 0 && !is_count) unexpected.push_back(tensor.name);
  }
  std::vector<std::string> lines;
  if (!missing.empty()) {
    lines.push_back(absl::StrCat("found no ", Names(missing), ", expected all ",
                                 layout.parameters_size(), " parameters of the model"));
  }
  if (!unexpected.empty()) {
    lines.push_back(absl::StrCat("found ", Names(unexpected), ", which the model does not have"));
  }
  for (size_t i = 0; i < std::min(unlike.size(), kMaxNames); ++i) lines.push_back(unlike[i]);
  if (unlike.size() > kMaxNames) {
    lines.push_back(absl::StrCat("and ", unlike.size() - kMaxNames, " more of other shapes"));
  }
  if (lines.empty()) return absl::OkStatus();
  for (std::string& line : lines) line = absl::StrCat(file.path(), ": ", line);
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

absl::StatusOr<SafetensorsReader> OpenInitialParameters(std::string path,
                                                        const proto::Layout& layout) {
  RUBATO_ASSIGN_OR_RETURN(SafetensorsReader file, SafetensorsReader::Open(std::move(path)));
  RUBATO_RETURN_IF_ERROR(CheckInitialParameters(file, layout));
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    if (tensor.dtype != Dtype::kF32) continue;
    std::vector<float> values(std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1},
                                              std::multiplies<int64_t>()));
    RUBATO_RETURN_IF_ERROR(file.ReadFloats(i, 0, absl::MakeSpan(values)));
    const size_t wrong = FirstNonFinite(values);
    if (wrong < values.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": ", absl::Utf8SafeCHexEscape(tensor.name), ": found ",
                       values[wrong], " as value ", wrong, ", expected finite numbers"));
    }
  }
  return file;
}

absl::Status ReadInitialValues(const SafetensorsReader& file, const proto::Layout& layout,
                               int64_t begin, absl::Span<float> out) {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  int64_t at = 0;  // where the parameter begins in the flat vector
  for (const proto::Parameter& parameter : layout.parameters()) {
    const int64_t count = ValueCount(parameter);
    const int64_t from = std::max(begin, at), to = std::min(end, at + count);
    if (from < to) {
      const std::optional<size_t> index = file.Find(parameter.name());
      RUBATO_CHECK(index.has_value());
      RUBATO_RETURN_IF_ERROR(
          file.ReadFloats(*index, from - at, out.subspan(from - begin, to - from)));
    }
    at += count;
  }
  RUBATO_CHECK(begin >= 0 && end <= at);
  return absl::OkStatus();
}

}  // namespace rubato
