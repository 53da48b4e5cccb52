#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/convolution.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/lanes.h"
#include "tensor/cpu/onednn.h"

namespace rubato {
namespace {

// Copies n values by few wide moves: rows are too short for a call of memcpy.
template <typename T>
RUBATO_ALWAYS_INLINE void CopyRow(const T* from, T* to, int64_t n) {
  if (n >= 16) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) std::memcpy(to + i, from + i, 16 * sizeof(T));
    // Overlaps what is there.
    if (i < n) std::memcpy(to + n - 16, from + n - 16, 16 * sizeof(T));
  } else if (n >= 8) {
    std::memcpy(to, from, 8 * sizeof(T));
    std::memcpy(to + n - 8, from + n - 8, 8 * sizeof(T));
  } else if (n >= 4) {
    std::memcpy(to, from, 4 * sizeof(T));
    std::memcpy(to + n - 4, from + n - 4, 4 * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
  }
}

// `count` rows of n values, `stride` apart, one behind the other.
template <typename T>
RUBATO_ALWAYS_INLINE void CopyRows(const T* from, int64_t stride, T* to, int64_t n, int64_t count) {
  if (n >= 8 && n < 16) {  // the usual case, without a branch a row
    for (; count > 0; --count, from += stride, to += n) {
      std::memcpy(to, from, 8 * sizeof(T));
      std::memcpy(to + n - 8, from + n - 8, 8 * sizeof(T));
    }
    return;
  }
  for (; count > 0; --count, from += stride, to += n) CopyRow(from, to, n);
}

// to += from, likewise: the end of a row, which has no whole width left, in halves.
template <typename T>
RUBATO_ALWAYS_INLINE void AddRow(const T* __restrict from, T* __restrict to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t l = 0; l < 8; ++l) to[i + l] += from[i + l];
  }
  if (i + 4 <= n) {
    for (int64_t l = 0; l < 4; ++l) to[i + l] += from[i + l];
    i += 4;
  }
  for (; i < n; ++i) to[i] += from[i];
}

// The columns [begin, end) of the output whose input column, column * stride + offset, exists.
struct Columns {
  int64_t begin, end;
};
RUBATO_ALWAYS_INLINE Columns Inside(int64_t out, int64_t size, int64_t stride, int64_t offset) {
  const int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t end = size <= offset ? 0 : (size - offset + stride - 1) / stride;
  return {std::min(begin, out), std::max(std::min(begin, out), std::min(end, out))};
}

// columns (channels, kernel, kernel, out_height, out_width): for each place in the kernel, what the
// outputs see there.
template <typename T>
struct UnfoldKernel {
  static RUBATO_ALWAYS_INLINE void Run(const Window* window, int64_t channels,
                                       const T* __restrict x, T* __restrict columns) {
    const Window& w = *window;
    const int64_t oh = w.out_height(), ow = w.out_width();
    for (int64_t c = 0; c < channels; ++c, x += w.plane()) {
      for (int64_t ky = 0; ky < w.kernel; ++ky) {
        for (int64_t kx = 0; kx < w.kernel; ++kx) {
          const int64_t offset = kx - w.padding;
          if (w.stride == 1 && w.padding == 0) {
            CopyRows(x + ky * w.width + kx, w.width, columns, ow, oh);
            columns += oh * ow;
            continue;
          }
          const Columns inside = Inside(ow, w.width, w.stride, offset);
          for (int64_t oy = 0; oy < oh; ++oy, columns += ow) {
            const int64_t iy = oy * w.stride + ky - w.padding;
            if (iy < 0 || iy >= w.height) {
              for (int64_t i = 0; i < ow; ++i) columns[i] = 0;
              continue;
            }
            const T* row = x + iy * w.width + offset;
            for (int64_t i = 0; i < inside.begin; ++i) columns[i] = 0;
            if (w.stride == 1) {
              CopyRow(row + inside.begin, columns + inside.begin, inside.end - inside.begin);
            } else {
              for (int64_t i = inside.begin; i < inside.end; ++i) columns[i] = row[i * w.stride];
            }
            for (int64_t i = inside.end; i < ow; ++i) columns[i] = 0;
          }
        }
      }
    }
  }
};

// x = the sum of the columns' values at each place of the input, in the order of the kernel.
template <typename T>
struct FoldKernel {
  static RUBATO_ALWAYS_INLINE void Run(const Window* window, int64_t channels,
                                       const T* __restrict columns, T* __restrict x) {
    const Window& w = *window;
    const int64_t oh = w.out_height(), ow = w.out_width();
    for (int64_t c = 0; c < channels; ++c, x += w.plane()) {
      for (int64_t i = 0; i < w.plane(); ++i) x[i] = 0;
      for (int64_t ky = 0; ky < w.kernel; ++ky) {
        for (int64_t kx = 0; kx < w.kernel; ++kx) {
          const int64_t offset = kx - w.padding;
          const Columns inside = Inside(ow, w.width, w.stride, offset);
          for (int64_t oy = 0; oy < oh; ++oy, columns += ow) {
            const int64_t iy = oy * w.stride + ky - w.padding;
            if (iy < 0 || iy >= w.height) continue;
            T* row = x + iy * w.width + offset;
            if (w.stride == 1) {
              AddRow(columns + inside.begin, row + inside.begin, inside.end - inside.begin);
            } else {
              for (int64_t i = inside.begin; i < inside.end; ++i) row[i * w.stride] += columns[i];
            }
          }
        }
      }
    }
  }
};

