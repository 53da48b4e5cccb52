#include <algorithm>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/convolution.h"
#include "tensor/cpu/by_dtype.h"

namespace rubato {
namespace {

// The part of a window that lies in the input.
struct Part {
  int64_t top, bottom, left, right;
};

RUBATO_ALWAYS_INLINE Part PartAt(const Window& w, int64_t oy, int64_t ox) {
  const int64_t y = oy * w.stride - w.padding, x = ox * w.stride - w.padding;
  return {std::max<int64_t>(y, 0), std::min(y + w.kernel, w.height), std::max<int64_t>(x, 0),
          std::min(x + w.kernel, w.width)};
}

// The usual window, 2 x 2 side by side.
RUBATO_ALWAYS_INLINE bool IsPair(const Window& w) {
  return w.kernel == 2 && w.stride == 2 && w.padding == 0;
}

// The greater; NaN if one is.
template <typename T>
RUBATO_ALWAYS_INLINE T Greater(T a, T b) {
  return ((b > a) | (b != b)) ? b : a;
}

// Outputs of a row that are computed at a time, where a piece of it is kept aside.
constexpr int64_t kPiece = 64;

template <typename T>
struct MaxPoolKernel {
  static RUBATO_ALWAYS_INLINE void Run(const Window* window, int64_t planes, const T* __restrict x,
                                       T* __restrict y) {
    const Window& w = *window;
    const int64_t oh = w.out_height(), ow = w.out_width();
    for (int64_t p = 0; p < planes; ++p, x += w.plane()) {
      for (int64_t oy = 0; oy < oh; ++oy, y += ow) {
        if (IsPair(w)) {
          Pairs(x + 2 * oy * w.width, x + (2 * oy + 1) * w.width, ow, y);
          continue;
        }
        for (int64_t ox = 0; ox < ow; ++ox) {
          const Part part = PartAt(w, oy, ox);
          T greatest = x[part.top * w.width + part.left];
          for (int64_t iy = part.top; iy < part.bottom; ++iy) {
            for (int64_t ix = part.left; ix < part.right; ++ix) {
              greatest = Greater(greatest, x[iy * w.width + ix]);
            }
          }
          y[ox] = greatest;
        }
      }
    }
  }

  // Two rows at once, then neighbours: the compiler vectorises both.
  static RUBATO_ALWAYS_INLINE void Pairs(const T* __restrict a, const T* __restrict b, int64_t n,
                                         T* __restrict y) {
    T rows[2 * kPiece];
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      const int64_t count = std::min(kPiece, n - begin);
      for (int64_t j = 0; j < 2 * count; ++j) rows[j] = Greater(a[2 * begin + j], b[2 * begin + j]);
      for (int64_t i = 0; i < count; ++i) y[begin + i] = Greater(rows[2 * i], rows[2 * i + 1]);
    }
  }
};

template <typename T>
struct MaxPoolBackwardKernel {
  static RUBATO_ALWAYS_INLINE void Run(const Window* window, int64_t planes, const T* __restrict x,
                                       const T* __restrict y, const T* __restrict dy,
                                       T* __restrict dx) {
    const Window& w = *window;
    const int64_t oh = w.out_height(), ow = w.out_width();
    for (int64_t p = 0; p < planes; ++p, x += w.plane(), dx += w.plane()) {
      if (IsPair(w)) {
        Pairs(w, x, y, dy, dx);
        y += oh * ow;
        dy += oh * ow;
        continue;
      }
      for (int64_t i = 0; i < w.plane(); ++i) dx[i] = 0;
      for (int64_t oy = 0; oy < oh; ++oy, y += ow, dy += ow) {
        for (int64_t ox = 0; ox < ow; ++ox) {
          const Part part = PartAt(w, oy, ox);
          int64_t at = -1;
          for (int64_t iy = part.top; iy < part.bottom && at < 0; ++iy) {
            for (int64_t ix = part.left; ix < part.right && at < 0; ++ix) {
              const T value = x[iy * w.width + ix];
              if (value == y[ox] || value != value) at = iy * w.width + ix;
            }
          }
          dx[at] += dy[ox];
        }
      }
    }
  }

