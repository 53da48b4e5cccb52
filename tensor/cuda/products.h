// Layers that are products of matrices: linear ones and attention.
#ifndef RUBATO_TENSOR_CUDA_PRODUCTS_H_
#define RUBATO_TENSOR_CUDA_PRODUCTS_H_

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tensor/cuda/block.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/product.h"
#include "tensor/device.h"

namespace rubato {
namespace attention {

constexpr int kAhead = 4;  // of a row of 1024 places all that a thread has

// What is seen of the values of whole matrices that have so many rows together.
inline int64_t Seen(int64_t rows, int64_t places, bool causal) {
  return causal ? rows * (places + 1) / 2 : rows * places;
}

// The softmax of a row of scores, a block's. Row i of a causal one has i + 1 values, then zeros.
// Scores lie behind one another, in the type that they are computed in, for a half float's rounding
// would be an error of exp's argument; probabilities may lie where they lay.
template <typename T>
struct SoftmaxRow {
  static constexpr int kMostThreads = kUsualThreads;

  const Wide<T>* scores;
  T* probabilities;
  Divisor places;
  int64_t distance;  // of one matrix of probabilities from the next
  bool causal;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    using A = Wide<T>;
    const int64_t matrix = block.index() / places, place = block.index() - matrix * places;
    const A* const row = scores + block.index() * places;
    T* const to = probabilities + matrix * distance + place * places;
    const int64_t seen = causal ? place + 1 : places.value();
    const A lowest = numbers::Lowest<A>();
    const A greatest = block.Reduce(
        lowest,
        [&](int thread) {
          A most = lowest;
          InTurn<kAhead>(
              thread, seen, block.threads(), [&](int64_t j) { return row[j]; },
              [&](int64_t, A score) { most = Greater()(most, score); });
          return most;
        },
        Greater());
    const A sum = block.Sum(A(0), [&](int thread) {
      A part = 0;
      InTurn<kAhead>(
          thread, seen, block.threads(), [&](int64_t j) { return row[j]; },
          [&](int64_t, A score) { part += numbers::Exp(score - greatest); });
      return part;
    });
    block.ForEach([&](int thread) {
      InTurn<kAhead>(
          thread, places, block.threads(), [&](int64_t j) { return j < seen ? row[j] : lowest; },
          [&](int64_t j, A score) {
            to[j] = static_cast<T>(j < seen ? numbers::Exp(score - greatest) / sum : A(0));
          });
    });
  }

  Traffic Moves(int64_t rows) const {
    return {Seen(rows, places, causal) * SizeInBytes<Wide<T>>(), rows * places * SizeInBytes<T>(),
            SizeInBytes<Wide<T>>()};
  }
};

// gradient = probabilities * (gradient - sum of gradient * probabilities) * factor, likewise: where
// probabilities are 0 nothing is read.
template <typename T>
struct SoftmaxRowBackward {
  static constexpr int kMostThreads = kUsualThreads;
  struct Both {
    T p, g;
  };

  const T* probabilities;
  T* gradient;
  Divisor places;
  bool causal;
  Wide<T> factor;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    using A = Wide<T>;
    const T* const p = probabilities + block.index() * places;
    T* const g = gradient + block.index() * places;
    const int64_t seen = causal ? block.index() % places + 1 : places.value();
    const auto load = [&](int64_t j) { return j < seen ? Both{p[j], g[j]} : Both(); };
    const A dot = block.Sum(A(0), [&](int thread) {
      A part = 0;
      InTurn<kAhead>(thread, seen, block.threads(), load,
                     [&](int64_t, Both both) { part += Widen(both.g) * Widen(both.p); });
      return part;
    });
    block.ForEach([&](int thread) {
      InTurn<kAhead>(thread, places, block.threads(), load, [&](int64_t j, Both both) {
        g[j] = static_cast<T>(j < seen ? Widen(both.p) * (Widen(both.g) - dot) * factor : A(0));
      });
    });
  }

  Traffic Moves(int64_t rows) const {
    return {2 * Seen(rows, places, causal) * SizeInBytes<T>(), rows * places * SizeInBytes<T>(),
            SizeInBytes<T>()};
  }
};

// Queries, keys and values of each place lie behind one another, so that the matrices of all
// examples and heads have no one distance: one product is of one head and all examples, or of one
// example and all heads, whichever makes fewer.
struct Layout {
  int64_t n, heads, places, channels;

