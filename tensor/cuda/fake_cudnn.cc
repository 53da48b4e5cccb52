#include "tensor/cuda/fake_cudnn.h"

#include "absl/status/status.h"
#include "tensor/cuda/attention_library.h"

namespace rubato {
namespace {

class FakeAttention final : public AttentionLibrary {
 public:
  int64_t Workspace(const Attention& attention, int64_t n) override {
    if (TheFakeCudnn().refuses) return -1;
    is_used_ = true;
    return CudnnAttentionWorkspace(attention, n);
  }
  void Attend(const FusedAttention& fused) override { TheFakeCudnn().runs.push_back(fused); }
  std::string used() const override { return is_used_ ? "cuDNN 9.0.1" : ""; }

 private:
  bool is_used_ = false;
};

}  // namespace

FakeCudnn& TheFakeCudnn() {
  static FakeCudnn fake;
  return fake;
}

absl::StatusOr<std::unique_ptr<AttentionLibrary>> OpenCudnnAttention(int, cudaStream_t) {
  if (!TheFakeCudnn().is_there) return absl::FailedPreconditionError("there is none");
  return std::make_unique<FakeAttention>();
}

}  // namespace rubato
