// Norms of groups of planes and of channels, and what norms of rows (row_norm.h) add up. Where the
// means of a gradient over a row or group are needed they are computed by the block that has it;
// the gradients by weight and bias by another kernel, over columns or channels. Batch norm of
// planes of one place is batch_norm.h's.
#ifndef RUBATO_TENSOR_CUDA_NORMALIZATION_H_
#define RUBATO_TENSOR_CUDA_NORMALIZATION_H_

#include "tensor/cuda/batch_norm.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/column_sums.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/pack.h"
#include "tensor/cuda/row_norm.h"
#include "tensor/device.h"

namespace rubato {
namespace normalization {

constexpr int kAhead = 4;  // values that a thread reads at a time

// Values that share mean and variance, and which weight is whose. Set s has the values At(s, i), i
// below count, of the channels Channel(s, i).

// Groups of channels of each example, (channels, plane).
struct Groups {
  int64_t count;  // channels of a group times plane
  Divisor groups, plane;
  RUBATO_HOST_DEVICE int64_t At(int64_t s, int64_t i) const { return s * count + i; }
  RUBATO_HOST_DEVICE int64_t Channel(int64_t s, int64_t i) const {
    return (s % groups * count + i) / plane;
  }
  int64_t channel_count() const { return groups * count / plane; }
};

// Channels of all examples.
struct Channels {
  int64_t count;  // examples times plane
  Divisor channels, plane;
  RUBATO_HOST_DEVICE int64_t At(int64_t s, int64_t i) const {
    return (i / plane * (channels - 1) + s) * plane + i;
  }
  RUBATO_HOST_DEVICE int64_t Channel(int64_t s, int64_t) const { return s; }
  int64_t channel_count() const { return channels; }
};

template <typename T, typename Sets>
struct Normalize {
  Sets sets;
  const T* x;
  const Wide<T>* weight;  // or null, as bias
  const Wide<T>* bias;
  Wide<T> eps;
  T* y;
  Wide<T>* statistics;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    using A = Wide<T>;
    const int64_t s = block.index();
    const auto load = [&](int64_t i) { return x[sets.At(s, i)]; };
    const A mean = block.Sum(A(0), [&](int thread) {
      A sum = 0;
      InTurn<kAhead>(thread, sets.count, block.threads(), load,
                     [&](int64_t, T value) { sum += Widen(value); });
      return sum;
    }) / static_cast<A>(sets.count);
    const A variance = block.Sum(A(0), [&](int thread) {
      A sum = 0;
      InTurn<kAhead>(thread, sets.count, block.threads(), load, [&](int64_t, T value) {
        const A off = Widen(value) - mean;
        sum += off * off;
      });
      return sum;
    }) / static_cast<A>(sets.count);
    const A inverse = 1 / numbers::Sqrt(variance + eps);
    block.ForEach([&](int thread) {
      if (thread == 0) {
        statistics[2 * s] = mean;
        statistics[2 * s + 1] = inverse;
      }
      InTurn<kAhead>(thread, sets.count, block.threads(), load, [&](int64_t i, T loaded) {
        const A value = (Widen(loaded) - mean) * inverse;
        y[sets.At(s, i)] = static_cast<T>(weight == nullptr ? value
                                                            : value * weight[sets.Channel(s, i)] +
                                                                  bias[sets.Channel(s, i)]);
      });
    });
  }

  Traffic Moves(int64_t n) const {
    const int64_t affine = weight == nullptr ? 0 : 2 * sets.channel_count();
    return {n * sets.count * SizeInBytes<T>() + affine * SizeInBytes<Wide<T>>(),
            n * (sets.count * SizeInBytes<T>() + 2 * SizeInBytes<Wide<T>>()), SizeInBytes<T>()};
  }
};

// The gradient by x.
template <typename T, typename Sets>
struct NormalizeBackward {
  Sets sets;
  const T* x;
  const Wide<T>* weight;  // or null
  const Wide<T>* statistics;
  const T* dy;
  T* dx;

