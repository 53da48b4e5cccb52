// cuDNN's graph interface (cudnn_graph.h, the "backend API"). The library is opened when a GPU is,
// as cuBLAS is: a program that computes on the CPU, or without it, needs none.
#ifndef RUBATO_TENSOR_CUDA_CUDNN_LIBRARY_H_
#define RUBATO_TENSOR_CUDA_CUDNN_LIBRARY_H_

#include <cudnn_graph.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rubato {

// The library's functions.
struct Cudnn {
  // FailedPrecondition if it cannot be opened, saying where it was sought, or is too old.
  static absl::StatusOr<std::shared_ptr<const Cudnn>> Open();

  // "9.19.0", of what was opened, which may be another than what was built with.
  std::string Version() const;
  static std::string VersionText(size_t version);
  // What a call of the calling thread's said; with the library's own reason, if it gave one. No
  // support is Unimplemented, all else Internal.
  absl::Status StatusOf(cudnnStatus_t status, const char* what) const;

  decltype(&cudnnCreate) Create = nullptr;
  decltype(&cudnnDestroy) Destroy = nullptr;
  decltype(&cudnnSetStream) SetStream = nullptr;
  decltype(&cudnnGetVersion) GetVersion = nullptr;
  decltype(&cudnnGetErrorString) GetErrorString = nullptr;
  decltype(&cudnnGetLastErrorString) GetLastErrorString = nullptr;
  decltype(&cudnnBackendCreateDescriptor) CreateDescriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) DestroyDescriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) SetAttribute = nullptr;
  decltype(&cudnnBackendGetAttribute) GetAttribute = nullptr;
  decltype(&cudnnBackendFinalize) Finalize = nullptr;
  decltype(&cudnnBackendExecute) Execute = nullptr;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDNN_LIBRARY_H_
