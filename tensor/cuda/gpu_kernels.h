// All of a GPU's kernels. They are templates over the queue that they give their work to: a GPU's
// (cuda_queue.h) or that of its emulation (emulated_queue.h), which has
//
//   queue.Launch(blocks, threads, kernel)   // see block.h
//   queue.Multiply(product)                 // see product.h
//   queue.Partials(bytes)                   // see column_sums.h
//   queue.AttentionWorkspace(attention, n)  // see fused_attention.h, as Attend
//   queue.ConvolutionWorkspace(convolution, dtype, n)  // see fused_convolution.h, as Convolve
//   Queue::kHasDouble                       // whether it takes float64
#ifndef RUBATO_TENSOR_CUDA_GPU_KERNELS_H_
#define RUBATO_TENSOR_CUDA_GPU_KERNELS_H_

#include "tensor/cuda/convolution.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/ends.h"
#include "tensor/cuda/normalization.h"
#include "tensor/cuda/pooling.h"
#include "tensor/cuda/products.h"

namespace rubato {

// Values of the columns that a convolution is lowered to at a time.
constexpr int64_t kColumns = int64_t{1} << 27;

template <typename Queue>
class GpuKernels : public ElementwiseKernels<Queue>,
                   public ProductKernels<Queue>,
                   public ConvolutionKernels<Queue>,
                   public NormalizationKernels<Queue>,
                   public PoolingKernels<Queue>,
                   public EndKernels<Queue> {
 public:
  explicit GpuKernels(Queue* queue, int64_t columns = kColumns)
      : ElementwiseKernels<Queue>(queue),
        ProductKernels<Queue>(queue),
        ConvolutionKernels<Queue>(queue, columns),
        NormalizationKernels<Queue>(queue),
        PoolingKernels<Queue>(queue),
        EndKernels<Queue>(queue) {}
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_GPU_KERNELS_H_
