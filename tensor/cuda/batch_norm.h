// Batch norm of channels that lie behind one another: of the columns of a matrix whose rows are
// examples, or their places. Neighbours of a warp read neighbours, in as many blocks as a GPU
// needs.
//
// The values of a column are read once for its mean and variance: sums of distances from a number
// that is near its mean, and of their squares. That number is the middle one of three values of the
// column, of the first, the middle and the last row, so that one that is far out is not it. With d
// the mean's distance from it in standard deviations, the variance is off by some (1 + d^2)
// roundings of float32.
#ifndef RUBATO_TENSOR_CUDA_BATCH_NORM_H_
#define RUBATO_TENSOR_CUDA_BATCH_NORM_H_

#include <algorithm>

#include "tensor/cuda/block.h"
#include "tensor/cuda/column_sums.h"
#include "tensor/cuda/map_columns.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/pack.h"
#include "tensor/tensor.h"

namespace rubato {
namespace batch_norm {

// The middle one; a number or not if one of them is none.
template <typename A>
RUBATO_HOST_DEVICE A MiddleOf(A a, A b, A c) {
  const A low = a < b ? a : b, high = a < b ? b : a;
  return c < low ? low : c < high ? c : high;
}

template <typename T>
struct Columns {
  int64_t rows, columns;
  const T* x;

  template <int kWidth>
  RUBATO_HOST_DEVICE Pack<T, kWidth> At(int64_t row, int64_t column) const {
    return LoadPack<kWidth>(x + row * columns + column);
  }
  // What the values of kWidth columns are measured from.
  template <int kWidth>
  RUBATO_HOST_DEVICE void NearMeans(int64_t column, Wide<T>* near) const {
    const Pack<T, kWidth> first = At<kWidth>(0, column), middle = At<kWidth>(rows / 2, column),
                          last = At<kWidth>(rows - 1, column);
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      near[k] = MiddleOf(Widen(first.values[k]), Widen(middle.values[k]), Widen(last.values[k]));
    }
  }
  // Of how many rows that is.
  int64_t rows_near() const { return std::min<int64_t>(rows, 3); }
};

// What a batch adds to the running averages of its channels, from what it leaves as statistics: as
// BatchAverages (tensor/normalization.h).
template <typename A>
struct Averages {
  double n, count, eps;  // examples; values of a channel
  int64_t channels;
  A* to;  // or null

  RUBATO_HOST_DEVICE void Store(int64_t c, A mean, A inverse) const {
    if (to == nullptr) return;
    const double wide = inverse;
    const double variance = 1 / (wide * wide) - eps;
    to[c] = static_cast<A>(n * static_cast<double>(mean));
    to[channels + c] = static_cast<A>(count > 1 ? n * (variance * count / (count - 1)) : 0.0);
  }
  // Of all channels.
  int64_t bytes() const { return to == nullptr ? 0 : 2 * channels * SizeInBytes<A>(); }
};

// Distances of a column's values from the one near its mean, and their squares.
template <typename T>
struct ColumnDistances {
  static constexpr int kAhead = 8;

  Columns<T> all;

  template <int kWidth>
  struct FromNear {
    Columns<T> all;
    Wide<T> near[kWidth];

    template <int>
    RUBATO_HOST_DEVICE Pack<T, kWidth> Load(int64_t row, int64_t column) const {
      return all.template At<kWidth>(row, column);
    }
    RUBATO_HOST_DEVICE Pair<Wide<T>> Value(const Pack<T, kWidth>& loaded, int k) const {
      const Wide<T> distance = Widen(loaded.values[k]) - near[k];
      return {distance, distance * distance};
    }
  };
  template <int kWidth>
  RUBATO_HOST_DEVICE FromNear<kWidth> Of(int64_t column) const {
    FromNear<kWidth> of = {all, {}};
    all.template NearMeans<kWidth>(column, of.near);
    return of;
  }
  RUBATO_HOST_DEVICE Pair<Wide<T>> Zero() const { return {0, 0}; }
  Traffic Moves(int64_t rows, int64_t columns) const {
    return {rows * columns * SizeInBytes<T>(), 0, SizeInBytes<T>()};
  }
};

// From the sums of groups of rows, of distances first, then of squares, mean and 1 / sqrt(variance
// + eps) of each column, and the averages. A block has kTile columns, in as many lanes as it has
// room for.
template <typename T>
struct ColumnStatistics {
  using A = Wide<T>;
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kTile = 8, kLanes = kUsualThreads / kTile;

