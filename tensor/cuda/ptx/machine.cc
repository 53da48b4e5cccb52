#include "tensor/cuda/ptx/machine.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tensor/cuda/ptx/warp.h"

namespace rubato::ptx {
namespace {

using Warps = std::vector<std::unique_ptr<Warp>>;

absl::Status Internal(const std::string& what) { return absl::InternalError(what); }

// All warps, up to a barrier or to their end. True at the end.
absl::StatusOr<bool> RunPhase(Warps& warps) {
  int at_barrier = 0;
  bool has_lost = false;
  for (const std::unique_ptr<Warp>& warp : warps) {
    const Warp::Stop stop = warp->Run();
    if (stop == Warp::Stop::kFault) return Internal(warp->fault());
    at_barrier += stop == Warp::Stop::kBarrier;
    has_lost = has_lost || warp->has_lost();
  }
  if (at_barrier == 0) return true;
  // CUDA C++ Programming Guide, "Synchronization Functions": all threads of the block, or none.
  if (has_lost) return Internal("a barrier, where some threads of the block have left before");
  return false;
}

}  // namespace

absl::Status Run(const Kernel& kernel, const Launch& launch, const GlobalMemory& memory,
                 GlobalAccesses* accesses, Coverage* coverage) {
  const std::string name = absl::StrCat("kernel ", kernel.name);
  if (launch.threads < 1 || (kernel.most_threads > 0 && launch.threads > kernel.most_threads)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a block of ", launch.threads,
                                                   " threads, of at most ", kernel.most_threads));
  }
  if (static_cast<int64_t>(launch.parameters.size()) != kernel.parameter_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", launch.parameters.size(),
                                                   " bytes of parameters, expected ",
                                                   kernel.parameter_bytes));
  }
  SharedMemory shared(launch.shared_bytes);
  if (accesses != nullptr) accesses->BeginLaunch();
  Warps warps;
  for (int first = 0; first < launch.threads; first += kLanes) {
    warps.push_back(std::make_unique<Warp>(&kernel, &launch.parameters, &memory, accesses, &shared,
                                           first, launch.threads));
  }
  if (launch.backwards) std::reverse(warps.begin(), warps.end());
  for (int64_t i = 0; i < launch.blocks; ++i) {
    const int64_t block = launch.backwards ? launch.blocks - 1 - i : i;
    shared.BeginBlock();
    if (accesses != nullptr) accesses->BeginBlock();
    for (const std::unique_ptr<Warp>& warp : warps) warp->Begin(block, launch.blocks);
    for (;;) {
      const absl::StatusOr<bool> is_done = RunPhase(warps);
      if (!is_done.ok()) {
        return Internal(absl::StrCat(name, ", block ", block, ", ", is_done.status().message()));
      }
      if (*is_done) break;
      shared.OnBarrier();
      if (accesses != nullptr) accesses->OnBarrier();
    }
  }
  if (coverage == nullptr) return absl::OkStatus();
  coverage->reached.resize(kernel.instructions.size());
  for (const std::unique_ptr<Warp>& warp : warps) {
    coverage->executed += warp->executed();
    for (size_t i = 0; i < kernel.instructions.size(); ++i) {
      coverage->reached[i] |= warp->reached()[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace rubato::ptx
