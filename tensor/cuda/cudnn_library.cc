#include "tensor/cuda/cudnn_library.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tensor/cuda/toolkit_library.h"

namespace rubato {
namespace {

// Whose names of attributes, and graphs of attention, are those of cudnn_attention.cc.
constexpr size_t kOldest = 91100;

}  // namespace

absl::StatusOr<std::shared_ptr<const Cudnn>> Cudnn::Open() {
  const std::string file = absl::StrCat("libcudnn.so.", CUDNN_MAJOR);
  RUBATO_ASSIGN_OR_RETURN(ToolkitLibrary library,
                          ToolkitLibrary::Open(file, absl::StrCat("cuDNN, ", file, ",")));
  auto cudnn = std::make_shared<Cudnn>();
  const auto find = [&](auto* function, const char* name) { library.Find(function, name); };
  find(&cudnn->Create, "cudnnCreate");
  find(&cudnn->Destroy, "cudnnDestroy");
  find(&cudnn->SetStream, "cudnnSetStream");
  find(&cudnn->GetVersion, "cudnnGetVersion");
  find(&cudnn->GetErrorString, "cudnnGetErrorString");
  find(&cudnn->GetLastErrorString, "cudnnGetLastErrorString");
  find(&cudnn->CreateDescriptor, "cudnnBackendCreateDescriptor");
  find(&cudnn->DestroyDescriptor, "cudnnBackendDestroyDescriptor");
  find(&cudnn->SetAttribute, "cudnnBackendSetAttribute");
  find(&cudnn->GetAttribute, "cudnnBackendGetAttribute");
  find(&cudnn->Finalize, "cudnnBackendFinalize");
  find(&cudnn->Execute, "cudnnBackendExecute");
  RUBATO_RETURN_IF_ERROR(library.status());
  if (cudnn->GetVersion() < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "found cuDNN ", cudnn->Version(), ", expected ", VersionText(kOldest), " or later"));
  }
  return cudnn;
}

}  // namespace rubato