  static RUBATO_ALWAYS_INLINE void Pairs(const Window& w, const T* __restrict x,
                                         const T* __restrict y, const T* __restrict dy,
                                         T* __restrict dx) {
    const int64_t oh = w.out_height(), ow = w.out_width();
    for (int64_t oy = 0; oy < oh; ++oy, y += ow, dy += ow) {
      const T* a = x + 2 * oy * w.width;
      const T* b = a + w.width;
      T* da = dx + 2 * oy * w.width;
      T* db = da + w.width;
      for (int64_t i = 0; i < ow; ++i) {
        // What is less than the greatest passes the gradient on.
        const T greatest = y[i], d = dy[i];
        const T after_first = a[2 * i] < greatest ? d : T(0);
        const T after_second = a[2 * i + 1] < greatest ? after_first : T(0);
        const T after_third = b[2 * i] < greatest ? after_second : T(0);
        da[2 * i] = a[2 * i] < greatest ? T(0) : d;
        da[2 * i + 1] = a[2 * i + 1] < greatest ? T(0) : after_first;
        db[2 * i] = b[2 * i] < greatest ? T(0) : after_second;
        db[2 * i + 1] = after_third;
      }
      if (w.width % 2 != 0) da[w.width - 1] = db[w.width - 1] = 0;
    }
    if (w.height % 2 != 0) {
      for (int64_t i = 0; i < w.width; ++i) dx[(w.height - 1) * w.width + i] = 0;
    }
  }
};

template <typename T>
RUBATO_ALWAYS_INLINE T Divisor(const Window& w, const Part& part, bool count_padding) {
  return static_cast<T>(count_padding ? w.kernel * w.kernel
                                      : (part.bottom - part.top) * (part.right - part.left));
}

// y = the sum of each part over its divisor; part_of(oy, ox) and divisor_of(part) say which.
template <typename T, typename PartOf, typename DivisorOf>
void Average(int64_t planes, int64_t plane, int64_t width, int64_t oh, int64_t ow, PartOf part_of,
             DivisorOf divisor_of, const T* x, T* y) {
  for (int64_t p = 0; p < planes; ++p, x += plane) {
    for (int64_t oy = 0; oy < oh; ++oy) {
      for (int64_t ox = 0; ox < ow; ++ox, ++y) {
        const Part part = part_of(oy, ox);
        T sum = 0;
        for (int64_t iy = part.top; iy < part.bottom; ++iy) {
          for (int64_t ix = part.left; ix < part.right; ++ix) sum += x[iy * width + ix];
        }
        *y = sum / divisor_of(part);
      }
    }
  }
}

template <typename T, typename PartOf, typename DivisorOf>
void AverageBackward(int64_t planes, int64_t plane, int64_t width, int64_t oh, int64_t ow,
                     PartOf part_of, DivisorOf divisor_of, const T* dy, T* dx) {
  std::fill(dx, dx + planes * plane, T(0));
  for (int64_t p = 0; p < planes; ++p, dx += plane) {
    for (int64_t oy = 0; oy < oh; ++oy) {
      for (int64_t ox = 0; ox < ow; ++ox, ++dy) {
        const Part part = part_of(oy, ox);
        const T share = *dy / divisor_of(part);
        for (int64_t iy = part.top; iy < part.bottom; ++iy) {
          for (int64_t ix = part.left; ix < part.right; ++ix) dx[iy * width + ix] += share;
        }
      }
    }
  }
}

Part AdaptivePart(int64_t height, int64_t width, int64_t out, int64_t oy, int64_t ox) {
  return {oy * height / out, ((oy + 1) * height + out - 1) / out, ox * width / out,
          ((ox + 1) * width + out - 1) / out};
}

}  // namespace

void MaxPool2d(const Window& w, const ConstTensorRef& x, const TensorRef& y) {
  const int64_t planes = x.size() / w.plane();
  RUBATO_CHECK(x.size() == planes * w.plane() && y.size() == planes * w.out_plane());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<MaxPoolKernel<T>>(&w, planes, x.values<T>().data(), y.values<T>().data());
  });
}

void MaxPool2dBackward(const Window& w, const ConstTensorRef& x, const ConstTensorRef& y,
                       const ConstTensorRef& dy, const TensorRef& dx) {
  const int64_t planes = x.size() / w.plane();
  RUBATO_CHECK(dx.size() == planes * w.plane() && dy.size() == planes * w.out_plane());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<MaxPoolBackwardKernel<T>>(&w, planes, x.values<T>().data(), y.values<T>().data(),
                                       dy.values<T>().data(), dx.values<T>().data());
  });
}

void AvgPool2d(const Window& w, bool count_padding, const ConstTensorRef& x, const TensorRef& y) {
  const int64_t planes = x.size() / w.plane();
  RUBATO_CHECK(x.size() == planes * w.plane() && y.size() == planes * w.out_plane());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Average<T>(
        planes, w.plane(), w.width, w.out_height(), w.out_width(),
        [&](int64_t oy, int64_t ox) { return PartAt(w, oy, ox); },
        [&](const Part& part) { return Divisor<T>(w, part, count_padding); }, x.values<T>().data(),
        y.values<T>().data());
  });
}

void AvgPool2dBackward(const Window& w, bool count_padding, const ConstTensorRef& dy,
                       const TensorRef& dx) {
  const int64_t planes = dx.size() / w.plane();
  RUBATO_CHECK(dx.size() == planes * w.plane() && dy.size() == planes * w.out_plane());
  ByDType(dy, [&](auto zero) {
    using T = decltype(zero);
    AverageBackward<T>(
        planes, w.plane(), w.width, w.out_height(), w.out_width(),
        [&](int64_t oy, int64_t ox) { return PartAt(w, oy, ox); },
        [&](const Part& part) { return Divisor<T>(w, part, count_padding); }, dy.values<T>().data(),
        dx.values<T>().data());
  });
}

void AdaptiveAvgPool2d(int64_t height, int64_t width, int64_t out, const ConstTensorRef& x,
                       const TensorRef& y) {
  const int64_t planes = x.size() / (height * width);
  RUBATO_CHECK(x.size() == planes * height * width && y.size() == planes * out * out);
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Average<T>(
        planes, height * width, width, out, out,
        [&](int64_t oy, int64_t ox) { return AdaptivePart(height, width, out, oy, ox); },
        [](const Part& part) {
          return static_cast<T>((part.bottom - part.top) * (part.right - part.left));
        },
        x.values<T>().data(), y.values<T>().data());
  });
}

void AdaptiveAvgPool2dBackward(int64_t height, int64_t width, int64_t out, const ConstTensorRef& dy,
                               const TensorRef& dx) {
  const int64_t planes = dx.size() / (height * width);
  RUBATO_CHECK(dx.size() == planes * height * width && dy.size() == planes * out * out);
  ByDType(dy, [&](auto zero) {
    using T = decltype(zero);
    AverageBackward<T>(
        planes, height * width, width, out, out,
        [&](int64_t oy, int64_t ox) { return AdaptivePart(height, width, out, oy, ox); },
        [](const Part& part) {
          return static_cast<T>((part.bottom - part.top) * (part.right - part.left));
        },
        dy.values<T>().data(), dx.values<T>().data());
  });
}

}  // namespace rubato
