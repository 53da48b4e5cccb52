// Layer norm of rows, a block each. A thread has every so many packs of its row, whether packs may
// lie there or not, so that sums have one order; the row is read from memory once, and for what
// follows from the cache next to the processor. The gradients by weight and bias are sums of
// columns (normalization.h).
#ifndef RUBATO_TENSOR_CUDA_ROW_NORM_H_
#define RUBATO_TENSOR_CUDA_ROW_NORM_H_

#include <cstdint>

#include "tensor/cuda/block.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/pack.h"
#include "tensor/tensor.h"

namespace rubato {
namespace row_norm {

constexpr int kAhead = 3;  // packs that a thread reads at a time

// A pack's weights or biases; if there are none, `none`.
template <int kWidth, bool kWhole, typename A>
RUBATO_HOST_DEVICE void LoadOfColumns(const A* from, int64_t column, int64_t columns, A none,
                                      A* values) {
  constexpr int kPack = kPackBytes / static_cast<int>(sizeof(A));
  static_assert(kWidth % kPack == 0, "");
  RUBATO_UNROLL
  for (int k = 0; k < kWidth; k += kPack) {
    Pack<A, kPack> pack;
    if (from != nullptr) {
      pack = LoadOfRow<kPack, kWhole>(from + column + k, columns - column - k, none);
    }
    RUBATO_UNROLL
    for (int j = 0; j < kPack; ++j) values[k + j] = from == nullptr ? none : pack.values[j];
  }
}

template <typename T, bool kWhole>
struct Normalize {
  using A = Wide<T>;
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kWidth = PackWidth<T>();
  using Values = Pack<T, kWidth>;

  int64_t columns;
  const T* x;
  const A* weight;  // or null, as bias
  const A* bias;
  A eps;
  T* y;
  A* statistics;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int64_t row = block.index(), packs = (columns + kWidth - 1) / kWidth;
    const T* const from = x + row * columns;
    const auto load = [&](int64_t i) {
      return LoadOfRow<kWidth, kWhole>(from + i * kWidth, columns - i * kWidth, T(0.0f));
    };
    const A mean = block.Sum(A(0), [&](int thread) {
      A sum = 0;
      InTurn<kAhead>(thread, packs, block.threads(), load, [&](int64_t, const Values& values) {
        RUBATO_UNROLL
        for (int k = 0; k < kWidth; ++k) sum += Widen(values.values[k]);
      });
      return sum;
    }) / static_cast<A>(columns);
    const A variance = block.Sum(A(0), [&](int thread) {
      A sum = 0;
      InTurn<kAhead>(thread, packs, block.threads(), load, [&](int64_t i, const Values& values) {
        RUBATO_UNROLL
        for (int k = 0; k < kWidth; ++k) {
          const bool is_there = kWhole || i * kWidth + k < columns;
          const A off = is_there ? Widen(values.values[k]) - mean : A(0);
          sum += off * off;
        }
      });
      return sum;
    }) / static_cast<A>(columns);
    const A inverse = 1 / numbers::Sqrt(variance + eps);
    block.ForEach([&](int thread) {
      InTurn<kAhead>(thread, packs, block.threads(), load, [&](int64_t i, Values values) {
        A by[kWidth], plus[kWidth];
        LoadOfColumns<kWidth, kWhole>(weight, i * kWidth, columns, A(1), by);
        LoadOfColumns<kWidth, kWhole>(bias, i * kWidth, columns, A(0), plus);
        RUBATO_UNROLL
        for (int k = 0; k < kWidth; ++k) {
          const A value = (Widen(values.values[k]) - mean) * inverse;
          values.values[k] = static_cast<T>(value * by[k] + plus[k]);
        }
        StoreOfRow<kWidth, kWhole>(values, y + row * columns + i * kWidth, columns - i * kWidth);
      });
      if (thread != 0) return;
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = inverse;
    });
  }

  Traffic Moves(int64_t n) const {
    const int64_t affine = weight == nullptr ? 0 : 2 * columns;
    return {n * columns * SizeInBytes<T>() + affine * SizeInBytes<A>(),
            n * (columns * SizeInBytes<T>() + 2 * SizeInBytes<A>()),
            (kWhole ? kWidth : 1) * SizeInBytes<T>()};
  }
};

// The gradient by x.
template <typename T, bool kWhole>
struct NormalizeBackward {
  using A = Wide<T>;
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kWidth = PackWidth<T>();
  using Values = Pack<T, kWidth>;

