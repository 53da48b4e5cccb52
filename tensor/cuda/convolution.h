// Convolution in one piece of work where the queue has it, else by lowering to products of
// matrices: what each output sees is copied into a column.
#ifndef RUBATO_TENSOR_CUDA_CONVOLUTION_H_
#define RUBATO_TENSOR_CUDA_CONVOLUTION_H_

#include <algorithm>

#include "tensor/cuda/block.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/lowering.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/turned_matrices.h"
#include "tensor/device.h"

namespace rubato {

template <typename Queue>
class ConvolutionKernels : public virtual DeviceKernels {
 public:
  // Examples are taken so many at a time that their columns stay below `most` values.
  ConvolutionKernels(Queue* queue, int64_t most) : queue_(*queue), most_(most) {}

  bool ComputesChannelsLast(const Convolution& c, DType dtype, int64_t n) const override {
    return queue_.ConvolutionWorkspace(c, dtype, n) >= 0;
  }

  void Turn(const ConstTensorRef& x, const TensorRef& y) override {
    TurnMatrices(x.dim(0), x.dim(1), x.dim(2), x, y);
  }

  void ConvertFilters(const ConstTensorRef& x, const TensorRef& y) override {
    const int64_t channels = x.dim(1), places = x.dim(2);
    ByType<Queue>(y.dtype(), [&](auto zero) {
      using To = decltype(zero);
      LaunchForEach(
          queue_, y.size(),
          convolution::ConvertFilters<To>{channels, places, Pointer<Wide<To>>(x), Pointer<To>(y)});
    });
  }

  int64_t ConvolutionScratch(const Convolution& c, DType dtype, int64_t n) const override {
    const int64_t workspace = queue_.ConvolutionWorkspace(c, dtype, n);
    if (workspace < 0) return ExamplesAtATime(c, n) * PerExample(c);
    return (FusedMemory(c, n, nullptr).workspace + FusedMemory::Aligned(workspace) + kAlignment) /
           BytesOf(dtype);
  }

