// Pooling: forward by output, backward by input, each of which gathers what the windows that hold
// it give, in their order; so no two threads write one value. Places have `inner` values each.
#ifndef RUBATO_TENSOR_CUDA_POOLING_H_
#define RUBATO_TENSOR_CUDA_POOLING_H_

#include "tensor/cuda/block.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/pack.h"
#include "tensor/cuda/pooling_sides.h"
#include "tensor/device.h"

namespace rubato {
namespace pooling {

// Where a thread's kWidth values lie, of `packs` such at each place of planes of rows x columns.
struct Spot {
  int64_t plane, row, column, channel;
};
template <int kWidth>
RUBATO_HOST_DEVICE Spot SpotOf(int64_t i, const Divisor& packs, const Divisor& rows,
                               const Divisor& columns) {
  const int64_t place = i / packs, line = place / columns, plane = line / rows;
  return {plane, line - plane * rows, place - line * columns, (i - place * packs) * kWidth};
}

constexpr int kTaps = 9;  // places that are read at a time: all of a window of 3 x 3

// What follows has one thread for kWidth channels of a place, so that what is reckoned of windows
// serves all of them; `packs` are a place's. Each loads as ForEachIndex wants it, one a thread, so
// that few values have many threads.

template <typename T, int kWidth>
struct Maximum {
  static constexpr int kAhead = 1;

  Sliding rows, columns;
  Divisor packs;
  const T* x;
  T* y;

  RUBATO_HOST_DEVICE Pack<T, kWidth> Load(int64_t i) const {
    const Spot at = SpotOf<kWidth>(i, packs, rows.out, columns.out);
    const int64_t values = packs * kWidth;
    const T* const from = x + at.plane * rows.size * columns.size * values + at.channel;
    const Span ys = rows.Seen(at.row), xs = columns.Seen(at.column);
    Places places = PlacesOf(ys, xs, columns.size);
    Pack<T, kWidth> greatest = {};
    InTurn<kWidth == 1 ? kTaps : 5>(
        0, PlacesIn(ys, xs), 1,
        [&](int64_t) { return LoadPack<kWidth>(from + places.Next() * values); },
        [&](int64_t j, const Pack<T, kWidth>& loaded) {
          RUBATO_UNROLL
          for (int k = 0; k < kWidth; ++k) {
            const Wide<T> value = Widen(loaded.values[k]);
            if (j == 0 || value > Widen(greatest.values[k]) || value != value) {
              greatest.values[k] = loaded.values[k];
            }
          }
        });
    return greatest;
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, const Pack<T, kWidth>& greatest) const {
    StorePack<kWidth>(greatest, y + i * kWidth);
  }
  Traffic Moves(int64_t n) const {
    const int64_t values = n * kWidth;
    return {Inputs(values / (rows.out * columns.out), rows, columns) * SizeInBytes<T>(),
            values * SizeInBytes<T>(), kWidth * SizeInBytes<T>()};
  }
};

template <typename T, int kWidth>
struct MaximumBackward {
  static constexpr int kAhead = 1;
  // Windows that are read at a time, and values of one of them: of more a thread has no registers.
  static constexpr int kWindows = 2, kEarlier = 4;

  Sliding rows, columns;
  Divisor packs;
  const T* x;
  const T* y;
  const T* dy;
  T* dx;

  struct Output {
    Pack<T, kWidth> y, dy;
  };
  RUBATO_HOST_DEVICE Pack<T, kWidth> Load(int64_t i) const {
    const Spot at = SpotOf<kWidth>(i, packs, rows.size, columns.size);
    const int64_t values = packs * kWidth;
    const T* const from = x + at.plane * rows.size * columns.size * values + at.channel;
    const Span ys = rows.Holding(at.row), xs = columns.Holding(at.column);
    const int64_t windows = PlacesIn(ys, xs);
    Pack<T, kWidth> own = {};
    if (windows > 0) own = LoadPack<kWidth>(x + i * kWidth);
    const int64_t outputs = at.plane * rows.out * columns.out * values + at.channel;
    Places places = PlacesOf(ys, xs, columns.out);
    int64_t oy = ys.begin, ox = xs.begin;
    Wide<T> sums[kWidth] = {};
    InTurn<kWindows>(
        0, windows, 1,
        [&](int64_t) {
          const int64_t o = outputs + places.Next() * values;
          return Output{LoadPack<kWidth>(y + o), LoadPack<kWidth>(dy + o)};
        },
        [&](int64_t, const Output& output) {
          unsigned greatest = Greatest(own, output.y);
          if (greatest != 0) greatest = Firsts(greatest, from, at, oy, ox, output.y);
          RUBATO_UNROLL
          for (int k = 0; k < kWidth; ++k) {
            if ((greatest >> k & 1) != 0) sums[k] += Widen(output.dy.values[k]);
          }
          if (++ox == xs.end) {
            ox = xs.begin;
            ++oy;
          }
        });
    Pack<T, kWidth> sum;
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) sum.values[k] = static_cast<T>(sums[k]);
    return sum;
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, const Pack<T, kWidth>& sum) const {
    StorePack<kWidth>(sum, dx + i * kWidth);
  }
  Traffic Moves(int64_t n) const {
    const int64_t values = n * kWidth, planes = values / (rows.size * columns.size);
    return {(Inputs(planes, rows, columns) + 2 * Outputs(planes, rows, columns)) * SizeInBytes<T>(),
            values * SizeInBytes<T>(), kWidth * SizeInBytes<T>()};
  }