  struct Both {
    T x;
    Wide<T> gradient;
  };

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    using A = Wide<T>;
    const int64_t s = block.index();
    const A mean = statistics[2 * s], inverse = statistics[2 * s + 1];
    const auto load = [&](int64_t i) { return Both{x[sets.At(s, i)], Gradient(s, i)}; };
    const Pair<A> sums = block.Sum(Pair<A>{0, 0}, [&](int thread) {
      Pair<A> part = {0, 0};
      InTurn<kAhead>(thread, sets.count, block.threads(), load, [&](int64_t, Both both) {
        const A value = (Widen(both.x) - mean) * inverse;
        part = part + Pair<A>{both.gradient, both.gradient * value};
      });
      return part;
    });
    const A count = static_cast<A>(sets.count);
    block.ForEach([&](int thread) {
      InTurn<kAhead>(thread, sets.count, block.threads(), load, [&](int64_t i, Both both) {
        const A value = (Widen(both.x) - mean) * inverse;
        dx[sets.At(s, i)] =
            static_cast<T>(inverse * (both.gradient - (sums.first + value * sums.second) / count));
      });
    });
  }

  Traffic Moves(int64_t n) const {
    const int64_t wide = 2 * n + (weight == nullptr ? 0 : sets.channel_count());
    return {2 * n * sets.count * SizeInBytes<T>() + wide * SizeInBytes<Wide<T>>(),
            n * sets.count * SizeInBytes<T>(), SizeInBytes<T>()};
  }

  // By the normalised value.
  RUBATO_HOST_DEVICE Wide<T> Gradient(int64_t s, int64_t i) const {
    const Wide<T> gradient = Widen(dy[sets.At(s, i)]);
    return weight == nullptr ? gradient : gradient * weight[sets.Channel(s, i)];
  }
};

// The gradients by weight and bias of rows, as sums of columns.
template <typename T>
struct ColumnGradients {
  static constexpr int kAhead = 2;

  int64_t columns;
  const T* x;
  const Wide<T>* statistics;
  const T* dy;

  template <int kWidth>
  struct Loaded {
    Pack<T, kWidth> x, dy;
    Wide<T> mean, inverse;
  };
  RUBATO_HOST_DEVICE Pair<Wide<T>> Zero() const { return {0, 0}; }
  template <int kWidth>
  RUBATO_HOST_DEVICE Loaded<kWidth> Load(int64_t row, int64_t column) const {
    const int64_t at = row * columns + column;
    return {LoadPack<kWidth>(x + at), LoadPack<kWidth>(dy + at), statistics[2 * row],
            statistics[2 * row + 1]};
  }
  template <int kWidth>
  RUBATO_HOST_DEVICE Pair<Wide<T>> Value(const Loaded<kWidth>& loaded, int k) const {
    const Wide<T> gradient = Widen(loaded.dy.values[k]);
    return {gradient * ((Widen(loaded.x.values[k]) - loaded.mean) * loaded.inverse), gradient};
  }
  Traffic Moves(int64_t rows, int64_t) const {
    return {2 * rows * (columns * SizeInBytes<T>() + SizeInBytes<Wide<T>>()), 0, SizeInBytes<T>()};
  }
};

// Those of a channel, a block's: of groups of channels or, if groups is 0, of whole channels.
template <typename T>
struct ChannelGradients {
  Channels all;
  int64_t groups;
  const T* x;
  const Wide<T>* statistics;
  const T* dy;
  Wide<T>* dweight;
  Wide<T>* dbias;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    using A = Wide<T>;
    const int64_t c = block.index();
    const Pair<A> sums = block.Sum(Pair<A>{0, 0}, [&](int thread) {
      Pair<A> part = {0, 0};
      InTurn<kAhead>(
          thread, all.count, block.threads(),
          [&](int64_t i) {
            const int64_t at = all.At(c, i);
            const int64_t s = groups == 0 ? c : i / all.plane * groups + c * groups / all.channels;
            const A gradient = Widen(dy[at]);
            const A value = (Widen(x[at]) - statistics[2 * s]) * statistics[2 * s + 1];
            return Pair<A>{gradient * value, gradient};
          },
          [&](int64_t, Pair<A> value) { part = part + value; });
      return part;
    });
    block.ForEach([&](int thread) {
      if (thread != 0) return;
      dweight[c] = sums.first;
      dbias[c] = sums.second;
    });
  }

  Traffic Moves(int64_t channels) const {
    const int64_t sets = groups == 0 ? channels : all.count / all.plane * groups;
    return {2 * (channels * all.count * SizeInBytes<T>() + sets * SizeInBytes<Wide<T>>()),
            2 * channels * SizeInBytes<Wide<T>>(), SizeInBytes<T>()};
  }
};

