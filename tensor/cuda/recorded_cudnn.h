// cuDNN, with each call noted, and what its graphs of operations compute.
#ifndef RUBATO_TENSOR_CUDA_RECORDED_CUDNN_H_
#define RUBATO_TENSOR_CUDA_RECORDED_CUDNN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/cuda/cudnn_library.h"

namespace rubato {

// All goes on to the library that is there, but for runs, which need a GPU, and the call that is to
// fail. One at a time.
class RecordedCudnn {
 public:
  explicit RecordedCudnn(const Cudnn& real);
  ~RecordedCudnn();

  // Valid as long as this.
  std::shared_ptr<const Cudnn> functions() const { return functions_; }

  int64_t calls = 0;
  int64_t fails_at = -1;  // the call that fails, counted from 0
  cudnnStatus_t error = CUDNN_STATUS_INTERNAL_ERROR;
  cudnnStatus_t run = CUDNN_STATUS_SUCCESS;  // what a run answers
  // What all engines say of themselves, in place of what they do.
  std::optional<cudnnBackendNumericalNote_t> note;
  int64_t live = 0;    // descriptors that are not destroyed
  int64_t plans = 0;   // that were made
  std::string failed;  // the function that did
  // Of the last run, by name of operand; scalars as they were then.
  std::map<int64_t, const void*> operands;
  const void* workspace = nullptr;

  // From now on graphs are counted anew.
  void ForgetGraphs() { graphs_.clear(); }
  // Names of the operands of the `which`-th graph that was made, in order.
  std::vector<int64_t> OperandsOf(int which) const;
  // Does the graph's operations one after the other, in float64 but for what operands are, which
  // lie where `addresses` says.
  void Compute(int which, const std::map<int64_t, const void*>& addresses) const;

 private:
  friend struct Recording;
  struct Descriptor {
    cudnnBackendDescriptorType_t type;
    std::map<int, std::vector<char>> attributes;
  };

  const Descriptor& Graph(int which) const;
  bool IsScalar(int64_t id) const;
  std::vector<cudnnBackendDescriptor_t> OperationsOf(int which) const;

  const Cudnn real_;
  std::shared_ptr<Cudnn> functions_;
  std::map<cudnnBackendDescriptor_t, Descriptor> descriptors_;
  std::vector<cudnnBackendDescriptor_t> graphs_;
  std::map<int64_t, float> scalars_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_RECORDED_CUDNN_H_
