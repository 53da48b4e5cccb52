// The sides of pooled planes: which window sees what.
#ifndef RUBATO_TENSOR_CUDA_POOLING_SIDES_H_
#define RUBATO_TENSOR_CUDA_POOLING_SIDES_H_

#include <cstdint>

#include "common/base/host_device.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/traffic.h"

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
  int64_t longest() const { return kernel; }
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
  int64_t longest() const { return size % out == 0 ? size / out : size / out + 2; }
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

// The places of some lines and columns of a plane, in their order; a plane has less than 2^31.
struct Places {
  int place, width, left, to_next_line;

  RUBATO_HOST_DEVICE int64_t Next() {
    const int now = place++;
    if (--left == 0) {
      left = width;
      place += to_next_line;
    }
    return now;
  }
};
RUBATO_HOST_DEVICE Places PlacesOf(Span lines, Span columns, int64_t line) {
  const int width = static_cast<int>(columns.end - columns.begin);
  return {static_cast<int>(lines.begin * line + columns.begin), width, width,
          static_cast<int>(line) - width};
}
RUBATO_HOST_DEVICE int PlacesIn(Span lines, Span columns) {
  return static_cast<int>((lines.end - lines.begin) * (columns.end - columns.begin));
}

}  // namespace pooling
}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_POOLING_SIDES_H_
