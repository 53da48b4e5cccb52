#include "tensor/cuda/cudnn_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "tensor/cuda/cuda_check.h"

namespace rubato {
namespace {

using Operand = AttentionOperand;
using Tensor = CudnnGraph::Tensor;

// At a multiple of which workspaces begin: that of CUDA's own pieces of memory.
constexpr int64_t kAlignment = 256;
int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t BytesOfSums(const Attention& a, int64_t n) {
  return Aligned(n * a.heads * a.places * static_cast<int64_t>(sizeof(float)));
}

// Both graphs, as the library's attention engines know them: the documentation of "CUDNN: graph
// API, supported graph patterns, fused attention fprop and bprop", and what NVIDIA's cudnn-frontend
// makes of scaled dot-product attention for 9.x before 9.21. Scores are (n, heads, places, places).
class Graphs {
 public:
  Graphs(CudnnDescriptors* descriptors, const Attention& a, int64_t n)
      : graph_(descriptors),
        type_(a.dtype == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        causal_(a.causal) {
    const int64_t t = a.places, c = a.channels, h = a.heads, size = c / h;
    in_x_ = {{n, h, t, size}, {t * 3 * c, size, 3 * c, 1}};
    in_y_ = {{n, h, t, size}, {t * c, size, c, 1}};
    turned_x_ = {{n, h, size, t}, {t * 3 * c, size, 1, 3 * c}};
    scores_ = {{n, h, t, t}, {h * t * t, t * t, t, 1}};
    turned_scores_ = {{n, h, t, t}, {h * t * t, t * t, 1, t}};
    rows_ = {{n, h, t, 1}, {h * t, t, 1, 1}};
  }

  std::vector<cudnnBackendDescriptor_t> Forward() {
    const Tensor statistics = Name(Operand::kStatistics, rows_, CUDNN_DATA_FLOAT);
    const Tensor values = Name(Operand::kValues, in_x_), y = Name(Operand::kY, in_y_);
    const Tensor scores = Masked(Scores());
    const Tensor greatest = graph_.Reduce(CUDNN_REDUCE_TENSOR_MAX, scores, graph_.Inner(rows_));
    const Tensor exponentials =
        Single(CUDNN_POINTWISE_EXP, Single(CUDNN_POINTWISE_SUB, scores, greatest));
    const Tensor sum = graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, graph_.Inner(rows_));
    const Tensor logarithm = graph_.Pointwise(CUDNN_POINTWISE_LOG, sum, graph_.Inner(rows_));
    graph_.Pointwise(CUDNN_POINTWISE_ADD, greatest, statistics, logarithm);
    const Tensor p =
        graph_.Pointwise(CUDNN_POINTWISE_DIV, exponentials, graph_.Inner(scores_, type_), sum);
    graph_.Multiply(p, values, y);
    return graph_.operations();
  }

  // The gradient by queries is a product of its own of the gradient by all scores, which lies in
  // the workspace: no sum is added up in the order in which blocks happen to be done. It is this
  // shape of the graph by which the library is asked for a deterministic algorithm.
  std::vector<cudnnBackendDescriptor_t> Backward() {
    const Tensor turned_values = Name(Operand::kValues, turned_x_);
    const Tensor y = Name(Operand::kY, in_y_), dy = Name(Operand::kDy, in_y_);
    const Tensor statistics = Name(Operand::kStatistics, rows_, CUDNN_DATA_FLOAT);
    const Tensor sums = Name(Operand::kSums, rows_, CUDNN_DATA_FLOAT);
    const Tensor one = graph_.Scalar(static_cast<int64_t>(Operand::kOne));
    const Tensor products = graph_.Pointwise(CUDNN_POINTWISE_MUL, dy, graph_.Inner(in_y_), y);
    graph_.Pointwise(CUDNN_POINTWISE_MUL,
                     graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, products, graph_.Inner(rows_)), sums,
                     one);

