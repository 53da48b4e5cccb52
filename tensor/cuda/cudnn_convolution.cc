#include "tensor/cuda/cudnn_convolution.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "tensor/cuda/cuda_check.h"

namespace rubato {
namespace {

using Operand = ConvolutionOperand;

constexpr char kLeavesOut[] = "device.convolution: products";

// At multiples of which workspaces begin.
constexpr uintptr_t kWorkspaceAlignment = 256;

// Channels of a place lie behind one another; dimensions are in the order in which cuDNN names
// them.
CudnnGraph::Layout ChannelsLast(int64_t n, int64_t channels, int64_t height, int64_t width) {
  return {{n, channels, height, width}, {height * width * channels, 1, width * channels, channels}};
}

// One pass. The gradient by weights leaves its sums as they are, in float32, by an operation of its
// own: cuDNN has a convolution itself write nothing but what its operands are.
std::vector<cudnnBackendDescriptor_t> GraphOf(const Convolution& c, DType dtype, int64_t n,
                                              ConvolutionPass pass, CudnnDescriptors* descriptors) {
  CudnnGraph graph(descriptors);
  const auto type = dtype == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  const Window& w = c.window;
  const int64_t filter = c.in_channels / c.groups, kernel = w.kernel;
  const auto name = [&](Operand operand, const CudnnGraph::Layout& layout, cudnnDataType_t of) {
    return graph.Operand(static_cast<int64_t>(operand), layout, of);
  };
  const auto x = name(Operand::kX, ChannelsLast(n, c.in_channels, w.height, w.width), type);
  const auto y =
      name(Operand::kY, ChannelsLast(n, c.out_channels, w.out_height(), w.out_width()), type);
  const CudnnGraph::Layout layout = ChannelsLast(c.out_channels, filter, kernel, kernel);
  if (pass == ConvolutionPass::kWeightGradient) {
    const auto sums = graph.Inner(layout);
    graph.Convolve(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, w.stride,
                   w.padding, x, sums, y);
    graph.Pointwise(CUDNN_POINTWISE_IDENTITY, sums,
                    name(Operand::kDWeight, layout, CUDNN_DATA_FLOAT));
    return graph.operations();
  }
  graph.Convolve(pass == ConvolutionPass::kOutput
                     ? CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                     : CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                 w.stride, w.padding, x, name(Operand::kWeight, layout, type), y);
  return graph.operations();
}

std::string TextOf(const Convolution& c, int64_t n) {
  const Window& w = c.window;
  return absl::StrCat(
      "convolution of ", n, n == 1 ? " example, " : " examples, ", c.in_channels, " to ",
      c.out_channels, " channels", c.groups == 1 ? "" : absl::StrCat(" in ", c.groups, " groups"),
      " of ", w.height, " x ", w.width, " places, kernel ", w.kernel, ", stride ", w.stride);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnConvolution::Plans>> CudnnConvolution::MakePlans(
    const Convolution& convolution, DType dtype, int64_t n, int64_t most, bool finishes) const {
  if (!CudnnTakes(convolution)) {
    return absl::UnimplementedError(
        convolution.groups > 1
            ? "it has groups"
            : absl::StrCat("channels are not of a multiple of ", kCudnnChannels));
  }
  auto plans = std::make_unique<Plans>(&plans_.cudnn());
  for (int pass = 0; pass < kConvolutionPasses; ++pass) {
    CudnnPlan& plan = plans->of_pass[pass];
    const auto of = static_cast<ConvolutionPass>(pass);
    const auto graph = GraphOf(convolution, dtype, n, of, &plan.descriptors);
    if (finishes || of != ConvolutionPass::kWeightGradient) {
      RUBATO_RETURN_IF_ERROR(MakePlan(plans_.cudnn(), plans_.target(), graph, {}, most, &plan));
    } else {
      RUBATO_RETURN_IF_ERROR(ChoosePlan(plans_.cudnn(), plans_.target(), graph, most, &plan));
    }
    plans->workspace = std::max(plans->workspace, plan.workspace);
  }
  return plans;
}

// Kernels for gradients by weights are compiled when they are first run, so for evaluation none is;
// but for one, which shows that they can be. Of fewer examples than there are plans for, each pass
// is planned when it is first run.
int64_t CudnnConvolution::Workspace(const Convolution& c, DType dtype, int64_t n) {
  const auto make = [&](int64_t most) -> absl::StatusOr<std::unique_ptr<Plans>> {
    if (most < std::numeric_limits<int64_t>::max()) {
      auto later = std::make_unique<Plans>(&plans_.cudnn());
      later->workspace = most;
      return later;
    }
    auto plans = MakePlans(c, dtype, n, most, /*finishes=*/!compiles_);
    compiles_ = compiles_ || plans.ok();
    return plans;
  };
  return plans_.Workspace(KindOf(c, dtype), n, make, [&]() -> CudnnPlans<Kind, Plans>::Words {
    return {TextOf(c, n), "a product of matrices", kLeavesOut};
  });
}

const CudnnPlan& CudnnConvolution::PlanOf(const FusedConvolution& fused) {
  const Convolution& c = fused.convolution;
  RUBATO_CHECK(Workspace(c, fused.dtype, fused.n) >= 0);
  Plans& plans = plans_.At(KindOf(c, fused.dtype), fused.n);
  CudnnPlan& plan = plans.of_pass[static_cast<int>(fused.pass)];
  if (plan.plan != nullptr) return plan;
  const Cudnn& cudnn = plans_.cudnn();
  const absl::Status made =
      !plan.choices.empty()
          ? FinishPlan(cudnn, plans_.target(), plans.workspace, &plan)
          : MakePlan(cudnn, plans_.target(),
                     GraphOf(c, fused.dtype, fused.n, fused.pass, &plan.descriptors), {},
                     plans.workspace, &plan);
  if (!made.ok()) {
    EndProcess(absl::InternalError(absl::StrCat(
        TextOf(c, fused.n), ": cuDNN took ",
        plan.choices.empty() ? "another batch of it, but of this one " : "it, but compiled, ",
        made.message(), "; ", kLeavesOut, " leaves it out")));
  }
  return plan;
}

void CudnnConvolution::Convolve(const FusedConvolution& fused) {
  const CudnnPlan& plan = PlanOf(fused);
  const bool is_of_weights = fused.pass == ConvolutionPass::kWeightGradient;
  const std::map<Operand, const void*> operands = {
      {Operand::kX, fused.x},
      {Operand::kY, fused.y},
      is_of_weights ? std::make_pair(Operand::kDWeight, static_cast<const void*>(fused.dweight))
                    : std::make_pair(Operand::kWeight, fused.weight)};
  std::map<int64_t, const void*> by_id;
  for (const auto& [operand, address] : operands) {
    RUBATO_CHECK(reinterpret_cast<uintptr_t>(address) % CudnnGraph::kOperandAlignment == 0);
    by_id[static_cast<int64_t>(operand)] = address;
  }
  RUBATO_CHECK(reinterpret_cast<uintptr_t>(fused.workspace) % kWorkspaceAlignment == 0);
  const absl::Status status =
      RunPlan(plans_.cudnn(), plans_.target(), plan, by_id, fused.workspace, "a convolution");
  if (!status.ok()) EndProcess(status);
}

}  // namespace rubato