  int64_t size() const { return channels / heads; }
  int64_t row() const { return 3 * channels; }
  bool by_head() const { return heads <= n; }
  int64_t products() const { return by_head() ? heads : n; }
  int64_t count() const { return by_head() ? n : heads; }

  // Of the i-th product: in x or dx, in y or dy, in the scores.
  int64_t X(int64_t i) const { return by_head() ? i * size() : i * places * row(); }
  int64_t Y(int64_t i) const { return by_head() ? i * size() : i * places * channels; }
  int64_t Score(int64_t i) const { return (by_head() ? i : i * heads) * places * places; }
  int64_t x_distance() const { return by_head() ? places * row() : size(); }
  int64_t y_distance() const { return by_head() ? places * channels : size(); }
  int64_t score_distance() const { return (by_head() ? heads : 1) * places * places; }
};

}  // namespace attention

template <typename Queue>
class ProductKernels : public virtual DeviceKernels {
 public:
  explicit ProductKernels(Queue* queue) : queue_(*queue) {}

  void Linear(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
              const TensorRef& y) override {
    const int64_t rows = x.dim(0), in = x.dim(1), out = weight.dim(0);
    Product product(Transpose::kNo, Transpose::kYes, rows, out, in);
    product.a = All(x, in);
    product.b = All(weight, in);
    product.c = All(y, out);
    product.bias = bias.address();
    queue_.Multiply(product);
  }

