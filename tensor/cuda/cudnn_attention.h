// Attention by cuDNN: two graphs of operations that it knows as one piece of work, and is asked for
// so that the same is computed each time.
#ifndef RUBATO_TENSOR_CUDA_CUDNN_ATTENTION_H_
#define RUBATO_TENSOR_CUDA_CUDNN_ATTENTION_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "tensor/cuda/attention_library.h"
#include "tensor/cuda/cudnn_graph.h"
#include "tensor/cuda/cudnn_plans.h"

namespace rubato {

// Names of the operands of a run. All but scalars lie in the GPU's memory.
enum class AttentionOperand : int64_t {
  kQueries = 1,
  kKeys,
  kValues,
  kY,
  kStatistics,
  kScale,   // a scalar
  kUnseen,  // a scalar: the score of what is not seen
  kOne,     // a scalar
  kDy,
  kSums,  // (n, heads, places): of a row, what its probabilities' gradients have in common
  kDQueries,
  kDKeys,
  kDValues,
};

class CudnnAttention final : public AttentionLibrary {
 public:
  // The target's handle, if it has one, becomes this object's.
  CudnnAttention(std::shared_ptr<const Cudnn> cudnn, const CudnnTarget& target)
      : plans_(std::move(cudnn), target) {}

  int64_t Workspace(const Attention& attention, int64_t n) override;
  void Attend(const FusedAttention& fused) override;
  std::string used() const override { return plans_.used(); }

  // Both directions' plans, with no more workspace than `most` bytes for either.
  struct Plans {
    explicit Plans(const Cudnn* cudnn) : forward(cudnn), backward(cudnn) {}
    CudnnPlan forward, backward;
    int64_t workspace = 0;  // bytes that we ask for: the greater one's, the sums, an alignment
    int64_t most() const { return std::max(forward.workspace, backward.workspace); }
  };
  absl::StatusOr<std::unique_ptr<Plans>> MakePlans(const Attention& attention, int64_t n,
                                                   int64_t most) const;
  // The operands of a run, by name, which lie where it says: what Attend gives the library.
  static std::map<AttentionOperand, const void*> OperandsOf(const FusedAttention& fused,
                                                            const float scalars[3]);

 private:
  using Kind = std::tuple<int64_t, int64_t, int64_t, bool, DType>;
  static Kind KindOf(const Attention& a) {
    return {a.heads, a.places, a.channels, a.causal, a.dtype};
  }

  CudnnPlans<Kind, Plans> plans_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDNN_ATTENTION_H_