template <typename T>
struct ByStatistics {
  static constexpr int kAhead = 4;

  Divisor channels, plane;
  const T* x;
  const Wide<T>* weight;
  const Wide<T>* bias;
  const Wide<T>* mean;
  const Wide<T>* variance;
  Wide<T> eps;
  T* y;

  RUBATO_HOST_DEVICE Wide<T> Load(int64_t i) const {
    using A = Wide<T>;
    const int64_t c = i / plane % channels;
    const A value = (Widen(x[i]) - mean[c]) * (1 / numbers::Sqrt(variance[c] + eps));
    return weight == nullptr ? value : value * weight[c] + bias[c];
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, Wide<T> value) const { y[i] = static_cast<T>(value); }
  Traffic Moves(int64_t n) const {
    const int64_t wide = (weight == nullptr ? 2 : 4) * channels;
    return {n * SizeInBytes<T>() + wide * SizeInBytes<Wide<T>>(), n * SizeInBytes<T>(),
            SizeInBytes<T>()};
  }
};

// What a batch of planes adds to the averages.
template <typename A>
struct PlaneAverages {
  const A* statistics;
  batch_norm::Averages<A> averages;

  RUBATO_HOST_DEVICE void operator()(int64_t c) const {
    averages.Store(c, statistics[2 * c], statistics[2 * c + 1]);
  }
  Traffic Moves(int64_t channels) const {
    return {2 * channels * SizeInBytes<A>(), averages.bytes(), SizeInBytes<A>()};
  }
};

}  // namespace normalization

template <typename Queue>
class NormalizationKernels : public virtual DeviceKernels {
 public:
  explicit NormalizationKernels(Queue* queue) : queue_(*queue) {}

