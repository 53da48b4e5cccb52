// Pooling: forward by output, backward by input, each of which gathers what the windows that hold
// it give, in their order; so no two threads write one value. Places have `inner` values each.
#ifndef RUBATO_TENSOR_CUDA_POOLING_H_
#define RUBATO_TENSOR_CUDA_POOLING_H_

#include "tensor/cuda/block.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/numbers.h"
#include "tensor/device.h"

namespace rubato {
namespace pooling {

struct Span {
  int64_t begin, end;
};

// Windows of `kernel` values, `stride` apart, on a side of `size` values with padding.
struct Sliding {
  Divisor size, out;
  int64_t kernel;
  Divisor stride;
  int64_t padding;

  // What window o sees of the side.
  RUBATO_HOST_DEVICE Span Seen(int64_t o) const {
    const int64_t begin = o * stride - padding, end = begin + kernel;
    return {begin < 0 ? 0 : begin, end > size.value() ? size.value() : end};
  }
  // The windows that see value i.
  RUBATO_HOST_DEVICE Span Holding(int64_t i) const {
    const int64_t least = i + padding - kernel + 1;
    const int64_t begin = least <= 0 ? 0 : (least + stride - 1) / stride;
    const int64_t end = (i + padding) / stride + 1;
    return {begin, end > out.value() ? out.value() : end};
  }
  RUBATO_HOST_DEVICE int64_t Length(int64_t o, bool count_padding) const {
    return count_padding ? kernel : Seen(o).end - Seen(o).begin;
  }
  // Values that some window sees.
  int64_t seen() const { return SeenOfSide(size, kernel, stride, padding, out).values; }
};

// out windows that share a side evenly: [floor(o s / out), ceil((o + 1) s / out)).
struct Adaptive {
  Divisor size, out;

  RUBATO_HOST_DEVICE Span Seen(int64_t o) const {
    return {o * size / out, ((o + 1) * size + out - 1) / out};
  }
  RUBATO_HOST_DEVICE Span Holding(int64_t i) const {
    return {i * out / size, ((i + 1) * out + size - 1) / size};
  }
  RUBATO_HOST_DEVICE int64_t Length(int64_t o, bool) const { return Seen(o).end - Seen(o).begin; }
  int64_t seen() const { return size; }
};

// Values of `planes` planes that some window sees, and of their outputs.
template <typename Side>
int64_t Inputs(int64_t planes, const Side& rows, const Side& columns) {
  return planes * rows.seen() * columns.seen();
}
template <typename Side>
int64_t Outputs(int64_t planes, const Side& rows, const Side& columns) {
  return planes * rows.out * columns.out;
}

template <typename T>
struct Maximum {
  Sliding rows, columns;
  Divisor inner;
  const T* x;
  T* y;

