// What convolutions that are products of matrices need beside them.
#ifndef RUBATO_TENSOR_CUDA_LOWERING_H_
#define RUBATO_TENSOR_CUDA_LOWERING_H_

#include "tensor/convolution.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/numbers.h"

namespace rubato {
namespace convolution {

// A Window as kernels read it; places are its outputs'.
struct Grid {
  Divisor height, width, kernel, stride, out_width, places;
  int64_t padding, out_height;
};
inline Grid GridOf(const Window& w) {
  return {w.height,      w.width,       w.kernel,  w.stride,
          w.out_width(), w.out_plane(), w.padding, w.out_height()};
}
inline SideSeen RowsSeen(const Grid& g) {
  return SeenOfSide(g.height, g.kernel, g.stride, g.padding, g.out_height);
}
inline SideSeen ColumnsSeen(const Grid& g) {
  return SeenOfSide(g.width, g.kernel, g.stride, g.padding, g.out_width);
}

// columns (channels kernel^2, examples places) or, `by_example`, (examples, channels kernel^2,
// places). What is reckoned of a place of a row serves kExamples examples; each thread has one
// such.
template <typename T>
struct Unfold {
  static constexpr int kAhead = 1;
  static constexpr int kExamples = 8;

  Grid g;
  int64_t channels, examples;
  bool by_example;
  Divisor rows;  // channels kernel^2
  const T* x;    // (examples, channels, height, width)
  T* columns;

  // How often it is called: (groups of examples, rows, places).
  int64_t calls() const { return (examples + kExamples - 1) / kExamples * rows * g.places; }