  Columns<T> all;
  int64_t groups;
  const A* sums;
  A eps;
  A* statistics;
  Averages<A> averages;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    Pair<A>* const shared = block.template Shared<Pair<A>>();  // (lanes, tile)
    block.ForEach([&](int thread) {
      const int64_t column = block.index() * kTile + thread % kTile;
      Pair<A> sum = {0, 0};
      if (column < all.columns) {
        InTurn<8>(
            thread / kTile, groups, kLanes,
            [&](int64_t group) {
              const A* const from = sums + group * 2 * all.columns + column;
              return Pair<A>{from[0], from[all.columns]};
            },
            [&](int64_t, Pair<A> loaded) { sum = sum + loaded; });
      }
      shared[thread] = sum;
    });
    for (int half = kLanes / 2; half > 0; half /= 2) {
      block.ForEach([&](int thread) {
        if (thread < half * kTile) shared[thread] = shared[thread] + shared[thread + half * kTile];
      });
    }
    block.ForEach([&](int thread) {
      const int64_t column = block.index() * kTile + thread;
      if (thread >= kTile || column >= all.columns) return;
      const A count = static_cast<A>(all.rows);
      const A distance = shared[thread].first / count;
      const A variance = shared[thread].second / count - distance * distance;
      A near;
      all.template NearMeans<1>(column, &near);
      const A mean = near + distance;
      // Roundings may make it less than nothing; what is no number stays none.
      const A inverse = 1 / numbers::Sqrt((variance < 0 ? A(0) : variance) + eps);
      statistics[2 * column] = mean;
      statistics[2 * column + 1] = inverse;
      averages.Store(column, mean, inverse);
    });
  }

  Traffic Moves(int64_t) const {
    return {all.columns * (groups * 2 * SizeInBytes<A>() + all.rows_near() * SizeInBytes<T>()),
            all.columns * 2 * SizeInBytes<A>() + averages.bytes(), SizeInBytes<A>()};
  }
};

// Means of kWidth columns, and 1 / sqrt(variance + eps), of what ColumnStatistics writes.
template <int kWidth, typename A>
RUBATO_HOST_DEVICE void LoadStatistics(const A* statistics, int64_t column, A* mean, A* inverse) {
  A both[2 * kWidth];
  LoadValues<2 * kWidth>(statistics + 2 * column, both);
  RUBATO_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    mean[k] = both[2 * k];
    inverse[k] = both[2 * k + 1];
  }
}

// Values and their outputs' gradients.
template <typename T>
struct Gradients {
  int64_t columns;
  const T* x;
  const T* dy;

  template <int kWidth>
  struct Loaded {
    Pack<T, kWidth> x, dy;
  };
  template <int kWidth>
  RUBATO_HOST_DEVICE Loaded<kWidth> Load(int64_t row, int64_t column) const {
    const int64_t at = row * columns + column;
    return {LoadPack<kWidth>(x + at), LoadPack<kWidth>(dy + at)};
  }
};

// y.
template <typename T>
struct NormalizedColumns {
  using A = Wide<T>;

  int64_t columns;
  const T* x;
  const A* weight;  // or null, as bias
  const A* bias;
  const A* statistics;
  T* y;

  template <int kWidth>
  struct OfSome {
    const T* x;
    T* y;
    int64_t columns;
    A mean[kWidth], factor[kWidth], bias[kWidth];

