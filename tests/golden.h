// Golden files: what another program computed, for tests to compare with.
#ifndef RUBATO_TESTS_GOLDEN_H_
#define RUBATO_TESTS_GOLDEN_H_

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/files/safetensors.h"

namespace rubato {

// A file of tests/goldens, which the test must name in its `data`. A file or tensor that is not
// there ends the test's process.
class Golden {
 public:
  // `name` as in "layers.safetensors".
  explicit Golden(absl::string_view name)
      : file_(ValueOrDie(SafetensorsReader::Open(absl::StrCat("tests/goldens/", name)))) {}

  const Metadata& metadata() const { return file_.metadata(); }

  std::vector<int64_t> Shape(absl::string_view tensor) const { return Info(tensor).shape; }

  // The values of an F32 or F64 tensor, row-major, converted to T.
  template <typename T>
  std::vector<T> Values(absl::string_view tensor) const {
    return Info(tensor).dtype == Dtype::kF32 ? Read<float, T>(tensor) : Read<double, T>(tensor);
  }

 private:
  template <typename T>
  static T ValueOrDie(absl::StatusOr<T> value) {
    if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    RUBATO_CHECK(value.ok());
    return *std::move(value);
  }

  size_t Index(absl::string_view tensor) const {
    const std::optional<size_t> index = file_.Find(tensor);
    if (!index) std::fprintf(stderr, "no tensor '%s'\n", std::string(tensor).c_str());
    RUBATO_CHECK(index.has_value());
    return *index;
  }

  const TensorInfo& Info(absl::string_view tensor) const { return file_.tensors()[Index(tensor)]; }

  template <typename Stored, typename T>
  std::vector<T> Read(absl::string_view tensor) const {
    const TensorInfo& info = Info(tensor);
    std::vector<Stored> stored(info.Elements());
    RUBATO_CHECK(info.Bytes() == static_cast<int64_t>(stored.size() * sizeof(Stored)));
    const absl::Span<char> bytes(reinterpret_cast<char*>(stored.data()), info.Bytes());
    RUBATO_CHECK(file_.Read(Index(tensor), 0, bytes).ok());
    return std::vector<T>(stored.begin(), stored.end());
  }

  SafetensorsReader file_;
};

}  // namespace rubato

#endif  // RUBATO_TESTS_GOLDEN_H_
