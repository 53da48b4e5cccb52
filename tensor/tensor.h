// A small tensor: values of one type, row-major and without gaps, under a shape. References borrow
// the values and are passed to kernels and layers; a Tensor owns them.
#ifndef RUBATO_TENSOR_TENSOR_H_
#define RUBATO_TENSOR_TENSOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/check.h"

namespace rubato {

enum class DType { kFloat32, kFloat64, kInt32, kFloat16, kBFloat16 };

// Half floats, of which devices compute (tensor/half_float.h).
struct Float16;
struct BFloat16;

// DTypeOf<float>() is kFloat32, and so on.
template <typename T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kFloat64;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType DTypeOf<Float16>() {
  return DType::kFloat16;
}
template <>
constexpr DType DTypeOf<BFloat16>() {
  return DType::kBFloat16;
}

absl::string_view DTypeName(DType dtype);  // "float32", ...
int64_t BytesOf(DType dtype);              // of one value
// Whether activations may be of this type: parameters and sums are float32 then.
inline bool IsHalf(DType dtype) { return BytesOf(dtype) < BytesOf(DType::kFloat32); }

// Sizes of the dimensions, outermost first. Up to four are kept without an allocation.
using Shape = absl::InlinedVector<int64_t, 4>;

// The number of values; 1 for a shape without dimensions.
int64_t SizeOf(absl::Span<const int64_t> shape);

// "(64, 1, 28, 28)".
std::string ShapeText(absl::Span<const int64_t> shape);

// (n, *shape): a batch of n examples.
Shape BatchOf(int64_t n, absl::Span<const int64_t> shape);

// Values that the holder may read. Copying copies the reference, not the values; whoever owns the
// values must outlive it.
class ConstTensorRef {
 public:
  // No tensor, for what is optional.
  ConstTensorRef() = default;

  // One dimension over a span, vector or array of float, double or int32_t; implicit, so that
  // those can be passed where a tensor is expected.
  template <typename Values, typename T = typename decltype(absl::MakeConstSpan(
                                 std::declval<const Values&>()))::value_type>
  ConstTensorRef(const Values& values)  // NOLINT: implicit
      : ConstTensorRef(const_cast<T*>(values.data()), DTypeOf<T>(),
                       {static_cast<int64_t>(values.size())}) {}

  bool is_null() const { return values_ == nullptr && size_ == 0; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t size() const { return size_; }  // values
  const void* address() const { return values_; }

  // The values, row-major. T must be the type that dtype() says.
  template <typename T>
  absl::Span<const T> values() const {
    return {pointer<T>(), static_cast<size_t>(size_)};
  }

  // The same values under a shape of the same size.
  ConstTensorRef Reshaped(Shape shape) const {
    RUBATO_CHECK(SizeOf(shape) == size_);
    return ConstTensorRef(values_, dtype_, std::move(shape));
  }

  // The values from `offset` on (in row-major order), as many as `shape` holds.
  ConstTensorRef Slice(int64_t offset, Shape shape) const {
    void* const address = Address(offset, shape);  // before `shape` is moved from
    return ConstTensorRef(address, dtype_, std::move(shape));
  }

 protected:
  ConstTensorRef(void* values, DType dtype, Shape shape)
      : values_(values), dtype_(dtype), shape_(std::move(shape)), size_(SizeOf(shape_)) {}

  template <typename T>
  T* pointer() const {
    RUBATO_CHECK(dtype_ == DTypeOf<T>());
    return static_cast<T*>(values_);
  }

  void* Address(int64_t offset, const Shape& shape) const {
    RUBATO_CHECK(offset >= 0 && offset + SizeOf(shape) <= size_);
    return static_cast<char*>(values_) + offset * BytesOf(dtype_);
  }

 private:
  friend class TensorRef;

  void* values_ = nullptr;
  DType dtype_ = DType::kFloat32;
  Shape shape_ = {0};
  int64_t size_ = 0;
};

// Values that the holder may also write.
class TensorRef : public ConstTensorRef {
 public:
  TensorRef() = default;

  // As above, over a span of values, or a vector or array that may be written.
  template <typename T>
  TensorRef(absl::Span<T> values)  // NOLINT: implicit
      : ConstTensorRef(values.data(), DTypeOf<T>(), {static_cast<int64_t>(values.size())}) {}
  template <typename T>
  TensorRef(std::vector<T>& values)  // NOLINT: implicit
      : TensorRef(absl::MakeSpan(values)) {}

  // Over memory that may be a device's, which the host cannot read.
  static TensorRef At(void* memory, DType dtype, Shape shape) {
    return TensorRef(memory, dtype, std::move(shape));
  }

  template <typename T>
  absl::Span<T> values() const {
    return {pointer<T>(), static_cast<size_t>(size())};
  }

  TensorRef Reshaped(Shape shape) const {
    RUBATO_CHECK(SizeOf(shape) == size());
    return TensorRef(values_, dtype(), std::move(shape));
  }

  TensorRef Slice(int64_t offset, Shape shape) const {
    void* const address = Address(offset, shape);  // before `shape` is moved from
    return TensorRef(address, dtype(), std::move(shape));
  }

 private:
  friend class Tensor;
  TensorRef(void* values, DType dtype, Shape shape)
      : ConstTensorRef(values, dtype, std::move(shape)) {}
};

// Owns its values, in memory aligned for the widest registers.
class Tensor {
 public:
  Tensor() = default;

  // All values 0. ResourceExhausted if there is no memory for them.
  static absl::StatusOr<Tensor> Zeros(Shape shape, DType dtype);

  TensorRef ref() { return ref_; }
  ConstTensorRef ref() const { return ref_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };

  std::unique_ptr<void, Free> memory_;
  TensorRef ref_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_TENSOR_H_