    RUBATO_HOST_DEVICE Pack<T, kWidth> Load(int64_t row, int64_t column) const {
      return LoadPack<kWidth>(x + row * columns + column);
    }
    RUBATO_HOST_DEVICE void Store(int64_t row, int64_t column, Pack<T, kWidth> pack) const {
      RUBATO_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        pack.values[k] = static_cast<T>((Widen(pack.values[k]) - mean[k]) * factor[k] + bias[k]);
      }
      StorePack<kWidth>(pack, y + row * columns + column);
    }
  };
  template <int kWidth>
  RUBATO_HOST_DEVICE OfSome<kWidth> Of(int64_t column) const {
    OfSome<kWidth> of = {x, y, columns, {}, {}, {}};
    LoadStatistics<kWidth>(statistics, column, of.mean, of.factor);
    if (weight != nullptr) {
      A weights[kWidth];
      LoadValues<kWidth>(weight + column, weights);
      LoadValues<kWidth>(bias + column, of.bias);
      RUBATO_UNROLL
      for (int k = 0; k < kWidth; ++k) of.factor[k] *= weights[k];
    }
    return of;
  }
  Traffic Moves(int64_t rows, int64_t) const {
    const int64_t wide = (weight == nullptr ? 2 : 4) * columns;
    return {rows * columns * SizeInBytes<T>() + wide * SizeInBytes<A>(),
            rows * columns * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// The products of gradients and normalized values of each column, and the gradients: what is added
// up to the gradients by weight and bias.
template <typename T>
struct NormalizedProducts {
  using A = Wide<T>;
  static constexpr int kAhead = 8;

  Gradients<T> all;
  const A* statistics;

  template <int kWidth>
  struct Normalized {
    Gradients<T> all;
    A mean[kWidth], inverse[kWidth];

    template <int>
    RUBATO_HOST_DEVICE auto Load(int64_t row, int64_t column) const {
      return all.template Load<kWidth>(row, column);
    }
    template <typename Loaded>
    RUBATO_HOST_DEVICE Pair<A> Value(const Loaded& loaded, int k) const {
      const A gradient = Widen(loaded.dy.values[k]);
      return {gradient * ((Widen(loaded.x.values[k]) - mean[k]) * inverse[k]), gradient};
    }
  };
  template <int kWidth>
  RUBATO_HOST_DEVICE Normalized<kWidth> Of(int64_t column) const {
    Normalized<kWidth> of = {all, {}, {}};
    LoadStatistics<kWidth>(statistics, column, of.mean, of.inverse);
    return of;
  }
  RUBATO_HOST_DEVICE Pair<A> Zero() const { return {0, 0}; }
  Traffic Moves(int64_t rows, int64_t columns) const {
    return {2 * columns * (rows * SizeInBytes<T>() + SizeInBytes<A>()), 0, SizeInBytes<T>()};
  }
};

// The gradient by x, from those by weight and bias.
template <typename T>
struct NormalizedColumnsBackward {
  using A = Wide<T>;

  Gradients<T> all;
  A rows;
  const A* weight;
  const A* statistics;
  const A* dweight;
  const A* dbias;
  T* dx;

  template <int kWidth>
  struct OfSome {
    Gradients<T> all;
    T* dx;
    A mean[kWidth], factor[kWidth], by_value[kWidth], by_one[kWidth];

    RUBATO_HOST_DEVICE auto Load(int64_t row, int64_t column) const {
      return all.template Load<kWidth>(row, column);
    }
    template <typename Loaded>
    RUBATO_HOST_DEVICE void Store(int64_t row, int64_t column, const Loaded& both) const {
      Pack<T, kWidth> pack;
      RUBATO_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const A off = (Widen(both.x.values[k]) - mean[k]) * by_value[k] + by_one[k];
        pack.values[k] = static_cast<T>(factor[k] * (Widen(both.dy.values[k]) - off));
      }
      StorePack<kWidth>(pack, dx + row * all.columns + column);
    }
  };
  template <int kWidth>
  RUBATO_HOST_DEVICE OfSome<kWidth> Of(int64_t column) const {
    OfSome<kWidth> of = {all, dx, {}, {}, {}, {}};
    A inverse[kWidth], weights[kWidth];
    LoadStatistics<kWidth>(statistics, column, of.mean, inverse);
    LoadValues<kWidth>(weight + column, weights);
    LoadValues<kWidth>(dweight + column, of.by_value);
    LoadValues<kWidth>(dbias + column, of.by_one);
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      of.factor[k] = inverse[k] * weights[k];
      of.by_value[k] = inverse[k] * of.by_value[k] / rows;
      of.by_one[k] = of.by_one[k] / rows;
    }
    return of;
  }
  Traffic Moves(int64_t n_rows, int64_t columns) const {
    return {2 * n_rows * columns * SizeInBytes<T>() + 5 * columns * SizeInBytes<A>(),
            n_rows * columns * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// x, y: (rows, columns). As KernelSet::BatchNorm.
template <typename T, typename Queue>
void LaunchForward(Queue& queue, int64_t rows, int64_t columns, const ConstTensorRef& x,
                   const ConstTensorRef& weight, const ConstTensorRef& bias, double eps,
                   const TensorRef& y, const TensorRef& statistics,
                   const Averages<Wide<T>>& averages) {
  using A = Wide<T>;
  const Columns<T> all = {rows, columns, Pointer<T>(x)};
  const RowGroups groups = RowGroupsOf(rows, 2 * columns);
  const int64_t sums = groups.count * 2 * columns;
  A* const partials = static_cast<A*>(queue.Partials(sums * SizeInBytes<A>()));
  ByWidth<T>(columns, MayHavePacks(x.address()), [&](auto width) {
    LaunchSumGroups<width()>(queue, rows, columns, groups, ColumnDistances<T>{all},
                             SumsTo<A>{partials, nullptr, sums});
  });
  using Last = ColumnStatistics<T>;
  queue.Launch(
      (columns + Last::kTile - 1) / Last::kTile, kUsualThreads,
      Last{all, groups.count, partials, static_cast<A>(eps), Pointer<A>(statistics), averages});
  ByWidth<T>(columns, MayHavePacks(x.address()) && MayHavePacks(y.address()), [&](auto width) {
    LaunchMapColumns<width()>(
        queue, rows, columns,
        NormalizedColumns<T>{columns, Pointer<T>(x), Pointer<A>(weight), Pointer<A>(bias),
                             Pointer<A>(statistics), Pointer<T>(y)});
  });
}

// As KernelSet::BatchNormBackward, of columns with weight and bias.
template <typename T, typename Queue>
void LaunchBackward(Queue& queue, int64_t rows, int64_t columns, const ConstTensorRef& x,
                    const ConstTensorRef& weight, const ConstTensorRef& statistics,
                    const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                    const TensorRef& dbias) {
  using A = Wide<T>;
  const bool has_packs = MayHavePacks(x.address()) && MayHavePacks(dy.address());
  const Gradients<T> all = {columns, Pointer<T>(x), Pointer<T>(dy)};
  LaunchSumColumns<T>(queue, rows, columns, has_packs,
                      NormalizedProducts<T>{all, Pointer<A>(statistics)},
                      SumsTo<A>{Pointer<A>(dweight), Pointer<A>(dbias), columns});
  if (dx.is_null()) return;
  ByWidth<T>(columns, has_packs && MayHavePacks(dx.address()), [&](auto width) {
    LaunchMapColumns<width()>(
        queue, rows, columns,
        NormalizedColumnsBackward<T>{all, static_cast<A>(rows), Pointer<A>(weight),
                                     Pointer<A>(statistics), Pointer<A>(dweight), Pointer<A>(dbias),
                                     Pointer<T>(dx)});
  });
}

}  // namespace batch_norm
}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_BATCH_NORM_H_
