// Kernels of single values, and sums over rows: the part of the set that needs no shapes.
#ifndef RUBATO_TENSOR_CUDA_ELEMENTWISE_H_
#define RUBATO_TENSOR_CUDA_ELEMENTWISE_H_

#include <cmath>

#include "common/base/philox.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/column_sums.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/pack.h"
#include "tensor/device.h"

namespace rubato {
namespace elementwise {

struct ReluFunction {
  template <typename A>
  static RUBATO_HOST_DEVICE A Value(A x) {
    return x > 0 || x != x ? x : A(0);
  }
  template <typename A>
  static RUBATO_HOST_DEVICE A Times(A y, A dy) {
    return y > 0 || y != y ? dy : A(0);
  }
};

struct SigmoidFunction {
  template <typename A>
  static RUBATO_HOST_DEVICE A Value(A x) {
    return numbers::Sigmoid(x);
  }
  template <typename A>
  static RUBATO_HOST_DEVICE A Times(A y, A dy) {
    return dy * (y * (1 - y));
  }
};

struct TanhFunction {
  template <typename A>
  static RUBATO_HOST_DEVICE A Value(A x) {
    return numbers::Tanh(x);
  }
  template <typename A>
  static RUBATO_HOST_DEVICE A Times(A y, A dy) {
    return dy * (1 - y * y);
  }
};

struct Product {
  template <typename A>
  static RUBATO_HOST_DEVICE A Times(A x, A y) {
    return x * y;
  }
};

struct Addition {
  template <typename A>
  static RUBATO_HOST_DEVICE A Times(A x, A y) {
    return x + y;
  }
};

// y = f(x).
template <typename T, typename F>
struct Apply {
  static constexpr int kAhead = 8;