  void Conv2d(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
              const ConstTensorRef& bias, const TensorRef& y, const TensorRef& scratch) override {
    const int64_t n = x.dim(0);
    if (queue_.ConvolutionWorkspace(c, x.dtype(), n) >= 0) {
      FusedForward(c, x, weight, y, scratch);
    } else {
      ForwardByProducts(c, x, weight, y, scratch);
    }
    if (bias.is_null()) return;
    const int64_t plane = c.y_order == ChannelOrder::kLast ? 1 : c.window.out_plane();
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      LaunchForEach(
          queue_, y.size(),
          convolution::AddToPlanes<T>{c.out_channels, plane, Pointer<T>(bias), Pointer<T>(y)});
    });
  }

  void Conv2dBackward(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
                      const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                      const TensorRef& dbias, const TensorRef& scratch) override {
    if (queue_.ConvolutionWorkspace(c, x.dtype(), x.dim(0)) >= 0) {
      FusedBackward(c, x, weight, dy, dx, dweight, dbias, scratch);
    } else {
      BackwardByProducts(c, x, weight, dy, dx, dweight, dbias, scratch);
    }
  }

 private:
  // Of so many channels, or of a plane of so many places, both orders are one.
  static bool IsLast(ChannelOrder order, int64_t channels, int64_t places) {
    return order == ChannelOrder::kLast || channels == 1 || places == 1;
  }
  static bool XIsLast(const Convolution& c) {
    return IsLast(c.x_order, c.in_channels, c.window.plane());
  }
  static bool YIsLast(const Convolution& c) {
    return IsLast(c.y_order, c.out_channels, c.window.out_plane());
  }
  // Whether a convolution that is products turns its input: they want the channels first.
  static bool TurnsX(const Convolution& c) {
    return c.x_order == ChannelOrder::kLast &&
           !IsLast(ChannelOrder::kFirst, c.in_channels, c.window.plane());
  }
  static int64_t Inputs(const Convolution& c) { return c.in_channels * c.window.plane(); }

  // Whether the input, as it is, holds the columns.
  static bool IsPointwise(const Window& w) {
    return w.kernel == 1 && w.stride == 1 && w.padding == 0;
  }
  static int64_t Rows(const Convolution& c) { return c.groups * c.filter(); }
  // The columns, the outputs' gradient in another order and, if it has to be turned, the input.
  static int64_t Columns(const Convolution& c) {
    return (Rows(c) + c.out_channels) * c.window.out_plane();
  }
  static int64_t PerExample(const Convolution& c) {
    return Columns(c) + (TurnsX(c) ? Inputs(c) : 0);
  }
  int64_t ExamplesAtATime(const Convolution& c, int64_t n) const {
    return std::min(n, std::max<int64_t>(1, most_ / PerExample(c)));
  }

  // Some examples of x with the channels first: as they lie or, turned, behind their columns.
  ConstTensorRef ChannelsFirst(const Convolution& c, const ConstTensorRef& x, int64_t first,
                               int64_t examples, const TensorRef& scratch) {
    const ConstTensorRef part =
        x.Slice(0, {x.size()}).Slice(first * Inputs(c), {examples * Inputs(c)});
    if (!TurnsX(c)) return part;
    const TensorRef turned = scratch.Slice(examples * Columns(c), {examples * Inputs(c)});
    TurnMatrices(examples, c.window.plane(), c.in_channels, part, turned);
    return turned;
  }

  template <typename T>
  void Unfold(const Convolution& c, int64_t examples, bool by_example, const T* x, T* columns) {
    const convolution::Unfold<T> unfold = {
        convolution::GridOf(c.window), c.in_channels, examples, by_example, Rows(c), x, columns};
    LaunchForEach(queue_, unfold.calls(), unfold);
  }

  // Without the bias.
  void ForwardByProducts(const Convolution& c, const ConstTensorRef& x,
                         const ConstTensorRef& weight, const TensorRef& y,
                         const TensorRef& scratch) {
    const int64_t n = x.dim(0), places = c.window.out_plane(), filter = c.filter();
    const int64_t out = c.out_channels / c.groups, step = ExamplesAtATime(c, n);
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      for (int64_t first = 0; first < n; first += step) {
        const int64_t examples = std::min(step, n - first);
        const T* columns = Pointer<T>(ChannelsFirst(c, x, first, examples, scratch));
        if (!IsPointwise(c.window)) {
          Unfold(c, examples, true, columns, Pointer<T>(scratch));
          columns = Pointer<T>(scratch);
        }
        for (int64_t g = 0; g < c.groups; ++g) {
          const T* const filters = Pointer<T>(weight) + g * out * filter;
          const T* const seen = columns + g * filter * places;
          T* const to = Pointer<T>(y) + first * c.out_channels * places;
          if (places == 1) {
            // Outputs of one place are rows: one product, and none of a single column for each
            // example.
            Product product(Transpose::kNo, Transpose::kYes, examples, out, filter);
            product.a = MatrixAt(seen, Rows(c));
            product.b = MatrixAt(filters, filter);
            product.c = MatrixAt(to + g * out, c.out_channels);
            queue_.Multiply(product);
          } else if (c.y_order == ChannelOrder::kLast) {
            Product product(Transpose::kYes, Transpose::kYes, places, out, filter);
            product.a = MatrixAt(seen, places, Rows(c) * places);
            product.b = MatrixAt(filters, filter);
            product.c = MatrixAt(to + g * out, c.out_channels, c.out_channels * places);
            product.count = examples;
            queue_.Multiply(product);
          } else {
            Product product(Transpose::kNo, Transpose::kNo, out, places, filter);
            product.a = MatrixAt(filters, filter);
            product.b = MatrixAt(seen, places, Rows(c) * places);
            product.c = MatrixAt(to + g * out * places, places, c.out_channels * places);
            product.count = examples;
            queue_.Multiply(product);
          }
        }
      }
    });
  }

  // The outputs' gradients of some examples: a matrix of (channels, examples places) or, as they
  // lie if their channels are last, turned.
  template <typename T>
  struct OutputGradients {
    const T* values;
    int64_t channels, width;
    bool is_last;

    Transpose Turned(bool wanted) const {
      return wanted != is_last ? Transpose::kYes : Transpose::kNo;
    }
    Matrix OfGroup(int64_t first_channel) const {
      return is_last ? MatrixAt(values + first_channel, channels)
                     : MatrixAt(values + first_channel * width, width);
    }
  };

  void BackwardByProducts(const Convolution& c, const ConstTensorRef& x,
                          const ConstTensorRef& weight, const ConstTensorRef& dy,
                          const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias,
                          const TensorRef& scratch) {
    const int64_t n = x.dim(0), places = c.window.out_plane(), filter = c.filter();
    const int64_t out = c.out_channels / c.groups, step = ExamplesAtATime(c, n);
    const convolution::Grid grid = convolution::GridOf(c.window);
    // A bias's gradient is added over channels that lie first.
    const bool is_last = c.y_order == ChannelOrder::kLast && dbias.is_null();
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      // One product over all examples' places, which lie behind one another.
      T* const dout = Pointer<T>(scratch);
      for (int64_t first = 0; first < n; first += step) {
        const int64_t examples = std::min(step, n - first), width = examples * places;
        T* const columns = dout + c.out_channels * width;
        const T* const dys = Pointer<T>(dy) + first * c.out_channels * places;
        const OutputGradients<T> gradients = {is_last ? dys : dout, c.out_channels, width, is_last};
        if (!is_last) GatherChannels(c, dys, examples, dout);
        Unfold(c, examples, false, Pointer<T>(ChannelsFirst(c, x, first, examples, scratch)),
               columns);
        for (int64_t g = 0; g < c.groups; ++g) {
          Product product(gradients.Turned(false), Transpose::kYes, out, filter, width);
          product.a = gradients.OfGroup(g * out);
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
          Product product(Transpose::kYes, gradients.Turned(false), filter, width, out);
          product.a = MatrixAt(Pointer<T>(weight) + g * out * filter, filter);
          product.b = gradients.OfGroup(g * out);
          product.c = MatrixAt(columns + g * filter * width, width);
          queue_.Multiply(product);
        }
        const int64_t inputs = examples * Inputs(c);
        const TensorRef part = dx.Slice(0, {dx.size()}).Slice(first * Inputs(c), {inputs});
        const TensorRef folded = TurnsX(c) ? scratch.Slice(examples * Columns(c), {inputs}) : part;
        LaunchForEach(
            queue_, inputs,
            convolution::Fold<T>{grid, c.in_channels, examples, columns, Pointer<T>(folded)});
        if (TurnsX(c)) TurnMatrices(examples, c.in_channels, c.window.plane(), folded, part);
      }
    });
  }

  // to (channels, examples, places) of the outputs' gradients.
  template <typename T>
  void GatherChannels(const Convolution& c, const T* from, int64_t examples, T* to) {
    const int64_t places = c.window.out_plane();
    if (c.y_order == ChannelOrder::kLast) {
      convolution::LaunchTurn(queue_, 1, examples * places, c.out_channels, from, to);
    } else {
      LaunchForEach(queue_, examples * c.out_channels * places,
                    convolution::ChannelsFirst<T>{c.out_channels, examples, places, from, to});
    }
  }

  // In scratch: x and y where they do not lie with the channels last, of which dx takes x's place.
  static constexpr int64_t kAlignment = 256;
  struct FusedMemory {
    FusedMemory(const Convolution& c, int64_t n, const void* scratch) {
      const int64_t half = BytesOf(DType::kFloat16);
      x = Aligned(reinterpret_cast<intptr_t>(scratch));
      y = x + (XIsLast(c) ? 0 : Aligned(n * Inputs(c) * half));
      dweight = y + (YIsLast(c) ? 0 : Aligned(n * c.out_channels * c.window.out_plane() * half));
      workspace = dweight + Aligned(c.out_channels * c.filter() * BytesOf(DType::kFloat32));
    }
    static int64_t Aligned(int64_t bytes) {
      return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    int64_t x, y, dweight, workspace;  // addresses
  };

  void Fuse(const Convolution& c, int64_t n, ConvolutionPass pass, const ConstTensorRef& x,
            const ConstTensorRef& weight, const ConstTensorRef& y, int64_t dweight,
            const FusedMemory& memory) {
    queue_.Convolve({c, x.dtype(), n, pass, x.address(), weight.address(), y.address(),
                     reinterpret_cast<float*>(dweight), reinterpret_cast<void*>(memory.workspace)});
  }

  // `to` (matrices, columns, rows) of `from` (matrices, rows, columns).
  void TurnMatrices(int64_t matrices, int64_t rows, int64_t columns, const ConstTensorRef& from,
                    const TensorRef& to) {
    ByType<Queue>(from.dtype(), [&](auto zero) {
      using T = decltype(zero);
      convolution::LaunchTurn(queue_, matrices, rows, columns, Pointer<T>(from), Pointer<T>(to));
    });
  }
  // x with the channels last: as it lies, or turned into memory.x.
  ConstTensorRef XLast(const Convolution& c, const ConstTensorRef& x, const FusedMemory& memory) {
    if (XIsLast(c)) return x;
    const TensorRef turned = At(memory.x, x.dtype(), x.size());
    TurnMatrices(x.dim(0), c.in_channels, c.window.plane(), x, turned);
    return turned;
  }

  // Without the bias.
  void FusedForward(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
                    const TensorRef& y, const TensorRef& scratch) {
    const int64_t n = x.dim(0);
    const FusedMemory memory(c, n, scratch.address());
    const TensorRef last_y = YIsLast(c) ? y : At(memory.y, x.dtype(), y.size());
    Fuse(c, n, ConvolutionPass::kOutput, XLast(c, x, memory), weight, last_y, memory.dweight,
         memory);
    if (!YIsLast(c)) TurnMatrices(n, c.window.out_plane(), c.out_channels, last_y, y);
  }

  void FusedBackward(const Convolution& c, const ConstTensorRef& x, const ConstTensorRef& weight,
                     const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                     const TensorRef& dbias, const TensorRef& scratch) {
    const int64_t n = x.dim(0), places = c.window.out_plane();
    const FusedMemory memory(c, n, scratch.address());
    ConstTensorRef last_dy = dy;
    if (!YIsLast(c)) {
      const TensorRef turned = At(memory.y, x.dtype(), dy.size());
      TurnMatrices(n, c.out_channels, places, dy, turned);
      last_dy = turned;
    }
    WeightGradient(c, n, XLast(c, x, memory), weight, last_dy, dweight, memory);
    if (!dbias.is_null()) {
      this->ColumnSums(last_dy.Reshaped({n * places, c.out_channels}), dbias);
    }
    if (dx.is_null()) return;
    const TensorRef last_dx = XIsLast(c) ? dx : At(memory.x, x.dtype(), x.size());
    Fuse(c, n, ConvolutionPass::kInputGradient, last_dx, weight, last_dy, memory.dweight, memory);
    if (!XIsLast(c)) TurnMatrices(n, c.window.plane(), c.in_channels, last_dx, dx);
  }

  // From the order that it is given in to that of weights, unless both are one.
  void WeightGradient(const Convolution& c, int64_t n, const ConstTensorRef& x,
                      const ConstTensorRef& weight, const ConstTensorRef& dy,
                      const TensorRef& dweight, const FusedMemory& memory) {
    const int64_t places = c.window.kernel * c.window.kernel, channels = c.in_channels / c.groups;
    const bool is_given = (places == 1 || channels == 1) && MayHavePacks(dweight.address());
    const TensorRef to = is_given ? dweight : At(memory.dweight, DType::kFloat32, dweight.size());
    Fuse(c, n, ConvolutionPass::kWeightGradient, x, weight, dy,
         reinterpret_cast<int64_t>(to.address()), memory);
    if (!is_given) TurnMatrices(c.out_channels, places, channels, to, dweight);
  }

  static TensorRef At(int64_t address, DType dtype, int64_t size) {
    return TensorRef::At(reinterpret_cast<void*>(address), dtype, {size});
  }

  Queue& queue_;
  const int64_t most_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CONVOLUTION_H_
