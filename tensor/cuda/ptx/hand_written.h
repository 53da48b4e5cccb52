// Kernels that tests write by hand.
#ifndef RUBATO_TENSOR_CUDA_PTX_HAND_WRITTEN_H_
#define RUBATO_TENSOR_CUDA_PTX_HAND_WRITTEN_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "tensor/cuda/ptx/machine.h"
#include "tensor/cuda/ptx/text.h"

namespace rubato::ptx {

// A kernel `k` of one parameter, an address, that is in %rd0 when the body begins, as the thread's
// index is in %r0. The body's first line is 17.
inline std::string KernelOf(absl::string_view body) {
  return R"(
.version 9.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 shared[];

.visible .entry k(.param .u64 k_memory)
.maxntid 256, 1, 1
{
.reg .pred %p<8>;
.reg .b16 %rs<8>;
.reg .b32 %r<16>;
.reg .f32 %f<8>;
.reg .b64 %rd<16>;
.reg .f64 %fd<8>;
ld.param.u64 %rd0, [k_memory]; mov.u32 %r0, %tid.x;
)" + std::string(body) +
         "\n}\n";
}

inline absl::StatusOr<Kernel> KernelIn(absl::string_view text) {
  RUBATO_ASSIGN_OR_RETURN(const ModuleText module, ReadModule(text));
  if (module.kernels.size() != 1) return absl::InvalidArgumentError("not one kernel");
  return Decode(module.kernels[0], module.shared);
}

// Runs a body on `memory`, whose address is the parameter.
template <typename T>
absl::Status RunBody(absl::string_view body, std::vector<T>* memory, int threads = 32,
                     int64_t blocks = 1, bool backwards = false) {
  RUBATO_ASSIGN_OR_RETURN(const Kernel kernel, KernelIn(KernelOf(body)));
  Launch launch;
  launch.blocks = blocks;
  launch.threads = threads;
  launch.shared_bytes = 16 * threads;
  launch.backwards = backwards;
  const auto begin = reinterpret_cast<uintptr_t>(memory->data());
  launch.parameters.assign(reinterpret_cast<const char*>(&begin), sizeof begin);
  GlobalAccesses accesses;
  return Run(kernel, launch, GlobalMemory({{begin, begin + memory->size() * sizeof(T)}}),
             &accesses);
}

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_HAND_WRITTEN_H_
