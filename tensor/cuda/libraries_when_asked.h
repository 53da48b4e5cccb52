// A GPU's libraries beside cuBLAS, opened when they are first asked.
#ifndef RUBATO_TENSOR_CUDA_LIBRARIES_WHEN_ASKED_H_
#define RUBATO_TENSOR_CUDA_LIBRARIES_WHEN_ASKED_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tensor/cuda/attention_library.h"
#include "tensor/cuda/convolution_library.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {

// A library that is opened when it is first asked: models that have no use for it need none.
template <typename Library>
class WhenAsked {
 public:
  using Opener = absl::StatusOr<std::unique_ptr<Library>> (*)(int major, cudaStream_t stream);

  // `without` it: "convolutions are products of matrices".
  WhenAsked(Opener open, const char* without, int major, cudaStream_t stream)
      : open_(open), without_(without), major_(major), stream_(stream) {}

  // Null if it cannot be opened, which is told once.
  Library* Ask() {
    if (was_asked_) return library_.get();
    was_asked_ = true;
    absl::StatusOr<std::unique_ptr<Library>> library = open_(major_, stream_);
    if (library.ok()) {
      library_ = *std::move(library);
    } else {
      std::fprintf(stderr, "warning: on %s: %s: %s\n", UsedGpu().c_str(), without_,
                   std::string(library.status().message()).c_str());
    }
    return library_.get();
  }
  // As it was asked.
  Library& operator*() const { return *library_; }
  std::string used() const { return library_ == nullptr ? "" : library_->used(); }

 private:
  const Opener open_;
  const char* const without_;
  const int major_;
  const cudaStream_t stream_;
  bool was_asked_ = false;
  std::unique_ptr<Library> library_;  // or null
};

class AttentionWhenAsked final : public AttentionLibrary {
 public:
  AttentionWhenAsked(int major, cudaStream_t stream)
      : library_(OpenCudnnAttention, "attention is products and a softmax", major, stream) {}
  int64_t Workspace(const Attention& attention, int64_t n) override {
    AttentionLibrary* const library = library_.Ask();
    return library == nullptr ? -1 : library->Workspace(attention, n);
  }
  void Attend(const FusedAttention& fused) override { (*library_).Attend(fused); }
  std::string used() const override { return library_.used(); }

 private:
  WhenAsked<AttentionLibrary> library_;
};

class ConvolutionsWhenAsked final : public ConvolutionLibrary {
 public:
  ConvolutionsWhenAsked(int major, cudaStream_t stream)
      : library_(OpenCudnnConvolution, "convolutions are products of matrices", major, stream) {}
  int64_t Workspace(const Convolution& convolution, DType dtype, int64_t n) override {
    ConvolutionLibrary* const library = library_.Ask();
    return library == nullptr ? -1 : library->Workspace(convolution, dtype, n);
  }
  void Convolve(const FusedConvolution& fused) override { (*library_).Convolve(fused); }
  std::string used() const override { return library_.used(); }

 private:
  WhenAsked<ConvolutionLibrary> library_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_LIBRARIES_WHEN_ASKED_H_