  RUBATO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t place = i / inner, line = place / columns.out, plane = line / rows.out;
    const Span ys = rows.Seen(line - plane * rows.out);
    const Span xs = columns.Seen(place - line * columns.out);
    const T* const from = x + plane * rows.size * columns.size * inner + (i - place * inner);
    T greatest = from[(ys.begin * columns.size + xs.begin) * inner];
    for (int64_t iy = ys.begin; iy < ys.end; ++iy) {
      for (int64_t ix = xs.begin; ix < xs.end; ++ix) {
        const T loaded = from[(iy * columns.size + ix) * inner];
        const Wide<T> value = Widen(loaded);
        if (value > Widen(greatest) || value != value) greatest = loaded;
      }
    }
    y[i] = greatest;
  }
  Traffic Moves(int64_t n) const {
    return {Inputs(n / (rows.out * columns.out), rows, columns) * SizeInBytes<T>(),
            n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

template <typename T>
struct MaximumBackward {
  Sliding rows, columns;
  Divisor inner;
  const T* x;
  const T* y;
  const T* dy;
  T* dx;

  RUBATO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t place = i / inner, channel = i - place * inner;
    const int64_t line = place / columns.size, ix = place - line * columns.size;
    const int64_t plane = line / rows.size, iy = line - plane * rows.size;
    const T* const from = x + plane * rows.size * columns.size * inner + channel;
    const Span ys = rows.Holding(iy), xs = columns.Holding(ix);
    Wide<T> sum = 0;
    for (int64_t oy = ys.begin; oy < ys.end; ++oy) {
      for (int64_t ox = xs.begin; ox < xs.end; ++ox) {
        const int64_t o = ((plane * rows.out + oy) * columns.out + ox) * inner + channel;
        if (IsFirstGreatest(from, iy, ix, oy, ox, Widen(y[o]))) sum += Widen(dy[o]);
      }
    }
    dx[i] = static_cast<T>(sum);
  }
  Traffic Moves(int64_t n) const {
    const int64_t planes = n / (rows.size * columns.size);
    return {(Inputs(planes, rows, columns) + 2 * Outputs(planes, rows, columns)) * SizeInBytes<T>(),
            n * SizeInBytes<T>(), SizeInBytes<T>()};
  }

  // Of the plane's values from `from` on.
  RUBATO_HOST_DEVICE bool IsFirstGreatest(const T* from, int64_t iy, int64_t ix, int64_t oy,
                                          int64_t ox, Wide<T> greatest) const {
    const Span ys = rows.Seen(oy), xs = columns.Seen(ox);
    for (int64_t jy = ys.begin; jy <= iy; ++jy) {
      for (int64_t jx = xs.begin; jx < xs.end; ++jx) {
        const Wide<T> value = Widen(from[(jy * columns.size + jx) * inner]);
        if (value == greatest || value != value) return jy == iy && jx == ix;
      }
    }
    return false;
  }
};

template <typename T, typename Side>
struct Average {
  Side rows, columns;
  Divisor inner;
  bool count_padding;
  const T* x;
  T* y;

  RUBATO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t place = i / inner, line = place / columns.out, ox = place - line * columns.out;
    const int64_t plane = line / rows.out, oy = line - plane * rows.out;
    const Span ys = rows.Seen(oy), xs = columns.Seen(ox);
    const T* const from = x + plane * rows.size * columns.size * inner + (i - place * inner);
    Wide<T> sum = 0;
    for (int64_t iy = ys.begin; iy < ys.end; ++iy) {
      for (int64_t ix = xs.begin; ix < xs.end; ++ix) {
        sum += Widen(from[(iy * columns.size + ix) * inner]);
      }
    }
    y[i] = static_cast<T>(sum / static_cast<Wide<T>>(rows.Length(oy, count_padding) *
                                                     columns.Length(ox, count_padding)));
  }
  Traffic Moves(int64_t n) const {
    return {Inputs(n / (rows.out * columns.out), rows, columns) * SizeInBytes<T>(),
            n * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

template <typename T, typename Side>
struct AverageBackward {
  Side rows, columns;
  Divisor inner;
  bool count_padding;
  const T* dy;
  T* dx;

  RUBATO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t place = i / inner, line = place / columns.size, plane = line / rows.size;
    const Span ys = rows.Holding(line - plane * rows.size);
    const Span xs = columns.Holding(place - line * columns.size);
    const T* const from = dy + plane * rows.out * columns.out * inner + (i - place * inner);
    Wide<T> sum = 0;
    for (int64_t oy = ys.begin; oy < ys.end; ++oy) {
      for (int64_t ox = xs.begin; ox < xs.end; ++ox) {
        sum += Widen(from[(oy * columns.out + ox) * inner]) /
               static_cast<Wide<T>>(rows.Length(oy, count_padding) *
                                    columns.Length(ox, count_padding));
      }
    }
    dx[i] = static_cast<T>(sum);
  }
  Traffic Moves(int64_t n) const {
    const int64_t planes = n / (rows.size * columns.size);
    return {Outputs(planes, rows, columns) * SizeInBytes<T>(), n * SizeInBytes<T>(),
            SizeInBytes<T>()};
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
      LaunchForEach(
          queue_, y.size(),
          pooling::Maximum<T>{Rows(w), Columns(w), w.inner, Pointer<T>(x), Pointer<T>(y)});
    });
  }
  void MaxPool2dBackward(const Window& w, const ConstTensorRef& x, const ConstTensorRef& y,
                         const ConstTensorRef& dy, const TensorRef& dx) override {
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      LaunchForEach(queue_, dx.size(),
                    pooling::MaximumBackward<T>{Rows(w), Columns(w), w.inner, Pointer<T>(x),
                                                Pointer<T>(y), Pointer<T>(dy), Pointer<T>(dx)});
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
      LaunchForEach(queue_, y.size(),
                    pooling::Average<T, Side>{rows, columns, inner, count_padding, Pointer<T>(x),
                                              Pointer<T>(y)});
    });
  }
  template <typename Side>
  void Backward(Side rows, Side columns, int64_t inner, bool count_padding,
                const ConstTensorRef& dy, const TensorRef& dx) {
    ByType<Queue>(dy.dtype(), [&](auto zero) {
      using T = decltype(zero);
      LaunchForEach(queue_, dx.size(),
                    pooling::AverageBackward<T, Side>{rows, columns, inner, count_padding,
                                                      Pointer<T>(dy), Pointer<T>(dx)});
    });
  }

  Queue& queue_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_POOLING_H_
