// Fused convolutions in plain loops, with cuDNN's roundings: sums in float32, of which those that
// are not a gradient by weights are rounded to the operands' type.
#ifndef RUBATO_TENSOR_CUDA_PLAIN_CONVOLUTION_H_
#define RUBATO_TENSOR_CUDA_PLAIN_CONVOLUTION_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/numbers.h"

namespace rubato {

// Bytes.
inline int64_t PlainConvolutionWorkspace(int64_t n) { return 64 * n; }

// More than cuDNN takes, so that small models show how fused convolutions are used.
inline bool IsConvolvedPlainly(const Convolution& c) {
  return c.groups == 1 && c.in_channels % 2 == 0 && c.out_channels % 2 == 0;
}

// What cuDNN is told of where operands lie must hold.
inline void CheckFused(const FusedConvolution& fused) {
  const bool is_of_weights = fused.pass == ConvolutionPass::kWeightGradient;
  const void* const third = is_of_weights ? fused.dweight : fused.weight;
  for (const void* operand : {fused.x, fused.y, third}) {
    RUBATO_CHECK(operand != nullptr && reinterpret_cast<uintptr_t>(operand) % 16 == 0);
  }
  RUBATO_CHECK(reinterpret_cast<uintptr_t>(fused.workspace) % 256 == 0);
}

// f(place in x, place in y, place in the weights) for all products.
template <typename F>
void ForEachProduct(const Convolution& c, int64_t n, F f) {
  const Window& w = c.window;
  const int64_t in = c.in_channels / c.groups, out = c.out_channels / c.groups;
  for (int64_t place = 0; place < n * w.out_plane(); ++place) {
    const int64_t example = place / w.out_plane();
    const int64_t oy = place / w.out_width() % w.out_height(), ox = place % w.out_width();
    for (int64_t k = 0; k < w.kernel * w.kernel; ++k) {
      const int64_t iy = oy * w.stride + k / w.kernel - w.padding;
      const int64_t ix = ox * w.stride + k % w.kernel - w.padding;
      if (iy < 0 || iy >= w.height || ix < 0 || ix >= w.width) continue;
      const int64_t at = ((example * w.height + iy) * w.width + ix) * c.in_channels;
      for (int64_t o = 0; o < c.out_channels; ++o) {
        for (int64_t i = 0; i < in; ++i) {
          f(at + o / out * in + i, place * c.out_channels + o,
            (o * w.kernel * w.kernel + k) * in + i);
        }
      }
    }
  }
}

template <typename T>
void ConvolvePlainly(const FusedConvolution& fused) {
  const Convolution& c = fused.convolution;
  const T* const x = static_cast<const T*>(fused.x);
  const T* const y = static_cast<const T*>(fused.y);
  const T* const weight = static_cast<const T*>(fused.weight);
  const int64_t n_x = fused.n * c.in_channels * c.window.plane();
  const int64_t n_y = fused.n * c.out_channels * c.window.out_plane();
  std::memset(fused.workspace, 0xff, PlainConvolutionWorkspace(fused.n));
  const auto write = [](const std::vector<float>& sums, const T* to) {
    for (size_t i = 0; i < sums.size(); ++i) const_cast<T*>(to)[i] = static_cast<T>(sums[i]);
  };
  switch (fused.pass) {
    case ConvolutionPass::kOutput: {
      std::vector<float> sums(n_y);
      ForEachProduct(c, fused.n, [&](int64_t i, int64_t o, int64_t w) {
        sums[o] += Widen(x[i]) * Widen(weight[w]);
      });
      return write(sums, y);
    }
    case ConvolutionPass::kInputGradient: {
      std::vector<float> sums(n_x);
      ForEachProduct(c, fused.n, [&](int64_t i, int64_t o, int64_t w) {
        sums[i] += Widen(y[o]) * Widen(weight[w]);
      });
      return write(sums, x);
    }
    case ConvolutionPass::kWeightGradient:
      std::memset(fused.dweight, 0, c.out_channels * c.filter() * sizeof(float));
      ForEachProduct(c, fused.n, [&](int64_t i, int64_t o, int64_t w) {
        fused.dweight[w] += Widen(y[o]) * Widen(x[i]);
      });
      return;
  }
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PLAIN_CONVOLUTION_H_