  // Bit k: channel k's value is its window's greatest, or no number.
  RUBATO_HOST_DEVICE static unsigned Greatest(const Pack<T, kWidth>& x, const Pack<T, kWidth>& y) {
    unsigned bits = 0;
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const Wide<T> value = Widen(x.values[k]);
      if (value == Widen(y.values[k]) || value != value) bits |= 1u << k;
    }
    return bits;
  }
  // Those of the bits whose window has no such value before.
  RUBATO_HOST_DEVICE unsigned Firsts(unsigned bits, const T* from, const Spot& at, int64_t oy,
                                     int64_t ox, const Pack<T, kWidth>& greatest) const {
    const Span ys = rows.Seen(oy), xs = columns.Seen(ox);
    const int64_t values = packs * kWidth;
    Places places = PlacesOf(ys, xs, columns.size);
    InTurn<kEarlier>(
        0, (at.row - ys.begin) * places.width + at.column - xs.begin, 1,
        [&](int64_t) { return LoadPack<kWidth>(from + places.Next() * values); },
        [&](int64_t, const Pack<T, kWidth>& x) { bits &= ~Greatest(x, greatest); });
    return bits;
  }
};

template <typename T, typename Side, int kWidth>
struct Average {
  static constexpr int kAhead = 1;

  Side rows, columns;
  Divisor packs;
  bool count_padding;
  const T* x;
  T* y;

  RUBATO_HOST_DEVICE Pack<T, kWidth> Load(int64_t i) const {
    const Spot at = SpotOf<kWidth>(i, packs, rows.out, columns.out);
    const int64_t values = packs * kWidth;
    const T* const from = x + at.plane * rows.size * columns.size * values + at.channel;
    const Span ys = rows.Seen(at.row), xs = columns.Seen(at.column);
    Places places = PlacesOf(ys, xs, columns.size);
    Wide<T> sums[kWidth] = {};
    InTurn<kWidth == 1 ? 16 : kTaps>(
        0, PlacesIn(ys, xs), 1,
        [&](int64_t) { return LoadPack<kWidth>(from + places.Next() * values); },
        [&](int64_t, const Pack<T, kWidth>& loaded) {
          RUBATO_UNROLL
          for (int k = 0; k < kWidth; ++k) sums[k] += Widen(loaded.values[k]);
        });
    const auto count = static_cast<Wide<T>>(rows.Length(at.row, count_padding) *
                                            columns.Length(at.column, count_padding));
    Pack<T, kWidth> average;
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) average.values[k] = static_cast<T>(sums[k] / count);
    return average;
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, const Pack<T, kWidth>& average) const {
    StorePack<kWidth>(average, y + i * kWidth);
  }
  Traffic Moves(int64_t n) const {
    const int64_t values = n * kWidth;
    return {Inputs(values / (rows.out * columns.out), rows, columns) * SizeInBytes<T>(),
            values * SizeInBytes<T>(), kWidth * SizeInBytes<T>()};
  }
};

template <typename T, typename Side, int kWidth>
struct AverageBackward {
  static constexpr int kAhead = 1;
  static constexpr int kWindows = 4;  // read at a time

  Side rows, columns;
  Divisor packs;
  bool count_padding;
  const T* dy;
  T* dx;

  RUBATO_HOST_DEVICE Pack<T, kWidth> Load(int64_t i) const {
    const Spot at = SpotOf<kWidth>(i, packs, rows.size, columns.size);
    const int64_t values = packs * kWidth;
    const T* const from = dy + at.plane * rows.out * columns.out * values + at.channel;
    const Span ys = rows.Holding(at.row), xs = columns.Holding(at.column);
    Places places = PlacesOf(ys, xs, columns.out);
    int64_t oy = ys.begin, ox = xs.begin;
    Wide<T> sums[kWidth] = {};
    InTurn<kWindows>(
        0, PlacesIn(ys, xs), 1,
        [&](int64_t) { return LoadPack<kWidth>(from + places.Next() * values); },
        [&](int64_t, const Pack<T, kWidth>& loaded) {
          const auto count = static_cast<Wide<T>>(rows.Length(oy, count_padding) *
                                                  columns.Length(ox, count_padding));
          RUBATO_UNROLL
          for (int k = 0; k < kWidth; ++k) sums[k] += Widen(loaded.values[k]) / count;
          if (++ox == xs.end) {
            ox = xs.begin;
            ++oy;
          }
        });
    Pack<T, kWidth> sum;
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) sum.values[k] = static_cast<T>(sums[k]);
    return sum;
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, const Pack<T, kWidth>& sum) const {
    StorePack<kWidth>(sum, dx + i * kWidth);
  }
  Traffic Moves(int64_t n) const {
    const int64_t values = n * kWidth, planes = values / (rows.size * columns.size);
    return {Outputs(planes, rows, columns) * SizeInBytes<T>(), values * SizeInBytes<T>(),
            kWidth * SizeInBytes<T>()};
  }
};

}  // namespace pooling

