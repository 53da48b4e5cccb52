// A program's kernels, run as the PTX that nvcc embedded in it, in the runtime of fake_cuda.h.
#ifndef RUBATO_TENSOR_CUDA_PTX_EMBEDDED_KERNELS_H_
#define RUBATO_TENSOR_CUDA_PTX_EMBEDDED_KERNELS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/ptx/decode.h"
#include "tensor/cuda/ptx/machine.h"
#include "tensor/cuda/ptx/text.h"

namespace rubato::ptx {

class EmbeddedKernels {
 public:
  // The PTX of all that was registered with the runtime. Errors as EmbeddedPtx's.
  static absl::StatusOr<std::vector<std::string>> Texts();
  // Errors as ReadModule's.
  static absl::StatusOr<std::unique_ptr<EmbeddedKernels>> Create(
      const std::vector<std::string>& texts);

  // Of which: name, and the kernel, which is decoded when it is first asked for. NotFound without.
  absl::StatusOr<const Kernel*> Find(const std::string& name);

  // For FakeCuda::prepares. What a kernel must not do is written to stderr, and is
  // cudaErrorIllegalAddress from then on. Must live as long as the runtime uses it.
  FakeWork Prepare(const FakeLaunch& launch);

  const std::vector<ModuleText>& modules() const { return modules_; }

  // How much of them was run.
  struct Summary {
    int64_t kernels = 0, kernels_run = 0;
    int64_t instructions = 0, instructions_run = 0;  // of the kernels that were run
    int64_t executed = 0;                            // as in Coverage
  };
  Summary Summarize() const;

 private:
  std::vector<ModuleText> modules_;
  std::map<std::string, Kernel> decoded_;
  GlobalAccesses accesses_;
  std::map<std::string, Coverage> coverage_;  // of those that were run
  int64_t launches_ = 0;
};

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_EMBEDDED_KERNELS_H_
