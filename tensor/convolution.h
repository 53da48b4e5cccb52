// Convolution and pooling of batches of planes: (n, channels, height, width). Types, bits and
// shapes as in tensor/kernels.h.
#ifndef RUBATO_TENSOR_CONVOLUTION_H_
#define RUBATO_TENSOR_CONVOLUTION_H_

#include <cstdint>

#include "tensor/tensor.h"

namespace rubato {

// Where the channels of an example lie: each a plane, (channels, height, width), or behind one
// another at each place, (height, width, channels).
enum class ChannelOrder { kFirst, kLast };

// Planes whose places have `inner` values each, side by side: 1 or, of channels that lie last, as
// many as there are channels.
struct Planes {
  int64_t height = 0, width = 0, inner = 1;
};

// How a square window goes over the planes of an example.
struct Window {
  int64_t height = 0, width = 0;  // of the input
  int64_t kernel = 1, stride = 1, padding = 0;
  int64_t inner = 1;  // as of Planes; the CPU's functions know 1 alone

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  int64_t plane() const { return height * width; }
  int64_t out_plane() const { return out_height() * out_width(); }
};

struct Convolution {
  Window window;
  int64_t in_channels = 0, out_channels = 0, groups = 1;
  // Of x and its gradient, and of y and its; the CPU's functions know kFirst alone.
  ChannelOrder x_order = ChannelOrder::kFirst, y_order = ChannelOrder::kFirst;

  // Of one filter, over the channels of its group.
  int64_t filter() const { return in_channels / groups * window.kernel * window.kernel; }
};

// Values of scratch that the next two functions need for batches of n.
int64_t ConvolutionScratch(const Convolution& convolution, int64_t n);

// y = x * weight + bias, zeros around x, as torch.nn.functional.conv2d. x: (n, in_channels, height,
// width), weight: (out_channels, in_channels / groups, kernel, kernel), bias: (out_channels) or
// null, y: (n, out_channels, out_height, out_width). oneDNN's, where it is the faster (float32,
// many channels: tensor/cpu/onednn.h), or each example is a product of matrices for each group: in
// either case a library's bits, see MatMulSignature.
void Conv2d(const Convolution& convolution, const ConstTensorRef& x, const ConstTensorRef& weight,
            const ConstTensorRef& bias, const TensorRef& y, const TensorRef& scratch);

// The gradients by x (unless dx is null), weight and bias (unless null).
void Conv2dBackward(const Convolution& convolution, const ConstTensorRef& x,
                    const ConstTensorRef& weight, const ConstTensorRef& dy, const TensorRef& dx,
                    const TensorRef& dweight, const TensorRef& dbias, const TensorRef& scratch);

// The greatest value of each window, padding left out; NaN if one is. Its gradient goes to the
// first of the greatest. x: (planes, height, width) of any number of planes.
void MaxPool2d(const Window& window, const ConstTensorRef& x, const TensorRef& y);
void MaxPool2dBackward(const Window& window, const ConstTensorRef& x, const ConstTensorRef& y,
                       const ConstTensorRef& dy, const TensorRef& dx);

// The sum of each window over kernel^2 or, without count_padding, over the number of its values
// that are not padding.
void AvgPool2d(const Window& window, bool count_padding, const ConstTensorRef& x,
               const TensorRef& y);
void AvgPool2dBackward(const Window& window, bool count_padding, const ConstTensorRef& dy,
                       const TensorRef& dx);

// Means over out x out windows, window i of a side of s values being
// [floor(i s / out), ceil((i + 1) s / out)).
void AdaptiveAvgPool2d(int64_t height, int64_t width, int64_t out, const ConstTensorRef& x,
                       const TensorRef& y);
void AdaptiveAvgPool2dBackward(int64_t height, int64_t width, int64_t out, const ConstTensorRef& dy,
                               const TensorRef& dx);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CONVOLUTION_H_