    const Tensor scores = Single(CUDNN_POINTWISE_SUB, Scores(), statistics);
    const Tensor p = Single(CUDNN_POINTWISE_EXP, Masked(scores));
    graph_.Multiply(graph_.Reshape(p, graph_.Inner(turned_scores_, type_)), dy,
                    Name(Operand::kDValues, in_x_));

    Tensor ds = graph_.Multiply(dy, turned_values, graph_.Inner(scores_));
    ds = Single(CUDNN_POINTWISE_MUL, Single(CUDNN_POINTWISE_SUB, ds, sums), p);
    ds = Single(CUDNN_POINTWISE_MUL, ds, scale_);
    graph_.Multiply(graph_.Reshape(ds, graph_.Inner(turned_scores_, type_)), queries_,
                    Name(Operand::kDKeys, in_x_));
    graph_.Multiply(ds, graph_.Reshape(turned_keys_, graph_.Inner(in_x_, type_)),
                    Name(Operand::kDQueries, in_x_));
    return graph_.operations();
  }

 private:
  Tensor Name(Operand operand, const CudnnGraph::Layout& layout, cudnnDataType_t type) {
    return graph_.Operand(static_cast<int64_t>(operand), layout, type);
  }
  Tensor Name(Operand operand, const CudnnGraph::Layout& layout) {
    return Name(operand, layout, type_);
  }
  Tensor Single(cudnnPointwiseMode_t mode, Tensor x, Tensor b = nullptr) {
    return graph_.Pointwise(mode, x, graph_.Inner(scores_), b);
  }
  Tensor Scores() {
    queries_ = Name(Operand::kQueries, in_x_);
    turned_keys_ = Name(Operand::kKeys, turned_x_);
    scale_ = graph_.Scalar(static_cast<int64_t>(Operand::kScale));
    const Tensor scores = graph_.Multiply(queries_, turned_keys_, graph_.Inner(scores_));
    return Single(CUDNN_POINTWISE_MUL, scores, scale_);
  }
  // Places that come later have no weight.
  Tensor Masked(Tensor scores) {
    if (!causal_) return scores;
    const Tensor row = graph_.Indices(2, scores, graph_.Inner(scores_, CUDNN_DATA_INT32));
    const Tensor column = graph_.Indices(3, scores, graph_.Inner(scores_, CUDNN_DATA_INT32));
    const Tensor is_seen =
        graph_.Pointwise(CUDNN_POINTWISE_CMP_GE, row, graph_.Inner(scores_, CUDNN_DATA_BOOLEAN),
                         column, nullptr, CUDNN_DATA_BOOLEAN);
    const Tensor unseen = graph_.Scalar(static_cast<int64_t>(Operand::kUnseen));
    return graph_.Pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, graph_.Inner(scores_), unseen,
                            is_seen);
  }

  CudnnGraph graph_;
  const cudnnDataType_t type_;
  const bool causal_;
  // `turned`: columns first, of a transpose.
  CudnnGraph::Layout in_x_, in_y_, turned_x_, scores_, turned_scores_, rows_;
  Tensor queries_ = nullptr, turned_keys_ = nullptr, scale_ = nullptr;
};

// The scalars of a run, in the order of their names.
struct Scalars {
  explicit Scalars(const Attention& a)
      : values{1 / std::sqrt(static_cast<float>(a.channels / a.heads)),
               -std::numeric_limits<float>::infinity(), 1} {}
  float values[3];
};