template <typename Queue>
class PoolingKernels : public virtual DeviceKernels {
 public:
  explicit PoolingKernels(Queue* queue) : queue_(*queue) {}

  void MaxPool2d(const Window& w, const ConstTensorRef& x, const TensorRef& y) override {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      ByWidth<T>(w.inner, MayHavePacks(x.address()) && MayHavePacks(y.address()), [&](auto width) {
        LaunchForEach(queue_, y.size() / width(),
                      pooling::Maximum<T, width()>{Rows(w), Columns(w), w.inner / width(),
                                                   Pointer<T>(x), Pointer<T>(y)});
      });
    });
  }
  void MaxPool2dBackward(const Window& w, const ConstTensorRef& x, const ConstTensorRef& y,
                         const ConstTensorRef& dy, const TensorRef& dx) override {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const bool has_packs = MayHavePacks(x.address()) && MayHavePacks(y.address()) &&
                             MayHavePacks(dy.address()) && MayHavePacks(dx.address());
      ByWidth<T>(w.inner, has_packs, [&](auto width) {
        LaunchForEach(queue_, dx.size() / width(),
                      pooling::MaximumBackward<T, width()>{Rows(w), Columns(w), w.inner / width(),
                                                           Pointer<T>(x), Pointer<T>(y),
                                                           Pointer<T>(dy), Pointer<T>(dx)});
      });
    });
  }
  void AvgPool2d(const Window& w, bool count_padding, const ConstTensorRef& x,
                 const TensorRef& y) override {
    Forward(Rows(w), Columns(w), w.inner, count_padding, x, y);
  }
  void AvgPool2dBackward(const Window& w, bool count_padding, const ConstTensorRef& dy,
                         const TensorRef& dx) override {
    Backward(Rows(w), Columns(w), w.inner, count_padding, dy, dx);
  }
  void AdaptiveAvgPool2d(const Planes& planes, int64_t out, const ConstTensorRef& x,
                         const TensorRef& y) override {
    Forward(pooling::Adaptive{planes.height, out}, pooling::Adaptive{planes.width, out},
            planes.inner, false, x, y);
  }
  void AdaptiveAvgPool2dBackward(const Planes& planes, int64_t out, const ConstTensorRef& dy,
                                 const TensorRef& dx) override {
    Backward(pooling::Adaptive{planes.height, out}, pooling::Adaptive{planes.width, out},
             planes.inner, false, dy, dx);
  }

 private:
  static pooling::Sliding Rows(const Window& w) {
    return {w.height, w.out_height(), w.kernel, w.stride, w.padding};
  }
  static pooling::Sliding Columns(const Window& w) {
    return {w.width, w.out_width(), w.kernel, w.stride, w.padding};
  }

  template <typename Side>
  void Forward(Side rows, Side columns, int64_t inner, bool count_padding, const ConstTensorRef& x,
               const TensorRef& y) {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      // Of a window with more places than are read at a time, threads for each channel are faster.
      const bool has_packs = rows.longest() * columns.longest() <= pooling::kTaps &&
                             MayHavePacks(x.address()) && MayHavePacks(y.address());
      ByWidth<T>(inner, has_packs, [&](auto width) {
        LaunchForEach(
            queue_, y.size() / width(),
            pooling::Average<T, Side, width()>{rows, columns, inner / width(), count_padding,
                                               Pointer<T>(x), Pointer<T>(y)});
      });
    });
  }
  template <typename Side>
  void Backward(Side rows, Side columns, int64_t inner, bool count_padding,
                const ConstTensorRef& dy, const TensorRef& dx) {
    ByType<Queue>(dy.dtype(), [&](auto zero) {
      using T = decltype(zero);
      ByWidth<T>(inner, MayHavePacks(dy.address()) && MayHavePacks(dx.address()), [&](auto width) {
        LaunchForEach(
            queue_, dx.size() / width(),
            pooling::AverageBackward<T, Side, width()>{
                rows, columns, inner / width(), count_padding, Pointer<T>(dy), Pointer<T>(dx)});
      });
    });
  }

  Queue& queue_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_POOLING_H_
