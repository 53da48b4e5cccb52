#include "tensor/cuda/fake_cudnn.h"

#include <algorithm>

#include "absl/status/status.h"
#include "tensor/cuda/attention_library.h"
#include "tensor/cuda/convolution_library.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/plain_attention.h"
#include "tensor/cuda/plain_convolution.h"

namespace rubato {
namespace {

class FakeAttention final : public AttentionLibrary {
 public:
  explicit FakeAttention(cudaStream_t stream) : stream_(stream) {}

  int64_t Workspace(const Attention& attention, int64_t n) override {
    if (TheFakeCudnn().refuses) return -1;
    is_used_ = true;
    return CudnnAttentionWorkspace(attention, n);
  }
  void Attend(const FusedAttention& fused) override {
    CheckFused(fused);
    TheFakeCudnn().runs.push_back(fused);
    GiveToFakeStream(stream_, [fused] {
      if (fused.attention.dtype == DType::kBFloat16) {
        AttendPlainly<BFloat16>(fused);
      } else {
        AttendPlainly<Float16>(fused);
      }
      return cudaSuccess;
    });
  }
  std::string used() const override { return is_used_ ? "cuDNN 9.0.1" : ""; }

 private:
  const cudaStream_t stream_;
  bool is_used_ = false;
};

class FakeConvolution final : public ConvolutionLibrary {
 public:
  explicit FakeConvolution(cudaStream_t stream) : stream_(stream) {}

  int64_t Workspace(const Convolution& convolution, DType, int64_t n) override {
    if (TheFakeCudnn().refuses || !CudnnTakes(convolution)) return -1;
    is_used_ = true;
    return std::max(CudnnConvolutionWorkspace(convolution, n), PlainConvolutionWorkspace(n));
  }
  void Convolve(const FusedConvolution& fused) override {
    CheckFused(fused);
    TheFakeCudnn().convolutions.push_back(fused);
    GiveToFakeStream(stream_, [fused] {
      if (fused.dtype == DType::kBFloat16) {
        ConvolvePlainly<BFloat16>(fused);
      } else {
        ConvolvePlainly<Float16>(fused);
      }
      return cudaSuccess;
    });
  }
  std::string used() const override { return is_used_ ? "cuDNN 9.0.1" : ""; }

 private:
  const cudaStream_t stream_;
  bool is_used_ = false;
};

}  // namespace

FakeCudnn& TheFakeCudnn() {
  static FakeCudnn fake;
  return fake;
}

FakeCudnnOpeners& TheFakeCudnnOpeners() {
  static FakeCudnnOpeners openers;
  return openers;
}

absl::StatusOr<std::unique_ptr<AttentionLibrary>> OpenCudnnAttention(int major,
                                                                     cudaStream_t stream) {
  const auto opens = TheFakeCudnnOpeners().attention;
  if (opens != nullptr) return opens(major, stream);
  if (!TheFakeCudnn().is_there) return absl::FailedPreconditionError("there is none");
  return std::make_unique<FakeAttention>(stream);
}

absl::StatusOr<std::unique_ptr<ConvolutionLibrary>> OpenCudnnConvolution(int major,
                                                                         cudaStream_t stream) {
  const auto opens = TheFakeCudnnOpeners().convolution;
  if (opens != nullptr) return opens(major, stream);
  if (!TheFakeCudnn().is_there) return absl::FailedPreconditionError("there is none");
  return std::make_unique<FakeConvolution>(stream);
}

}  // namespace rubato