  int64_t columns;
  const T* x;
  const A* weight;  // or null
  const A* statistics;
  const T* dy;
  T* dx;

  struct Both {
    Values x, dy;
  };

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int64_t row = block.index(), packs = (columns + kWidth - 1) / kWidth;
    const A mean = statistics[2 * row], inverse = statistics[2 * row + 1];
    const auto load = [&](int64_t i) {
      const int64_t at = row * columns + i * kWidth, left = columns - i * kWidth;
      return Both{LoadOfRow<kWidth, kWhole>(x + at, left, T(0.0f)),
                  LoadOfRow<kWidth, kWhole>(dy + at, left, T(0.0f))};
    };
    // use(k, the normalised value, the gradient by it) for a pack's values; beyond the row the
    // gradient is 0.
    const auto each = [&](int64_t i, const Both& both, auto use) {
      A by[kWidth];
      LoadOfColumns<kWidth, kWhole>(weight, i * kWidth, columns, A(1), by);
      RUBATO_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        use(k, (Widen(both.x.values[k]) - mean) * inverse, Widen(both.dy.values[k]) * by[k]);
      }
    };
    const Pair<A> sums = block.Sum(Pair<A>{0, 0}, [&](int thread) {
      Pair<A> part = {0, 0};
      InTurn<kAhead>(thread, packs, block.threads(), load, [&](int64_t i, const Both& both) {
        each(i, both, [&](int, A value, A gradient) {
          part = part + Pair<A>{gradient, gradient * value};
        });
      });
      return part;
    });
    const A by_one = sums.first / static_cast<A>(columns);
    const A by_value = sums.second / static_cast<A>(columns);
    block.ForEach([&](int thread) {
      InTurn<kAhead>(thread, packs, block.threads(), load, [&](int64_t i, const Both& both) {
        Values values;
        each(i, both, [&](int k, A value, A gradient) {
          values.values[k] = static_cast<T>(inverse * (gradient - (by_one + value * by_value)));
        });
        StoreOfRow<kWidth, kWhole>(values, dx + row * columns + i * kWidth, columns - i * kWidth);
      });
    });
  }

  Traffic Moves(int64_t n) const {
    const int64_t wide = 2 * n + (weight == nullptr ? 0 : columns);
    return {2 * n * columns * SizeInBytes<T>() + wide * SizeInBytes<A>(),
            n * columns * SizeInBytes<T>(), (kWhole ? kWidth : 1) * SizeInBytes<T>()};
  }
};

// A warp for each row of up to some hundred values: a thread reads all of its packs at a time.
template <typename T>
int ThreadsForRow(int64_t columns) {
  constexpr int64_t kOfThread = int64_t{kAhead} * PackWidth<T>();
  return ThreadsFor((columns + kOfThread - 1) / kOfThread);
}

// As KernelSet::LayerNorm.
template <typename T, typename Queue>
void LaunchForward(Queue& queue, const ConstTensorRef& x, const ConstTensorRef& weight,
                   const ConstTensorRef& bias, double eps, const TensorRef& y,
                   const TensorRef& statistics) {
  using A = Wide<T>;
  const int64_t columns = x.dim(1);
  ByWholeness<T>(columns, {x.address(), Pointer<A>(weight), Pointer<A>(bias), y.address()},
                 [&](auto is_whole) {
                   queue.Launch(x.dim(0), ThreadsForRow<T>(columns),
                                Normalize<T, is_whole()>{columns, Pointer<T>(x), Pointer<A>(weight),
                                                         Pointer<A>(bias), static_cast<A>(eps),
                                                         Pointer<T>(y), Pointer<A>(statistics)});
                 });
}

// The gradient by x of KernelSet::LayerNormBackward.
template <typename T, typename Queue>
void LaunchBackward(Queue& queue, const ConstTensorRef& x, const ConstTensorRef& weight,
                    const ConstTensorRef& statistics, const ConstTensorRef& dy,
                    const TensorRef& dx) {
  using A = Wide<T>;
  const int64_t columns = x.dim(1);
  ByWholeness<T>(
      columns, {x.address(), Pointer<A>(weight), dy.address(), dx.address()}, [&](auto is_whole) {
        queue.Launch(x.dim(0), ThreadsForRow<T>(columns),
                     NormalizeBackward<T, is_whole()>{columns, Pointer<T>(x), Pointer<A>(weight),
                                                      Pointer<A>(statistics), Pointer<T>(dy),
                                                      Pointer<T>(dx)});
      });
}

}  // namespace row_norm
}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_ROW_NORM_H_
