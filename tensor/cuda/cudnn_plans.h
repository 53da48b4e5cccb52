// The plans that a kind of work has on one GPU, by what is asked for: made when they are first
// asked for, and kept.
#ifndef RUBATO_TENSOR_CUDA_CUDNN_PLANS_H_
#define RUBATO_TENSOR_CUDA_CUDNN_PLANS_H_

#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cudnn_graph.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {

// Plans: what is made for a number of examples of a Kind, with the bytes of `workspace` that a user
// provides, and the most() that any plan of it takes of them.
template <typename Kind, typename Plans>
class CudnnPlans {
 public:
  // The target's handle, if it has one, becomes this object's.
  CudnnPlans(std::shared_ptr<const Cudnn> cudnn, const CudnnTarget& target)
      : cudnn_(std::move(cudnn)), target_(target) {}
  ~CudnnPlans() {
    plans_.clear();
    if (target_.handle != nullptr) cudnn_->Destroy(target_.handle);
  }
  CudnnPlans(const CudnnPlans&) = delete;

  const Cudnn& cudnn() const { return *cudnn_; }
  const CudnnTarget& target() const { return target_; }

  // "cuDNN 9.19.0", if it has taken any kind so far, else empty.
  std::string used() const {
    for (const auto& [kind, is_taken] : takes_) {
      if (is_taken) return absl::StrCat("cuDNN ", cudnn_->Version());
    }
    return "";
  }

  // What people are told: what is asked for, what it is done as if it is refused, and what leaves
  // the library out.
  struct Words {
    std::string what;
    const char* instead;
    const char* leaves_out;
  };
  using Make = absl::FunctionRef<absl::StatusOr<std::unique_ptr<Plans>>(int64_t most)>;
  // The workspace for n of that kind, or -1 if it is refused, which is told once, with the reason,
  // in a warning; a batch that is refused after another was taken ends the process. `make` makes
  // the plans, with no more than `most` bytes for any.
  int64_t Workspace(const Kind& kind, int64_t n, Make make, absl::FunctionRef<Words()> words) {
    const auto [takes, is_new] = takes_.try_emplace(kind, true);
    if (!takes->second) return -1;
    std::unique_ptr<Plans>& plans = plans_[{kind, n}];
    if (plans != nullptr) return plans->workspace;
    // Memory that was planned for more examples suffices for fewer.
    int64_t most = std::numeric_limits<int64_t>::max();
    for (const auto& [key, other] : plans_) {
      if (key.first != kind || key.second <= n || other == nullptr) continue;
      most = other->most();
      break;
    }
    absl::StatusOr<std::unique_ptr<Plans>> made = make(most);
    if (made.ok()) {
      plans = *std::move(made);
      return plans->workspace;
    }
    const Words told = words();
    const std::string why(made.status().message());
    if (!is_new) {
      EndProcess(absl::InternalError(
          absl::StrCat(told.what, ": cuDNN took another batch of it, but of this one ", why, "; ",
                       told.leaves_out, " leaves it out")));
    }
    takes->second = false;
    plans_.erase({kind, n});
    std::fprintf(stderr, "warning: on %s: %s is %s: %s\n", UsedGpu().c_str(), told.what.c_str(),
                 told.instead, why.c_str());
    return -1;
  }
  // For which there is a Workspace.
  Plans& At(const Kind& kind, int64_t n) { return *plans_.at({kind, n}); }

 private:
  const std::shared_ptr<const Cudnn> cudnn_;
  const CudnnTarget target_;
  std::map<Kind, bool> takes_;  // of what has been asked for, whether it is taken
  std::map<std::pair<Kind, int64_t>, std::unique_ptr<Plans>> plans_;  // by kind and batch
};

// A library of that kind of work, on the calling thread's GPU. Errors as Cudnn::Open and
// OpenTarget.
template <typename Library>
absl::StatusOr<std::unique_ptr<Library>> OpenOnCudnn(int major, cudaStream_t stream) {
  RUBATO_ASSIGN_OR_RETURN(std::shared_ptr<const Cudnn> cudnn, Cudnn::Open());
  RUBATO_ASSIGN_OR_RETURN(const CudnnTarget target, OpenTarget(*cudnn, major, stream));
  return std::make_unique<Library>(std::move(cudnn), target);
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDNN_PLANS_H_
