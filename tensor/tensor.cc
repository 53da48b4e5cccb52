#include "tensor/tensor.h"

#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rubato {

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

int64_t BytesOf(DType dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return 2;
  return dtype == DType::kFloat64 ? 8 : 4;
}

int64_t SizeOf(absl::Span<const int64_t> shape) {
  int64_t size = 1;
  for (int64_t dim : shape) size *= dim;
  return size;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ", "), shape.size() == 1 ? ",)" : ")");
}

Shape BatchOf(int64_t n, absl::Span<const int64_t> shape) {
  Shape batch = {n};
  batch.insert(batch.end(), shape.begin(), shape.end());
  return batch;
}

absl::StatusOr<Tensor> Tensor::Zeros(Shape shape, DType dtype) {
  constexpr int64_t kAlignment = 64;  // bytes: a cache line, and the widest register
  const int64_t bytes = SizeOf(shape) * BytesOf(dtype);
  const int64_t rounded = (bytes / kAlignment + 1) * kAlignment;
  Tensor tensor;
  tensor.memory_.reset(std::aligned_alloc(kAlignment, rounded));
  if (tensor.memory_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for a ", DTypeName(dtype), " tensor ", ShapeText(shape), ": ", bytes, " bytes"));
  }
  std::memset(tensor.memory_.get(), 0, rounded);
  tensor.ref_ = TensorRef(tensor.memory_.get(), dtype, std::move(shape));
  return tensor;
}

void Tensor::Free::operator()(void* memory) const { std::free(memory); }

}  // namespace rubato