std::string TextOf(const Attention& a, int64_t n) {
  return absl::StrCat("attention of ", n, n == 1 ? " example, " : " examples, ", a.heads,
                      " heads of ", a.channels / a.heads, " channels, ", a.places, " places");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnAttention::Plans>> CudnnAttention::MakePlans(
    const Attention& attention, int64_t n, int64_t most) const {
  if (attention.channels / attention.heads % 8 != 0) {
    return absl::UnimplementedError("heads are not of a multiple of 8 channels");
  }
  auto plans = std::make_unique<Plans>(&plans_.cudnn());
  Graphs forward(&plans->forward.descriptors, attention, n);
  RUBATO_RETURN_IF_ERROR(
      MakePlan(plans_.cudnn(), plans_.target(), forward.Forward(), {}, most, &plans->forward));
  // On Blackwell's data centre GPUs the deterministic algorithm is this engine's, by this setting,
  // which it takes for graphs of this shape alone.
  std::vector<CudnnEngine> preferred;
  if (plans_.target().major == 10) {
    preferred.push_back({5, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}});
  }
  Graphs backward(&plans->backward.descriptors, attention, n);
  RUBATO_RETURN_IF_ERROR(MakePlan(plans_.cudnn(), plans_.target(), backward.Backward(), preferred,
                                  most, &plans->backward));
  plans->workspace = BytesOfSums(attention, n) + kAlignment +
                     Aligned(std::max(plans->forward.workspace, plans->backward.workspace));
  return plans;
}

int64_t CudnnAttention::Workspace(const Attention& a, int64_t n) {
  return plans_.Workspace(
      KindOf(a), n, [&](int64_t most) { return MakePlans(a, n, most); },
      [&]() -> CudnnPlans<Kind, Plans>::Words {
        return {TextOf(a, n), "products and a softmax", "device.attention: products"};
      });
}

std::map<Operand, const void*> CudnnAttention::OperandsOf(const FusedAttention& fused,
                                                          const float scalars[3]) {
  const Attention& a = fused.attention;
  const auto part = [&](const void* x, int index) {
    return static_cast<const char*>(x) + index * a.channels * BytesOf(a.dtype);
  };
  std::map<Operand, const void*> operands = {
      {Operand::kQueries, part(fused.x, 0)},    {Operand::kKeys, part(fused.x, 1)},
      {Operand::kValues, part(fused.x, 2)},     {Operand::kY, fused.y},
      {Operand::kStatistics, fused.statistics}, {Operand::kScale, &scalars[0]}};
  if (a.causal) operands[Operand::kUnseen] = &scalars[1];
  if (fused.dx == nullptr) return operands;
  operands[Operand::kOne] = &scalars[2];
  operands[Operand::kDy] = fused.dy;
  operands[Operand::kSums] = reinterpret_cast<void*>(
      Aligned(static_cast<int64_t>(reinterpret_cast<intptr_t>(fused.workspace))));
  operands[Operand::kDQueries] = part(fused.dx, 0);
  operands[Operand::kDKeys] = part(fused.dx, 1);
  operands[Operand::kDValues] = part(fused.dx, 2);
  return operands;
}

void CudnnAttention::Attend(const FusedAttention& fused) {
  const Attention& a = fused.attention;
  RUBATO_CHECK(Workspace(a, fused.n) >= 0);
  const Plans& plans = plans_.At(KindOf(a), fused.n);
  const CudnnPlan& plan = fused.dx == nullptr ? plans.forward : plans.backward;
  const Scalars scalars(a);
  std::map<int64_t, const void*> operands;
  for (const auto& [operand, address] : OperandsOf(fused, scalars.values)) {
    const bool is_scalar = operand == Operand::kScale || operand == Operand::kUnseen ||
                           operand == Operand::kOne;  // the host's
    RUBATO_CHECK(is_scalar ||
                 reinterpret_cast<uintptr_t>(address) % CudnnGraph::kOperandAlignment == 0);
    operands[static_cast<int64_t>(operand)] = address;
  }
  const void* const workspace =
      reinterpret_cast<const char*>(
          Aligned(static_cast<int64_t>(reinterpret_cast<intptr_t>(fused.workspace)))) +
      BytesOfSums(a, fused.n);
  const absl::Status status =
      RunPlan(plans_.cudnn(), plans_.target(), plan, operands, workspace, "attention");
  if (!status.ok()) EndProcess(status);
}

}  // namespace rubato
