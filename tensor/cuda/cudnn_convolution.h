// Convolutions by cuDNN: a graph of operations for each pass, with sums in float32.
#ifndef RUBATO_TENSOR_CUDA_CUDNN_CONVOLUTION_H_
#define RUBATO_TENSOR_CUDA_CUDNN_CONVOLUTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "tensor/cuda/convolution_library.h"
#include "tensor/cuda/cudnn_graph.h"
#include "tensor/cuda/cudnn_plans.h"

namespace rubato {

// Names of the operands of a run.
enum class ConvolutionOperand : int64_t { kX = 1, kWeight, kY, kDWeight };

class CudnnConvolution final : public ConvolutionLibrary {
 public:
  // The target's handle, if it has one, becomes this object's.
  CudnnConvolution(std::shared_ptr<const Cudnn> cudnn, const CudnnTarget& target)
      : plans_(std::move(cudnn), target) {}

  int64_t Workspace(const Convolution& convolution, DType dtype, int64_t n) override;
  void Convolve(const FusedConvolution& fused) override;
  std::string used() const override { return plans_.used(); }

  // Of all passes, with no more workspace than `most` bytes for any. That of the gradient by
  // weights, which is compiled, is only chosen if `finishes` is false.
  struct Plans {
    explicit Plans(const Cudnn* cudnn)
        : of_pass{CudnnPlan(cudnn), CudnnPlan(cudnn), CudnnPlan(cudnn)} {}
    std::array<CudnnPlan, kConvolutionPasses> of_pass;
    int64_t workspace = 0;  // bytes: the greatest one's, or what there is for it
    int64_t most() const { return workspace; }
  };
  absl::StatusOr<std::unique_ptr<Plans>> MakePlans(const Convolution& convolution, DType dtype,
                                                   int64_t n, int64_t most,
                                                   bool finishes = true) const;

 private:
  using Kind =
      std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, DType>;
  static Kind KindOf(const Convolution& c, DType dtype) {
    const Window& w = c.window;
    return {w.height,      w.width,        w.kernel, w.stride, w.padding,
            c.in_channels, c.out_channels, c.groups, dtype};
  }

  // A pass's plan is made, if it is not yet.
  const CudnnPlan& PlanOf(const FusedConvolution& fused);

  CudnnPlans<Kind, Plans> plans_;
  bool compiles_ = false;  // a kernel has been compiled, so others can be
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDNN_CONVOLUTION_H_