  // Of the first of some examples.
  struct Place {
    int64_t from, to, examples;
    bool inside;
  };
  RUBATO_HOST_DEVICE Place Load(int64_t i) const {
    const int64_t rest = i / g.places, place = i - rest * g.places;
    const int64_t group = rest / rows, row = rest - group * rows;
    const int64_t line = row / g.kernel, kx = row - line * g.kernel;
    const int64_t channel = line / g.kernel, ky = line - channel * g.kernel;
    const int64_t oy = place / g.out_width, ox = place - oy * g.out_width;
    const int64_t iy = oy * g.stride + ky - g.padding, ix = ox * g.stride + kx - g.padding;
    const int64_t first = group * kExamples, left = examples - first;
    return {((first * channels + channel) * g.height + iy) * g.width + ix,
            (by_example ? first * rows + row : row * examples + first) * g.places + place,
            left < kExamples ? left : kExamples,
            iy >= 0 && iy < g.height && ix >= 0 && ix < g.width};
  }
  RUBATO_HOST_DEVICE void Store(int64_t, const Place& place) const {
    const int64_t from_step = channels * g.height * g.width;
    const int64_t to_step = by_example ? rows * g.places : g.places.value();
    InTurn<kExamples>(
        0, place.examples, 1,
        [&](int64_t e) { return place.inside ? x[place.from + e * from_step] : T(0.0f); },
        [&](int64_t e, T value) { columns[place.to + e * to_step] = value; });
  }
  Traffic Moves(int64_t) const {
    return {examples * channels * RowsSeen(g).values * ColumnsSeen(g).values * SizeInBytes<T>(),
            examples * rows * g.places * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// Of one side of a window's plane: the outputs that see a value, from the last to the first, so
// that the places that the value has in their windows go up by the stride.
struct Seeing {
  int64_t last, place, count;
};
RUBATO_HOST_DEVICE Seeing SeeingOf(int64_t value, const Grid& g, int64_t out) {
  const int64_t at = value + g.padding, latest = at / g.stride;
  const int64_t last = latest < out ? latest : out - 1, place = at - last * g.stride;
  if (place >= g.kernel) return {last, place, 0};
  const int64_t more = (g.kernel - 1 - place) / g.stride;
  return {last, place, (more < last ? more : last) + 1};
}

// x = the sum of the columns' values at each place of the input; columns (channels kernel^2,
// examples places).
template <typename T>
struct Fold {
  Grid g;
  Divisor channels;
  int64_t examples;
  const T* columns;
  T* x;
  static constexpr int kTaps = 9;  // loads under way: all of a window of 3 x 3

  RUBATO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t line = i / g.width, ix = i - line * g.width;
    const int64_t rest = line / g.height, iy = line - rest * g.height;
    const int64_t example = rest / channels, channel = rest - example * channels;
    const Seeing rows = SeeingOf(iy, g, g.out_height), row = SeeingOf(ix, g, g.out_width);
    // From one of these places to the next on its line, and from a line's last to the next line.
    const int64_t line_of_places = examples * g.places;
    const int64_t step = g.stride * line_of_places - 1;
    const int64_t next =
        g.stride * g.kernel * line_of_places - g.out_width - (row.count - 1) * step;
    const int64_t first = (channel * g.kernel + rows.place) * g.kernel + row.place;
    const T* from =
        columns + (first * examples + example) * g.places + rows.last * g.out_width + row.last;
    int64_t left = row.count;
    Wide<T> sum = 0;
    InTurn<kTaps>(
        0, rows.count * row.count, 1,
        [&](int64_t) {
          const T value = *from;
          if (--left > 0) {
            from += step;
          } else {
            from += next;
            left = row.count;
          }
          return value;
        },
        [&](int64_t, T value) { sum += Widen(value); });
    x[i] = static_cast<T>(sum);
  }
  Traffic Moves(int64_t n) const {
    const int64_t planes = n / (g.height * g.width);
    return {planes * RowsSeen(g).pairs * ColumnsSeen(g).pairs * SizeInBytes<T>(),
            n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// to (channels, examples, places) of from (examples, channels, places).
template <typename T>
struct ChannelsFirst {
  static constexpr int kAhead = 4;

  int64_t channels;
  Divisor examples, places;
  const T* from;
  T* to;

  RUBATO_HOST_DEVICE T Load(int64_t i) const {
    const int64_t rest = i / places, place = i - rest * places;
    const int64_t channel = rest / examples, example = rest - channel * examples;
    return from[(example * channels + channel) * places + place];
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, T value) const { to[i] = value; }
  Traffic Moves(int64_t n) const {
    return {n * SizeInBytes<T>(), n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// to (filters, places, channels), rounded, of from (filters, channels, places).
template <typename To>
struct ConvertFilters {
  static constexpr int kAhead = 8;
  using From = Wide<To>;

  Divisor channels, places;
  const From* from;
  To* to;

  RUBATO_HOST_DEVICE From Load(int64_t i) const {
    const int64_t rest = i / channels, filter = rest / places;
    const int64_t channel = i - rest * channels, place = rest - filter * places;
    return from[(filter * channels + channel) * places + place];
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, From value) const { to[i] = static_cast<To>(value); }
  Traffic Moves(int64_t n) const {
    return {n * SizeInBytes<From>(), n * SizeInBytes<To>(), SizeInBytes<From>()};
  }
};

// y[example, channel, place] += bias[channel].
template <typename T>
struct AddToPlanes {
  static constexpr int kAhead = 4;

  Divisor channels, places;
  const T* bias;
  T* y;

  struct Both {
    T y, bias;
  };
  RUBATO_HOST_DEVICE Both Load(int64_t i) const { return {y[i], bias[i / places % channels]}; }
  RUBATO_HOST_DEVICE void Store(int64_t i, Both both) const {
    y[i] = static_cast<T>(Widen(both.y) + Widen(both.bias));
  }
  Traffic Moves(int64_t n) const {
    return {(n + channels) * SizeInBytes<T>(), n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// sums[channel] = or += the sum of its n values, a block's.
template <typename T>
struct SumChannel {
  int64_t n;
  bool adds;
  const T* values;
  Wide<T>* sums;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const T* const row = values + block.index() * n;
    const Wide<T> sum = block.Sum(Wide<T>(0), [&](int thread) {
      Wide<T> part = 0;
      InTurn<8>(
          thread, n, block.threads(), [&](int64_t j) { return row[j]; },
          [&](int64_t, T value) { part += Widen(value); });
      return part;
    });
    block.ForEach([&](int thread) {
      if (thread == 0) sums[block.index()] = adds ? sums[block.index()] + sum : sum;
    });
  }

  Traffic Moves(int64_t channels) const {
    return {channels * (n * SizeInBytes<T>() + (adds ? SizeInBytes<Wide<T>>() : 0)),
            channels * SizeInBytes<Wide<T>>(), SizeInBytes<T>()};
  }
};

}  // namespace convolution
}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_LOWERING_H_