  void LinearBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                      const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                      const TensorRef& dbias) override {
    const int64_t rows = x.dim(0), in = x.dim(1), out = weight.dim(0);
    Product product(Transpose::kYes, Transpose::kNo, out, in, rows);
    product.a = All(dy, out);
    product.b = All(x, in);
    product.c = All(dweight, in);
    queue_.Multiply(product);
    if (!dbias.is_null()) ColumnSums(dy, dbias);
    if (dx.is_null()) return;
    product = Product(Transpose::kNo, Transpose::kNo, rows, in, out);
    product.a = All(dy, out);
    product.b = All(weight, in);
    product.c = All(dx, in);
    queue_.Multiply(product);
  }

  AttentionMemory MemoryOf(const Attention& a, int64_t n) const override {
    const int64_t workspace = queue_.AttentionWorkspace(a, n), rows = n * a.heads * a.places;
    if (workspace >= 0) {
      const int64_t bytes = BytesOf(a.dtype);
      return {rows * BytesOf(DType::kFloat32) / bytes, (workspace + bytes - 1) / bytes};
    }
    // Forward, in half floats: one matrix in float32 takes the room of two.
    return {rows * a.places, std::max<int64_t>(n * a.heads, 2) * a.places * a.places};
  }

  void ScaledDotProductAttention(int64_t heads, bool causal, const ConstTensorRef& x,
                                 const TensorRef& y, const TensorRef& saved,
                                 const TensorRef& scratch) override {
    const FusedAttention fused = Fused(heads, causal, x, y, saved, {}, {}, scratch);
    if (queue_.AttentionWorkspace(fused.attention, fused.n) >= 0) return queue_.Attend(fused);
    const attention::Layout l = {x.dim(0), heads, x.dim(1), x.dim(2) / 3};
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      using A = Wide<T>;
      T* const p = Pointer<T>(saved);
      // Scores of half floats are in float32, of so many matrices at a time as scratch has room
      // for. Others lie where the probabilities will, all of them.
      constexpr bool kInPlace = std::is_same_v<T, A>;
      const int64_t most = kInPlace ? l.count() : std::max<int64_t>(1, l.n * heads / 2);
      for (int64_t i = 0; i < l.products(); ++i) {
        for (int64_t first = 0; first < l.count(); first += most) {
          const T* const q = Pointer<T>(x) + l.X(i) + first * l.x_distance();
          T* const here = p + l.Score(i) + first * l.score_distance();
          Product product(Transpose::kNo, Transpose::kYes, l.places, l.places, l.size());
          product.a = MatrixAt(q, l.row(), l.x_distance());
          product.b = MatrixAt(q + l.channels, l.row(), l.x_distance());
          product.alpha = 1 / std::sqrt(static_cast<double>(l.size()));
          product.count = std::min(most, l.count() - first);
          if constexpr (kInPlace) {
            product.c = MatrixAt(here, l.places, l.score_distance());
            queue_.Multiply(product);
          } else {
            A* const scores = static_cast<A*>(const_cast<void*>(scratch.address()));
            product.c = MatrixAt(scores, l.places, l.places * l.places);
            queue_.Multiply(product);
            queue_.Launch(
                product.count * l.places, ThreadsFor(l.places),
                attention::SoftmaxRow<T>{scores, here, l.places, l.score_distance(), causal});
          }
        }
      }
      if constexpr (kInPlace) {
        queue_.Launch(l.n * heads * l.places, ThreadsFor(l.places),
                      attention::SoftmaxRow<T>{p, p, l.places, l.places * l.places, causal});
      }
      for (int64_t i = 0; i < l.products(); ++i) {
        Product product(Transpose::kNo, Transpose::kNo, l.places, l.size(), l.places);
        product.a = Scores(l, p, i);
        product.b = MatrixAt(Pointer<T>(x) + l.X(i) + 2 * l.channels, l.row(), l.x_distance());
        product.c = MatrixAt(Pointer<T>(y) + l.Y(i), l.channels, l.y_distance());
        product.count = l.count();
        queue_.Multiply(product);
      }
    });
  }

  void ScaledDotProductAttentionBackward(int64_t heads, bool causal, const ConstTensorRef& x,
                                         const ConstTensorRef& y, const ConstTensorRef& saved,
                                         const ConstTensorRef& dy, const TensorRef& dx,
                                         const TensorRef& scratch) override {
    const FusedAttention fused = Fused(heads, causal, x, y, saved, dy, dx, scratch);
    if (queue_.AttentionWorkspace(fused.attention, fused.n) >= 0) return queue_.Attend(fused);
    const attention::Layout l = {x.dim(0), heads, x.dim(1), x.dim(2) / 3};
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const T* const p = Pointer<T>(saved);
      T* const ds = Pointer<T>(scratch);
      const auto multiply = [&](Transpose ta, Transpose tb, int64_t n, int64_t k, Matrix a,
                                Matrix b, Matrix c) {
        Product product(ta, tb, l.places, n, k);
        product.a = a;
        product.b = b;
        product.c = c;
        product.count = l.count();
        queue_.Multiply(product);
      };
      const auto in_x = [&](const T* values, int64_t i, int part) {
        return MatrixAt(values + l.X(i) + part * l.channels, l.row(), l.x_distance());
      };
      const auto in_y = [&](int64_t i) {
        return MatrixAt(Pointer<T>(dy) + l.Y(i), l.channels, l.y_distance());
      };
      for (int64_t i = 0; i < l.products(); ++i) {
        multiply(Transpose::kNo, Transpose::kYes, l.places, l.size(), in_y(i),
                 in_x(Pointer<T>(x), i, 2), Scores(l, ds, i));
      }
      const double factor = 1 / std::sqrt(static_cast<double>(l.size()));
      queue_.Launch(
          l.n * heads * l.places, ThreadsFor(l.places),
          attention::SoftmaxRowBackward<T>{p, ds, l.places, causal, static_cast<Wide<T>>(factor)});
      for (int64_t i = 0; i < l.products(); ++i) {
        multiply(Transpose::kNo, Transpose::kNo, l.size(), l.places, Scores(l, ds, i),
                 in_x(Pointer<T>(x), i, 1), in_x(Pointer<T>(dx), i, 0));
        multiply(Transpose::kYes, Transpose::kNo, l.size(), l.places, Scores(l, ds, i),
                 in_x(Pointer<T>(x), i, 0), in_x(Pointer<T>(dx), i, 1));
        multiply(Transpose::kYes, Transpose::kNo, l.size(), l.places, Scores(l, p, i), in_y(i),
                 in_x(Pointer<T>(dx), i, 2));
      }
    });
  }

 private:
  static FusedAttention Fused(int64_t heads, bool causal, const ConstTensorRef& x,
                              const ConstTensorRef& y, const ConstTensorRef& saved,
                              const ConstTensorRef& dy, const ConstTensorRef& dx,
                              const ConstTensorRef& scratch) {
    const auto written = [](const ConstTensorRef& t) { return const_cast<void*>(t.address()); };
    return {{heads, x.dim(1), x.dim(2) / 3, causal, x.dtype()},
            x.dim(0),
            x.address(),
            written(y),
            static_cast<float*>(written(saved)),
            dy.address(),
            written(dx),
            written(scratch)};
  }
  static Matrix All(const ConstTensorRef& tensor, int64_t pitch) {
    return {tensor.address(), tensor.dtype(), pitch, 0};
  }

  template <typename T>
  static Matrix Scores(const attention::Layout& l, const T* scores, int64_t i) {
    return MatrixAt(scores + l.Score(i), l.places, l.score_distance());
  }

  Queue& queue_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PRODUCTS_H_
