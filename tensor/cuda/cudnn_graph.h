// Graphs of cuDNN's operations, and plans that compute them.
#ifndef RUBATO_TENSOR_CUDA_CUDNN_GRAPH_H_
#define RUBATO_TENSOR_CUDA_CUDNN_GRAPH_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/cuda/cudnn_library.h"

namespace rubato {

// Descriptors, which live as long as this. What fails first stays `status`, and nothing is done
// after it.
class CudnnDescriptors {
 public:
  explicit CudnnDescriptors(const Cudnn* cudnn) : cudnn_(*cudnn) {}
  ~CudnnDescriptors();
  CudnnDescriptors(const CudnnDescriptors&) = delete;
  CudnnDescriptors& operator=(const CudnnDescriptors&) = delete;

  const absl::Status& status() const { return status_; }

  cudnnBackendDescriptor_t Make(cudnnBackendDescriptorType_t type);
  void Set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attribute,
           cudnnBackendAttributeType_t type, int64_t count, const void* values);
  template <typename T>
  void Set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attribute,
           cudnnBackendAttributeType_t type, const T& value) {
    Set(descriptor, attribute, type, 1, &value);
  }
  // Of `most` values at most; how many there are.
  int64_t Get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attribute,
              cudnnBackendAttributeType_t type, int64_t most, void* values);
  void Finalize(cudnnBackendDescriptor_t descriptor, const char* what);

 private:
  void Note(cudnnStatus_t status, const char* what);

  const Cudnn& cudnn_;
  absl::Status status_;
  std::vector<cudnnBackendDescriptor_t> made_;
};

// Tensors of four dimensions, and operations between them.
class CudnnGraph {
 public:
  using Tensor = cudnnBackendDescriptor_t;
  struct Layout {
    std::array<int64_t, 4> dimensions, strides;
  };

  explicit CudnnGraph(CudnnDescriptors* descriptors) : all_(*descriptors) {}

  // Of operands, in bytes: cuDNN may read and write so many at a time.
  static constexpr int64_t kOperandAlignment = 16;

  // In memory that a run names by `id`, at a multiple of kOperandAlignment.
  Tensor Operand(int64_t id, const Layout& layout, cudnnDataType_t type);
  // One float32 of the host's, read when a run is begun.
  Tensor Scalar(int64_t id);

  // What operations give, in no memory: types are theirs.
  Tensor Inner(const Layout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT);

  // y = mode(x, b) or, by t, one of them. Computed in `precision`. Each returns y.
  Tensor Pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y, Tensor b = nullptr,
                   Tensor t = nullptr, cudnnDataType_t precision = CUDNN_DATA_FLOAT);
  // The indices of y's values along `axis`.
  Tensor Indices(int64_t axis, Tensor x, Tensor y);
  // Of the last two dimensions.
  Tensor Multiply(Tensor a, Tensor b, Tensor c);
  Tensor Reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y);
  Tensor Reshape(Tensor x, Tensor y);
  // The operation `pass` of a convolution of planes, which has the same stride and padding on both
  // sides: one of x, y and the weights w is written, or is a gradient that is.
  void Convolve(cudnnBackendDescriptorType_t pass, int64_t stride, int64_t padding, Tensor x,
                Tensor w, Tensor y);

  const std::vector<cudnnBackendDescriptor_t>& operations() const { return operations_; }

 private:
  Tensor Make(int64_t id, const Layout& layout, cudnnDataType_t type,
              cudnnBackendAttributeName_t kind, int64_t alignment);
  cudnnBackendDescriptor_t MakePointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                                         int64_t axis);
  // An operation of these parts, of which those that are null are left out, and numbers.
  using Part = std::pair<cudnnBackendAttributeName_t, cudnnBackendDescriptor_t>;
  using Number = std::pair<cudnnBackendAttributeName_t, float>;
  void AddOperation(cudnnBackendDescriptorType_t type, const char* what,
                    std::initializer_list<Part> parts, std::initializer_list<Number> numbers = {});

  CudnnDescriptors& all_;
  int64_t inner_ = 1000;  // ids of inner tensors are from here on
  std::vector<cudnnBackendDescriptor_t> operations_;
};

// What plans are for: a handle's GPU or, without one, a GPU that is described
// (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).
struct CudnnTarget {
  int major = 0;  // of its compute capability
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;
};

// The calling thread's GPU, with a handle whose work goes to `stream`. FailedPrecondition, saying
// why, if there is none.
absl::StatusOr<CudnnTarget> OpenTarget(const Cudnn& cudnn, int major, cudaStream_t stream);

// An engine of the library's by number, and settings of it.
struct CudnnEngine {
  int64_t index;
  std::vector<std::pair<cudnnBackendKnobType_t, int64_t>> knobs;
};

// A plan for a graph, with what it is made of.
struct CudnnPlan {
  explicit CudnnPlan(const Cudnn* cudnn) : descriptors(cudnn) {}

  CudnnDescriptors descriptors;
  // The plan's own, and its engine's.
  std::vector<std::unique_ptr<CudnnDescriptors>> own;
  // Configurations of engines that it may be made of, the best first.
  std::vector<cudnnBackendDescriptor_t> choices;
  cudnnBackendDescriptor_t plan = nullptr;  // null until it is made
  int64_t workspace = 0;                    // bytes
  int64_t engine = 0;                       // its number, of the library's
};

// Fills in `plan`, whose descriptors the operations are among: the first that can be made of
// `preferred` and of what the library's heuristic gives, with no more workspace than `most` bytes
// and of an engine that says of itself that it is deterministic and adds up in float32.
absl::Status MakePlan(const Cudnn& cudnn, const CudnnTarget& target,
                      const std::vector<cudnnBackendDescriptor_t>& operations,
                      const std::vector<CudnnEngine>& preferred, int64_t most, CudnnPlan* plan);

// The same in two steps: of the second alone come kernels that are compiled, which takes a second.
// The first fills in `workspace`, as the best engine says it, which is taken if it can be made.
absl::Status ChoosePlan(const Cudnn& cudnn, const CudnnTarget& target,
                        const std::vector<cudnnBackendDescriptor_t>& operations, int64_t most,
                        CudnnPlan* plan);
absl::Status FinishPlan(const Cudnn& cudnn, const CudnnTarget& target, int64_t most,
                        CudnnPlan* plan);

// Gives the target's stream a plan's work, of these operands by name.
absl::Status RunPlan(const Cudnn& cudnn, const CudnnTarget& target, const CudnnPlan& plan,
                     const std::map<int64_t, const void*>& operands, const void* workspace,
                     const char* what);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDNN_GRAPH_H_