  void LayerNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
                 double eps, const TensorRef& y, const TensorRef& statistics) override {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      row_norm::LaunchForward<decltype(zero)>(queue_, x, weight, bias, eps, y, statistics);
    });
  }
  void LayerNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    if (!dx.is_null()) {
      ByType<Queue>(x.dtype(), [&](auto zero) {
        row_norm::LaunchBackward<decltype(zero)>(queue_, x, weight, statistics, dy, dx);
      });
    }
    if (dweight.is_null()) return;
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      using A = Wide<T>;
      LaunchSumColumns<T>(queue_, x.dim(0), x.dim(1),
                          MayHavePacks(x.address()) && MayHavePacks(dy.address()),
                          normalization::ColumnGradients<T>{x.dim(1), Pointer<T>(x),
                                                            Pointer<A>(statistics), Pointer<T>(dy)},
                          SumsTo<A>{Pointer<A>(dweight), Pointer<A>(dbias), x.dim(1)});
    });
  }

  void GroupNorm(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                 const ConstTensorRef& bias, double eps, const TensorRef& y,
                 const TensorRef& statistics) override {
    Forward(GroupsOf(x, groups), x.dim(0) * groups, kMaxThreads, x, weight, bias, eps, y,
            statistics);
  }
  void GroupNormBackward(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    if (!dx.is_null()) {
      Backward(GroupsOf(x, groups), x.dim(0) * groups, kMaxThreads, x, weight, statistics, dy, dx);
    }
    OfChannels(groups, x, statistics, dy, dweight, dbias);
  }

  void BatchNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
                 double eps, const TensorRef& y, const TensorRef& statistics, int64_t examples,
                 const TensorRef& averages) override {
    if (x.dim(2) > 1) {
      Forward(ChannelsOf(x), x.dim(1), kMaxThreads, x, weight, bias, eps, y, statistics);
    }
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      using A = Wide<T>;
      const batch_norm::Averages<A> to = {static_cast<double>(examples),
                                          static_cast<double>(x.dim(0) * x.dim(2)), eps, x.dim(1),
                                          Pointer<A>(averages)};
      if (x.dim(2) == 1) {
        batch_norm::LaunchForward<T>(queue_, x.dim(0), x.dim(1), x, weight, bias, eps, y,
                                     statistics, to);
      } else if (!averages.is_null()) {
        LaunchForEach(queue_, x.dim(1),
                      normalization::PlaneAverages<A>{Pointer<A>(statistics), to});
      }
    });
  }
  void BatchNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    if (x.dim(2) == 1 && !dweight.is_null()) {
      ByType<Queue>(x.dtype(), [&](auto zero) {
        batch_norm::LaunchBackward<decltype(zero)>(queue_, x.dim(0), x.dim(1), x, weight,
                                                   statistics, dy, dx, dweight, dbias);
      });
      return;
    }
    if (!dx.is_null()) {
      Backward(ChannelsOf(x), x.dim(1), kMaxThreads, x, weight, statistics, dy, dx);
    }
    OfChannels(0, x, statistics, dy, dweight, dbias);
  }
  void BatchNormByStatistics(const ConstTensorRef& x, const ConstTensorRef& weight,
                             const ConstTensorRef& bias, const ConstTensorRef& mean,
                             const ConstTensorRef& variance, double eps,
                             const TensorRef& y) override {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      using A = Wide<T>;
      LaunchForEach(
          queue_, x.size(),
          normalization::ByStatistics<T>{x.dim(1), x.dim(2), Pointer<T>(x), Pointer<A>(weight),
                                         Pointer<A>(bias), Pointer<A>(mean), Pointer<A>(variance),
                                         static_cast<A>(eps), Pointer<T>(y)});
    });
  }

 private:
  static normalization::Groups GroupsOf(const ConstTensorRef& x, int64_t groups) {
    return {x.dim(1) / groups * x.dim(2), groups, x.dim(2)};
  }
  static normalization::Channels ChannelsOf(const ConstTensorRef& x) {
    return {x.dim(0) * x.dim(2), x.dim(1), x.dim(2)};
  }

  template <typename Sets>
  void Forward(const Sets& sets, int64_t count, int threads, const ConstTensorRef& x,
               const ConstTensorRef& weight, const ConstTensorRef& bias, double eps,
               const TensorRef& y, const TensorRef& statistics) {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      using A = Wide<T>;
      queue_.Launch(count, ThreadsFor(sets.count, threads),
                    normalization::Normalize<T, Sets>{sets, Pointer<T>(x), Pointer<A>(weight),
                                                      Pointer<A>(bias), static_cast<A>(eps),
                                                      Pointer<T>(y), Pointer<A>(statistics)});
    });
  }

  template <typename Sets>
  void Backward(const Sets& sets, int64_t count, int threads, const ConstTensorRef& x,
                const ConstTensorRef& weight, const ConstTensorRef& statistics,
                const ConstTensorRef& dy, const TensorRef& dx) {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      queue_.Launch(count, ThreadsFor(sets.count, threads),
                    normalization::NormalizeBackward<T, Sets>{
                        sets, Pointer<T>(x), Pointer<Wide<T>>(weight), Pointer<Wide<T>>(statistics),
                        Pointer<T>(dy), Pointer<T>(dx)});
    });
  }

  void OfChannels(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& statistics,
                  const ConstTensorRef& dy, const TensorRef& dweight, const TensorRef& dbias) {
    if (dweight.is_null()) return;
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const normalization::Channels all = ChannelsOf(x);
      queue_.Launch(x.dim(1), ThreadsFor(all.count, kMaxThreads),
                    normalization::ChannelGradients<T>{
                        all, groups, Pointer<T>(x), Pointer<Wide<T>>(statistics), Pointer<T>(dy),
                        Pointer<Wide<T>>(dweight), Pointer<Wide<T>>(dbias)});
    });
  }

  Queue& queue_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_NORMALIZATION_H_