// y[c, i] += bias[c].
template <typename T>
struct AddToPlanesKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict bias, int64_t channels, int64_t plane,
                                       T* __restrict y) {
    for (int64_t c = 0; c < channels; ++c, y += plane) {
      const T b = bias[c];
      for (int64_t i = 0; i < plane; ++i) y[i] += b;
    }
  }
};

// sums[c] += the sum of y[c, ...], by lanes.
template <typename T>
struct SumPlanesKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict y, int64_t channels, int64_t plane,
                                       T* __restrict sums) {
    const int64_t whole = plane / kLanes * kLanes;
    for (int64_t c = 0; c < channels; ++c, y += plane) {
      T lanes[kLanes] = {};
      for (int64_t i = 0; i < whole; i += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) lanes[l] += y[i + l];
      }
      for (int64_t i = whole; i < plane; ++i) lanes[i - whole] += y[i];
      sums[c] += TreeSum(lanes);
    }
  }
};

// Whether the input, as it is, holds the columns.
bool IsPointwise(const Window& w) { return w.kernel == 1 && w.stride == 1 && w.padding == 0; }

struct Sizes {
  explicit Sizes(const Convolution& c)
      : in(c.in_channels / c.groups),
        out(c.out_channels / c.groups),
        filter(c.filter()),
        places(c.window.out_plane()) {}
  int64_t in, out;  // channels of a group
  int64_t filter, places;
};

void Check(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
           const ConstTensorRef& y, const ConstTensorRef& scratch) {
  const int64_t n = x.dim(0);
  RUBATO_CHECK(x.size() == n * c.in_channels * c.window.plane());
  RUBATO_CHECK(y.size() == n * c.out_channels * c.window.out_plane());
  RUBATO_CHECK(weight.size() == c.out_channels * c.filter());
  RUBATO_CHECK(scratch.size() >= ConvolutionScratch(c, n));
}

bool IsOneDnns(const Convolution& c, const ConstTensorRef& x) {
  return x.dtype() == DType::kFloat32 && OneDnnTakes(OneDnnIsa(), c);
}

}  // namespace

int64_t ConvolutionScratch(const Convolution& c, int64_t n) {
  const int64_t columns = c.filter() * c.window.out_plane();
  if (!OneDnnTakes(OneDnnIsa(), c)) return columns;
  return std::max(columns, OneDnnConvolutionScratch(c, n));
}

void Conv2d(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
            const ConstTensorRef& bias, const TensorRef& y, const TensorRef& scratch) {
  Check(c, x, weight, y, scratch);
  if (IsOneDnns(c, x) && OneDnnConv2d(c, x, weight, bias, y, scratch)) return;
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const Sizes s(c);
    const Window& w = c.window;
    const T* in = x.values<T>().data();
    T* out = y.values<T>().data();
    T* columns = scratch.values<T>().data();
    for (int64_t i = 0; i < x.dim(0); ++i) {
      for (int64_t g = 0; g < c.groups; ++g, in += s.in * w.plane(), out += s.out * s.places) {
        if (!IsPointwise(w)) Dispatch<UnfoldKernel<T>>(&w, s.in, in, columns);
        Gemm(Transpose::kNo, Transpose::kNo, s.out, s.places, s.filter, T(1),
             weight.values<T>().data() + g * s.out * s.filter, s.filter,
             IsPointwise(w) ? in : columns, s.places, T(0), out, s.places);
        if (!bias.is_null()) {
          Dispatch<AddToPlanesKernel<T>>(bias.values<T>().data() + g * s.out, s.out, s.places, out);
        }
      }
    }
  });
}

void Conv2dBackward(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
                    const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                    const TensorRef& dbias, const TensorRef& scratch) {
  Check(c, x, weight, dy, scratch);
  if (IsOneDnns(c, x) && OneDnnConv2dBackward(c, x, weight, dy, dx, dweight, dbias, scratch)) {
    return;
  }
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const Sizes s(c);
    const Window& w = c.window;
    const T* in = x.values<T>().data();
    const T* dout = dy.values<T>().data();
    T* din = dx.is_null() ? nullptr : dx.values<T>().data();
    T* columns = scratch.values<T>().data();
    if (!dbias.is_null()) {
      std::fill(dbias.values<T>().begin(), dbias.values<T>().end(), T(0));
    }
    for (int64_t i = 0; i < x.dim(0); ++i) {
      for (int64_t g = 0; g < c.groups; ++g, in += s.in * w.plane(), dout += s.out * s.places) {
        if (!IsPointwise(w)) Dispatch<UnfoldKernel<T>>(&w, s.in, in, columns);
        Gemm(Transpose::kNo, Transpose::kYes, s.out, s.filter, s.places, T(1), dout, s.places,
             IsPointwise(w) ? in : columns, s.places, T(i == 0 ? 0 : 1),
             dweight.values<T>().data() + g * s.out * s.filter, s.filter);
        if (!dbias.is_null()) {
          Dispatch<SumPlanesKernel<T>>(dout, s.out, s.places, dbias.values<T>().data() + g * s.out);
        }
        if (din == nullptr) continue;
        Gemm(Transpose::kYes, Transpose::kNo, s.filter, s.places, s.out, T(1),
             weight.values<T>().data() + g * s.out * s.filter, s.filter, dout, s.places, T(0),
             IsPointwise(w) ? din : columns, s.places);
        if (!IsPointwise(w)) Dispatch<FoldKernel<T>>(&w, s.in, columns, din);
        din += s.in * w.plane();
      }
    }
  });
}

}  // namespace rubato
