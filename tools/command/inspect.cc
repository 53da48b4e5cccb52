#include "tools/command/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/files/safetensors.h"
#include "common/space/modes.h"
#include "tools/command/parameters_file.h"

namespace rubato {
namespace {

// Of the finite values; the deviation is that of the population. Welford 1962, which does not lose
// a small spread around a large mean.
class Statistics {
 public:
  void Add(double value) {
    if (!std::isfinite(value)) {
      ++non_finite_;
      return;
    }
    ++count_;
    const double deviation = value - mean_;
    mean_ += deviation / count_;
    squares_ += deviation * (value - mean_);
    least_ = std::min(least_, value);
    greatest_ = std::max(greatest_, value);
  }

  std::vector<std::string> Columns() const {
    if (count_ == 0) return {"-", "-", "-", "-", absl::StrCat(non_finite_)};
    const auto text = [](double value) { return absl::StrFormat("%.6g", value); };
    return {text(least_), text(greatest_), text(mean_), text(std::sqrt(squares_ / count_)),
            absl::StrCat(non_finite_)};
  }

 private:
  int64_t count_ = 0;
  int64_t non_finite_ = 0;
  double mean_ = 0;
  double squares_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
  double greatest_ = -std::numeric_limits<double>::infinity();
};

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// IEEE 754 binary16.
double HalfToDouble(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) magnitude = fraction == 0 ? HUGE_VAL : std::nan("");
  return bits >> 15 ? -magnitude : magnitude;
}

double ToDouble(Dtype dtype, const char* bytes) {
  switch (dtype) {
    case Dtype::kF64:
      return Load<double>(bytes);
    case Dtype::kF32:
      return Load<float>(bytes);
    case Dtype::kF16:
      return HalfToDouble(Load<uint16_t>(bytes));
    case Dtype::kBF16: {
      const uint32_t bits = uint32_t{Load<uint16_t>(bytes)} << 16;
      return Load<float>(reinterpret_cast<const char*>(&bits));
    }
    case Dtype::kI64:
      return Load<int64_t>(bytes);
    case Dtype::kI32:
      return Load<int32_t>(bytes);
    case Dtype::kI16:
      return Load<int16_t>(bytes);
    case Dtype::kI8:
      return Load<int8_t>(bytes);
    case Dtype::kU64:
      return Load<uint64_t>(bytes);
    case Dtype::kU32:
      return Load<uint32_t>(bytes);
    case Dtype::kU16:
      return Load<uint16_t>(bytes);
    case Dtype::kU8:
    case Dtype::kBool:
      return Load<uint8_t>(bytes);
  }
  return 0;
}

absl::StatusOr<Statistics> StatisticsOf(const SafetensorsReader& file, size_t tensor) {
  constexpr int64_t kPieceBytes = 1 << 20;  // a multiple of every type's size
  std::vector<char> piece(kPieceBytes);
  const TensorInfo& info = file.tensors()[tensor];
  Statistics statistics;
  for (int64_t offset = 0; offset < info.Bytes(); offset += kPieceBytes) {
    const int64_t size = std::min(kPieceBytes, info.Bytes() - offset);
    RUBATO_RETURN_IF_ERROR(file.Read(tensor, offset, absl::MakeSpan(piece.data(), size)));
    for (int64_t i = 0; i < size; i += DtypeBytes(info.dtype)) {
      statistics.Add(ToDouble(info.dtype, &piece[i]));
    }
  }
  return statistics;
}

// Rows of text with aligned columns: the first one to the left, the others to the right.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&text, i == 0 ? "" : "  ", i == 0 ? row[i] + space : space + row[i]);
    }
    text += '\n';
  }
  return text;
}

// What else is in the checkpoint.
std::string CheckpointText(const proto::Manifest& manifest) {
  std::string text =
      absl::StrFormat("checkpoint: %s, %d samples, epoch %.2f, %.1f s of training, seed %d\n",
                      UnitText(FromManifest(manifest.mode()), manifest.step()), manifest.samples(),
                      manifest.epoch(), manifest.seconds(), manifest.seed());
  if (manifest.has_eval_loss()) {
    absl::StrAppend(&text, "last evaluation");
    // They may be other parameters than these.
    if (manifest.has_eval_samples()) {
      absl::StrAppendFormat(&text, ", at %d samples, epoch %.2f", manifest.eval_samples(),
                            static_cast<double>(manifest.eval_samples()) /
                                static_cast<double>(manifest.samples_per_epoch()));
    }
    absl::StrAppendFormat(&text, ": loss %.6g", manifest.eval_loss());
    if (manifest.has_eval_accuracy()) {
      absl::StrAppendFormat(&text, ", accuracy %.2f %%", 100 * manifest.eval_accuracy());
    }
    text += '\n';
  }
  if (manifest.slots_size() > 0) {
    absl::StrAppend(&text, "optimizer: ", absl::StrJoin(manifest.slots(), ", "), "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> InspectText(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(const FoundParameters found, FindParameters(path));
  const SafetensorsReader& file = found.file;

  std::vector<std::vector<std::string>> rows = {
      {"name", "dtype", "shape", "min", "max", "mean", "std", "non-finite"}};
  int64_t elements = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorInfo& info = file.tensors()[i];
    RUBATO_ASSIGN_OR_RETURN(const Statistics statistics, StatisticsOf(file, i));
    std::vector<std::string> row = {absl::Utf8SafeCHexEscape(info.name),
                                    std::string(DtypeName(info.dtype)),
                                    absl::StrCat("[", absl::StrJoin(info.shape, ","), "]")};
    const std::vector<std::string> columns = statistics.Columns();
    row.insert(row.end(), columns.begin(), columns.end());
    rows.push_back(std::move(row));
    elements += info.Elements();
    bytes += info.Bytes();
  }
  std::string text = absl::StrCat("file: ", file.path(), "\n", Table(rows));
  if (found.manifest.has_value()) text += CheckpointText(*found.manifest);
  for (const auto& [key, value] : file.metadata()) {
    absl::StrAppend(&text, "metadata: ", absl::Utf8SafeCHexEscape(key), " = ",
                    absl::Utf8SafeCHexEscape(value), "\n");
  }
  absl::StrAppend(&text, "total: ", file.tensors().size(), " tensors, ", elements, " parameters, ",
                  bytes, " bytes\n");
  RUBATO_ASSIGN_OR_RETURN(const std::string digest, TensorsDigest(file));
  absl::StrAppend(&text, "digest: ", digest, "\n");
  return text;
}

}  // namespace rubato