  const T* x;
  T* y;
  RUBATO_HOST_DEVICE T Load(int64_t i) const { return x[i]; }
  RUBATO_HOST_DEVICE void Store(int64_t i, T value) const {
    y[i] = static_cast<T>(F::Value(Widen(value)));
  }
  Traffic Moves(int64_t n) const {
    return {n * SizeInBytes<T>(), n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// z = f(x, y).
template <typename T, typename F>
struct Combine {
  static constexpr int kAhead = 8;

  const T* x;
  const T* y;
  T* z;
  struct Both {
    T x, y;
  };
  RUBATO_HOST_DEVICE Both Load(int64_t i) const { return {x[i], y[i]}; }
  RUBATO_HOST_DEVICE void Store(int64_t i, Both both) const {
    z[i] = static_cast<T>(F::Times(Widen(both.x), Widen(both.y)));
  }
  Traffic Moves(int64_t n) const {
    return {2 * n * SizeInBytes<T>(), n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// Of T, which values have in memory.
struct ExactGelu {
  template <typename T>
  static RUBATO_HOST_DEVICE Wide<T> Value(Wide<T> x, Wide<T>* derivative) {
    if constexpr (sizeof(T) < sizeof(float)) {
      return numbers::FastGelu(x, derivative);
    } else {
      return numbers::Gelu(x, derivative);
    }
  }
};
struct GeluByTanh {
  template <typename T>
  static RUBATO_HOST_DEVICE Wide<T> Value(Wide<T> x, Wide<T>* derivative) {
    return numbers::GeluTanh(x, derivative);
  }
};

// Of kWidth values for each i.
template <typename T, typename F, int kWidth>
struct GeluValues {
  static constexpr int kAhead = kWidth == 1 ? 8 : 2;
  using Values = Pack<T, kWidth>;

  const T* x;
  T* y;
  T* derivative;  // or null
  RUBATO_HOST_DEVICE Values Load(int64_t i) const { return LoadPack<kWidth>(x + i * kWidth); }
  RUBATO_HOST_DEVICE void Store(int64_t i, const Values& loaded) const {
    Values value, slope;
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      Wide<T> d;
      value.values[k] = static_cast<T>(F::template Value<T>(Widen(loaded.values[k]), &d));
      slope.values[k] = static_cast<T>(d);
    }
    StorePack<kWidth>(value, y + i * kWidth);
    if (derivative != nullptr) StorePack<kWidth>(slope, derivative + i * kWidth);
  }
  Traffic Moves(int64_t n) const {
    const int64_t bytes = n * kWidth * SizeInBytes<T>();
    return {bytes, (derivative == nullptr ? 1 : 2) * bytes, kWidth * SizeInBytes<T>()};
  }
};

// Four values, which one draw of four words decides.
template <typename T>
struct DropFour {
  const uint64_t* key;
  uint32_t threshold;
  Wide<T> scale;
  int64_t n;
  const T* x;
  T* y;
  RUBATO_HOST_DEVICE void operator()(int64_t block) const {
    uint32_t words[4];
    DrawFour(*key, static_cast<uint64_t>(block), words);
    for (int w = 0; w < 4; ++w) {
      const int64_t i = 4 * block + w;
      if (i < n) y[i] = static_cast<T>(Widen(x[i]) * (words[w] >= threshold ? scale : Wide<T>(0)));
    }
  }
  Traffic Moves(int64_t) const {
    return {n * SizeInBytes<T>() + SizeInBytes<uint64_t>(), n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

template <typename T>
struct CopyValues {
  static constexpr int kAhead = 8;

  const T* x;
  T* y;
  RUBATO_HOST_DEVICE T Load(int64_t i) const { return x[i]; }
  RUBATO_HOST_DEVICE void Store(int64_t i, T value) const { y[i] = value; }
  Traffic Moves(int64_t n) const {
    return {n * SizeInBytes<T>(), n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

template <typename T>
struct Zero {
  T* y;
  RUBATO_HOST_DEVICE void operator()(int64_t i) const { y[i] = T(0.0f); }
  Traffic Moves(int64_t n) const { return {0, n * SizeInBytes<T>()}; }
};

template <typename From, typename To>
struct ConvertValues {
  static constexpr int kAhead = 8;

  const From* x;
  To* y;
  RUBATO_HOST_DEVICE From Load(int64_t i) const { return x[i]; }
  RUBATO_HOST_DEVICE void Store(int64_t i, From value) const {
    y[i] = static_cast<To>(Widen(value));
  }
  Traffic Moves(int64_t n) const {
    return {n * SizeInBytes<From>(), n * SizeInBytes<To>(), SizeInBytes<From>()};
  }
};

// y[i, j] = x[i, j] + bias[j].
template <typename T>
struct AddToRows {
  static constexpr int kAhead = 4;

  const T* x;
  const Wide<T>* bias;
  Divisor columns;
  T* y;
  struct Both {
    T x;
    Wide<T> bias;
  };
  RUBATO_HOST_DEVICE Both Load(int64_t i) const { return {x[i], bias[i % columns]}; }
  RUBATO_HOST_DEVICE void Store(int64_t i, Both both) const {
    y[i] = static_cast<T>(Widen(both.x) + both.bias);
  }
  Traffic Moves(int64_t n) const {
    return {n * SizeInBytes<T>() + columns * SizeInBytes<Wide<T>>(), n * SizeInBytes<T>(),
            SizeInBytes<T>()};
  }
};

template <typename T>
struct Column {
  static constexpr int kAhead = 4;

  const T* x;
  int64_t columns;
  RUBATO_HOST_DEVICE Wide<T> Zero() const { return 0; }
  template <int kWidth>
  RUBATO_HOST_DEVICE Pack<T, kWidth> Load(int64_t row, int64_t column) const {
    return LoadPack<kWidth>(x + row * columns + column);
  }
  template <typename Loaded>
  RUBATO_HOST_DEVICE Wide<T> Value(const Loaded& loaded, int k) const {
    return Widen(loaded.values[k]);
  }
  Traffic Moves(int64_t rows, int64_t) const {
    return {rows * columns * SizeInBytes<T>(), 0, SizeInBytes<T>()};
  }
};

template <typename T>
struct UnscaleValues {
  static constexpr int kAhead = 8;

  const float* scale;
  T* gradient;
  double* overflow;
  RUBATO_HOST_DEVICE T Load(int64_t i) const { return gradient[i]; }
  RUBATO_HOST_DEVICE void Store(int64_t i, T loaded) const {
    const T value = loaded / *scale;
    gradient[i] = value;
    if (!(value - value == 0)) *overflow = 1;  // infinite, or no number; all write the same
  }
  Traffic Moves(int64_t n) const {
    return {n * SizeInBytes<T>() + SizeInBytes<float>(), n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// Makes `flag` 1 if a value is infinite, or no number, of kWidth for each i.
template <typename T, int kWidth>
struct FlagNonFinite {
  static constexpr int kAhead = kWidth == 1 ? 8 : 4;
  using Values = Pack<T, kWidth>;

  const T* x;
  double* flag;
  RUBATO_HOST_DEVICE Values Load(int64_t i) const { return LoadPack<kWidth>(x + i * kWidth); }
  RUBATO_HOST_DEVICE void Store(int64_t, const Values& loaded) const {
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const T value = loaded.values[k];
      if (!(value - value == 0)) *flag = 1;  // all write the same
    }
  }
  Traffic Moves(int64_t n) const {
    return {n * kWidth * SizeInBytes<T>(), 0, kWidth * SizeInBytes<T>()};
  }
};

}  // namespace elementwise

template <typename Queue>
class ElementwiseKernels : public virtual DeviceKernels {
 public:
  explicit ElementwiseKernels(Queue* queue) : queue_(*queue) {}

  void Copy(const ConstTensorRef& x, const TensorRef& y) override {
    Each<elementwise::CopyValues>(x, y.size(), [&](auto zero) {
      using T = decltype(zero);
      return elementwise::CopyValues<T>{Pointer<T>(x), Pointer<T>(y)};
    });
  }
  void SetToZero(const TensorRef& y) override {
    if (y.dtype() == DType::kFloat64) {  // also on GPUs: the loss's sums
      LaunchForEach(queue_, y.size(), elementwise::Zero<double>{Pointer<double>(y)});
      return;
    }
    Each<elementwise::Zero>(y, y.size(), [&](auto zero) {
      return elementwise::Zero<decltype(zero)>{Pointer<decltype(zero)>(y)};
    });
  }
  void AddTensors(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) override {
    Binary<elementwise::Addition>(x, y, z);
  }
  void Multiply(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) override {
    Binary<elementwise::Product>(x, y, z);
  }
  void AddRow(const ConstTensorRef& x, const ConstTensorRef& bias, const TensorRef& y) override {
    Each<elementwise::AddToRows>(x, y.size(), [&](auto zero) {
      using T = decltype(zero);
      return elementwise::AddToRows<T>{Pointer<T>(x), Pointer<Wide<T>>(bias), bias.size(),
                                       Pointer<T>(y)};
    });
  }
  void ColumnSums(const ConstTensorRef& x, const TensorRef& sums) override {
    const int64_t rows = x.size() / sums.size();
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      LaunchSumColumns<T>(queue_, rows, sums.size(), MayHavePacks(x.address()),
                          elementwise::Column<T>{Pointer<T>(x), sums.size()},
                          SumsTo<Wide<T>>{Pointer<Wide<T>>(sums), nullptr, sums.size()});
    });
  }

  void Relu(const ConstTensorRef& x, const TensorRef& y) override {
    Unary<elementwise::ReluFunction>(x, y);
  }
  void ReluBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                    const TensorRef& dx) override {
    Binary<elementwise::ReluFunction>(y, dy, dx);
  }
  void Sigmoid(const ConstTensorRef& x, const TensorRef& y) override {
    Unary<elementwise::SigmoidFunction>(x, y);
  }
  void SigmoidBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                       const TensorRef& dx) override {
    Binary<elementwise::SigmoidFunction>(y, dy, dx);
  }
  void Tanh(const ConstTensorRef& x, const TensorRef& y) override {
    Unary<elementwise::TanhFunction>(x, y);
  }
  void TanhBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                    const TensorRef& dx) override {
    Binary<elementwise::TanhFunction>(y, dy, dx);
  }
  void Gelu(GeluForm form, const ConstTensorRef& x, const TensorRef& y) override {
    GeluWithDerivative(form, x, y, TensorRef());
  }
  void GeluWithDerivative(GeluForm form, const ConstTensorRef& x, const TensorRef& y,
                          const TensorRef& derivative) override {
    form == GeluForm::kTanh ? LaunchGelu<elementwise::GeluByTanh>(x, y, derivative)
                            : LaunchGelu<elementwise::ExactGelu>(x, y, derivative);
  }
  void Dropout(const uint64_t* key, double p, const ConstTensorRef& x,
               const TensorRef& y) override {
    const double threshold = std::nearbyint(p * 0x1p32);
    Each<elementwise::DropFour>(x, (x.size() + 3) / 4, [&](auto zero) {
      using T = decltype(zero);
      return elementwise::DropFour<T>{
          key,
          static_cast<uint32_t>(threshold < 0x1p32 ? threshold : 0x1p32 - 1),
          static_cast<Wide<T>>(1 / (1 - p)),
          x.size(),
          Pointer<T>(x),
          Pointer<T>(y)};
    });
  }

  void Convert(const ConstTensorRef& x, const TensorRef& y) override {
    ByType<Queue>(y.dtype(), [&](auto zero) {
      using To = decltype(zero);
      LaunchForEach(queue_, y.size(),
                    elementwise::ConvertValues<Wide<To>, To>{Pointer<Wide<To>>(x), Pointer<To>(y)});
    });
  }
  void Unscale(const ConstTensorRef& scale, const TensorRef& gradient,
               const TensorRef& overflow) override {
    LaunchForEach(queue_, gradient.size(),
                  elementwise::UnscaleValues<float>{Pointer<float>(scale), Pointer<float>(gradient),
                                                    Pointer<double>(overflow)});
  }
  void FlagNonFinite(const ConstTensorRef& x, const TensorRef& flag) override {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = Wide<decltype(zero)>;  // no gradient is of half floats
      ByWidth<T>(x.size(), MayHavePacks(x.address()), [&](auto width) {
        LaunchForEach(queue_, x.size() / width(),
                      elementwise::FlagNonFinite<T, width()>{Pointer<T>(x), Pointer<double>(flag)});
      });
    });
  }

 protected:
  Queue& queue_;

 private:
  // n calls of what make(T()) gives.
  template <template <typename> class F, typename Make>
  void Each(const ConstTensorRef& of, int64_t n, Make make) {
    ByType<Queue>(of.dtype(), [&](auto zero) {
      const F<decltype(zero)> f = make(zero);
      LaunchForEach(queue_, n, f);
    });
  }

  template <typename F>
  void LaunchGelu(const ConstTensorRef& x, const TensorRef& y, const TensorRef& derivative) {
    const bool has_packs = MayHavePacks(x.address()) && MayHavePacks(y.address()) &&
                           MayHavePacks(derivative.address());
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      ByWidth<T>(y.size(), has_packs, [&](auto width) {
        LaunchForEach(queue_, y.size() / width(),
                      elementwise::GeluValues<T, F, width()>{Pointer<T>(x), Pointer<T>(y),
                                                             Pointer<T>(derivative)});
      });
    });
  }

  template <typename F>
  void Unary(const ConstTensorRef& x, const TensorRef& y) {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      LaunchForEach(queue_, x.size(), elementwise::Apply<T, F>{Pointer<T>(x), Pointer<T>(y)});
    });
  }

  template <typename F>
  void Binary(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      LaunchForEach(queue_, x.size(),
                    elementwise::Combine<T, F>{Pointer<T>(x), Pointer<T>(y), Pointer<T>(z)});
    });
  }
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_ELEMENTWISE_H_
