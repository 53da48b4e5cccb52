// Convolution in one piece of work where the queue has it, else by lowering to products of
// matrices: what each output sees is copied into a column.
#ifndef RUBATO_TENSOR_CUDA_CONVOLUTION_H_
#define RUBATO_TENSOR_CUDA_CONVOLUTION_H_

#include <algorithm>

#include "tensor/cuda/block.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/product.h"
#include "tensor/device.h"

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
// places).
template <typename T>
struct Unfold {
  static constexpr int kAhead = 4;

  Grid g;
  int64_t channels;
  bool by_example;
  Divisor inner;  // rows of an example or, of a row, examples
  const T* x;     // (examples, channels, height, width)
  T* columns;

  RUBATO_HOST_DEVICE T Load(int64_t i) const {
    const int64_t rest = i / g.places, place = i - rest * g.places;
    const int64_t outer = rest / inner, within = rest - outer * inner;
    const int64_t row = by_example ? within : outer, example = by_example ? outer : within;
    const int64_t line = row / g.kernel, kx = row - line * g.kernel;
    const int64_t channel = line / g.kernel, ky = line - channel * g.kernel;
    const int64_t oy = place / g.out_width, ox = place - oy * g.out_width;
    const int64_t iy = oy * g.stride + ky - g.padding, ix = ox * g.stride + kx - g.padding;
    const bool inside = iy >= 0 && iy < g.height && ix >= 0 && ix < g.width;
    return inside ? x[((example * channels + channel) * g.height + iy) * g.width + ix] : T(0.0f);
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, T value) const { columns[i] = value; }
  Traffic Moves(int64_t n) const {
    const int64_t planes = n / (g.kernel * g.kernel * g.places);
    return {planes * RowsSeen(g).values * ColumnsSeen(g).values * SizeInBytes<T>(),
            n * SizeInBytes<T>(), SizeInBytes<T>()};
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

// to (matrices, columns, rows) of from (matrices, rows, columns): a tile of one matrix a block, by
// way of shared memory, so that what a warp reads lies side by side, and so what it writes.
template <typename T>
struct TurnMatrices {
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kTile = sizeof(T) > sizeof(float) ? 16 : 32;
  static constexpr int kAhead = kTile * kTile / kUsualThreads;
  struct Part {  // a thread's, of the tile
    T values[kAhead];
  };

  int64_t rows, columns;
  Divisor row_tiles, column_tiles;
  const T* from;
  T* to;

  // Each row is turned by its number: a column's values are in as many banks.
  RUBATO_HOST_DEVICE static int Place(int row, int column) {
    return row * kTile + (row + column) % kTile;
  }

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int64_t rest = block.index() / column_tiles, matrix = rest / row_tiles;
    const int64_t row = (rest - matrix * row_tiles) * kTile;
    const int64_t column = (block.index() - rest * column_tiles) * kTile;
    const T* const source = from + matrix * rows * columns;
    T* const target = to + matrix * rows * columns;
    T* const tile = block.template Shared<Part>()->values;
    block.ForEach([&](int thread) {
      InTurn<kAhead>(
          thread, kTile * kTile, block.threads(),
          [&](int64_t i) {
            const int64_t r = row + i / kTile, c = column + i % kTile;
            return r < rows && c < columns ? source[r * columns + c] : T(0.0f);
          },
          [&](int64_t i, T value) {
            tile[Place(static_cast<int>(i) / kTile, static_cast<int>(i) % kTile)] = value;
          });
    });
    block.ForEach([&](int thread) {
      for (int i = thread; i < kTile * kTile; i += block.threads()) {
        const int r = i % kTile, c = i / kTile;
        if (row + r >= rows || column + c >= columns) continue;
        target[(column + c) * rows + row + r] = tile[Place(r, c)];
      }
    });
  }

  Traffic Moves(int64_t blocks) const {
    const int64_t bytes = blocks / (row_tiles * column_tiles) * rows * columns * SizeInBytes<T>();
    return {bytes, bytes, SizeInBytes<T>()};
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

template <typename Queue>
class ConvolutionKernels : public virtual DeviceKernels {
 public:
  // Examples are taken so many at a time that their columns stay below `most` values.
  ConvolutionKernels(Queue* queue, int64_t most) : queue_(*queue), most_(most) {}

  int64_t ConvolutionScratch(const Convolution& c, DType dtype, int64_t n) const override {
    const int64_t workspace = queue_.ConvolutionWorkspace(c, dtype, n);
    if (workspace < 0) return ExamplesAtATime(c, n) * PerExample(c);
    return (FusedMemory(c, n, nullptr).workspace + FusedMemory::Aligned(workspace) + kAlignment) /
           BytesOf(dtype);
  }

  void Conv2d(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
              const ConstTensorRef& bias, const TensorRef& y, const TensorRef& scratch) override {
    const int64_t n = x.dim(0), places = c.window.out_plane(), filter = c.filter();
    const int64_t out = c.out_channels / c.groups, step = ExamplesAtATime(c, n);
    const bool is_fused = queue_.ConvolutionWorkspace(c, x.dtype(), n) >= 0;
    if (is_fused) FusedForward(c, x, weight, y, scratch);
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      for (int64_t first = 0; !is_fused && first < n; first += step) {
        const int64_t examples = std::min(step, n - first);
        const T* columns = Pointer<T>(x) + first * c.in_channels * c.window.plane();
        if (!IsPointwise(c.window)) {
          LaunchForEach(queue_, examples * Rows(c) * places,
                        convolution::Unfold<T>{convolution::GridOf(c.window), c.in_channels, true,
                                               Rows(c), columns, Pointer<T>(scratch)});
          columns = Pointer<T>(scratch);
        }
        for (int64_t g = 0; places == 1 && g < c.groups; ++g) {
          // Outputs of one place are rows: one product, and none of a single column for each
          // example.
          Product product(Transpose::kNo, Transpose::kYes, examples, out, filter);
          product.a = MatrixAt(columns + g * filter, Rows(c));
          product.b = MatrixAt(Pointer<T>(weight) + g * out * filter, filter);
          product.c = MatrixAt(Pointer<T>(y) + first * c.out_channels + g * out, c.out_channels);
          queue_.Multiply(product);
        }
        for (int64_t g = 0; places > 1 && g < c.groups; ++g) {
          Product product(Transpose::kNo, Transpose::kNo, out, places, filter);
          product.a = MatrixAt(Pointer<T>(weight) + g * out * filter, filter);
          product.b = MatrixAt(columns + g * filter * places, places, Rows(c) * places);
          product.c = MatrixAt(Pointer<T>(y) + (first * c.out_channels + g * out) * places, places,
                               c.out_channels * places);
          product.count = examples;
          queue_.Multiply(product);
        }
      }
      if (bias.is_null()) return;
      LaunchForEach(
          queue_, y.size(),
          convolution::AddToPlanes<T>{c.out_channels, places, Pointer<T>(bias), Pointer<T>(y)});
    });
  }

  void Conv2dBackward(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
                      const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                      const TensorRef& dbias, const TensorRef& scratch) override {
    const int64_t n = x.dim(0), places = c.window.out_plane(), filter = c.filter();
    if (queue_.ConvolutionWorkspace(c, x.dtype(), n) >= 0) {
      return FusedBackward(c, x, weight, dy, dx, dweight, dbias, scratch);
    }
    const int64_t out = c.out_channels / c.groups, step = ExamplesAtATime(c, n);
    const convolution::Grid grid = convolution::GridOf(c.window);
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      // One product over all examples' places, which lie behind one another.
      T* const dout = Pointer<T>(scratch);
      for (int64_t first = 0; first < n; first += step) {
        const int64_t examples = std::min(step, n - first), width = examples * places;
        const int64_t inputs = first * c.in_channels * c.window.plane();
        T* const columns = dout + c.out_channels * width;
        LaunchForEach(
            queue_, c.out_channels * width,
            convolution::ChannelsFirst<T>{c.out_channels, examples, places,
                                          Pointer<T>(dy) + first * c.out_channels * places, dout});
        LaunchForEach(queue_, Rows(c) * width,
                      convolution::Unfold<T>{grid, c.in_channels, false, examples,
                                             Pointer<T>(x) + inputs, columns});
        for (int64_t g = 0; g < c.groups; ++g) {
          Product product(Transpose::kNo, Transpose::kYes, out, filter, width);
          product.a = MatrixAt(dout + g * out * width, width);
          product.b = MatrixAt(columns + g * filter * width, width);
          product.c = MatrixAt(Pointer<Wide<T>>(dweight) + g * out * filter, filter);
          product.beta = first == 0 ? 0 : 1;
          queue_.Multiply(product);
        }
        if (!dbias.is_null()) {
          queue_.Launch(
              c.out_channels, ThreadsFor(width, kMaxThreads),
              convolution::SumChannel<T>{width, first != 0, dout, Pointer<Wide<T>>(dbias)});
        }
        if (dx.is_null()) continue;
        for (int64_t g = 0; g < c.groups; ++g) {
          Product product(Transpose::kYes, Transpose::kNo, filter, width, out);
          product.a = MatrixAt(Pointer<T>(weight) + g * out * filter, filter);
          product.b = MatrixAt(dout + g * out * width, width);
          product.c = MatrixAt(columns + g * filter * width, width);
          queue_.Multiply(product);
        }
        LaunchForEach(
            queue_, examples * c.in_channels * c.window.plane(),
            convolution::Fold<T>{grid, c.in_channels, examples, columns, Pointer<T>(dx) + inputs});
      }
    });
  }

 private:
  // Whether the input, as it is, holds the columns.
  static bool IsPointwise(const Window& w) {
    return w.kernel == 1 && w.stride == 1 && w.padding == 0;
  }
  static int64_t Rows(const Convolution& c) { return c.groups * c.filter(); }
  // The columns, and the outputs' gradient in another order.
  static int64_t PerExample(const Convolution& c) {
    return (Rows(c) + c.out_channels) * c.window.out_plane();
  }
  int64_t ExamplesAtATime(const Convolution& c, int64_t n) const {
    return std::min(n, std::max<int64_t>(1, most_ / PerExample(c)));
  }

  // In scratch, where the channels of x and y are last: dx lies where x did.
  static constexpr int64_t kAlignment = 256;
  struct FusedMemory {
    FusedMemory(const Convolution& c, int64_t n, const void* scratch) {
      const int64_t half = BytesOf(DType::kFloat16);
      x = Aligned(reinterpret_cast<intptr_t>(scratch));
      y = x + Aligned(n * c.in_channels * c.window.plane() * half);
      dweight = y + Aligned(n * c.out_channels * c.window.out_plane() * half);
      workspace = dweight + Aligned(c.out_channels * c.filter() * BytesOf(DType::kFloat32));
    }
    static int64_t Aligned(int64_t bytes) {
      return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    int64_t x, y, dweight, workspace;  // addresses
  };

  void Fuse(const Convolution& c, DType dtype, int64_t n, ConvolutionPass pass,
            const ConstTensorRef& weight, const FusedMemory& memory) {
    const auto at = [](int64_t address) { return reinterpret_cast<void*>(address); };
    queue_.Convolve({c, dtype, n, pass, at(memory.x), weight.address(), at(memory.y),
                     static_cast<float*>(at(memory.dweight)), at(memory.workspace)});
  }

  // `to` (matrices, columns, rows) of `from` (matrices, rows, columns).
  void Turn(int64_t matrices, int64_t rows, int64_t columns, const ConstTensorRef& from,
            const TensorRef& to) {
    ByType<Queue>(from.dtype(), [&](auto zero) {
      using T = decltype(zero);
      using Kernel = convolution::TurnMatrices<T>;
      const int64_t row_tiles = (rows + Kernel::kTile - 1) / Kernel::kTile;
      const int64_t column_tiles = (columns + Kernel::kTile - 1) / Kernel::kTile;
      queue_.Launch(
          matrices * row_tiles * column_tiles, kUsualThreads,
          Kernel{rows, columns, row_tiles, column_tiles, Pointer<T>(from), Pointer<T>(to)});
    });
  }

  // Without the bias.
  void FusedForward(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
                    const TensorRef& y, const TensorRef& scratch) {
    const int64_t n = x.dim(0);
    const FusedMemory memory(c, n, scratch.address());
    Turn(n, c.in_channels, c.window.plane(), x, At(memory.x, x.dtype(), x.size()));
    Fuse(c, x.dtype(), n, ConvolutionPass::kOutput, weight, memory);
    Turn(n, c.window.out_plane(), c.out_channels, At(memory.y, x.dtype(), y.size()), y);
  }

  void FusedBackward(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
                     const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                     const TensorRef& dbias, const TensorRef& scratch) {
    const int64_t n = x.dim(0), places = c.window.out_plane();
    const FusedMemory memory(c, n, scratch.address());
    const TensorRef last_x = At(memory.x, x.dtype(), x.size());
    const TensorRef last_dy = At(memory.y, x.dtype(), dy.size());
    Turn(n, c.in_channels, c.window.plane(), x, last_x);
    Turn(n, c.out_channels, places, dy, last_dy);
    Fuse(c, x.dtype(), n, ConvolutionPass::kWeightGradient, weight, memory);
    Turn(c.out_channels, c.window.kernel * c.window.kernel, c.in_channels / c.groups,
         At(memory.dweight, DType::kFloat32, dweight.size()), dweight);
    if (!dbias.is_null()) {
      this->ColumnSums(last_dy.Reshaped({n * places, c.out_channels}), dbias);
    }
    if (dx.is_null()) return;
    Fuse(c, x.dtype(), n, ConvolutionPass::kInputGradient, weight, memory);
    Turn(n, c.window.plane(), c.in_channels, last_x, dx);
  }

  static TensorRef At(int64_t address, DType dtype, int64_t size) {
    return TensorRef::At(reinterpret_cast<void*>(address), dtype, {size});
  }

  Queue& queue_;
  const int64_t most_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CONVOLUTION_H_
