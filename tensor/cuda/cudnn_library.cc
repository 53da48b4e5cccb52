#include "tensor/cuda/cudnn_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rubato {
namespace {

// Whose names of attributes, and graphs of attention, are those of cudnn_attention.cc.
constexpr size_t kOldest = 91100;

std::string VersionText(size_t version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Cudnn>> Cudnn::Open() {
  const std::string name = absl::StrCat("libcudnn.so.", CUDNN_MAJOR);
  // On the loader's own path, or where it lay beside the compiler.
  const std::string beside = absl::StrCat(RUBATO_CUDA_FOLDER "/lib64/", name);
  void* library = nullptr;
  for (const std::string& path : {name, beside}) {
    if (library == nullptr) library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuDNN, ", name,
                     ", was found neither on the loader's path (LD_LIBRARY_PATH) nor as ", beside));
  }
  auto cudnn = std::make_shared<Cudnn>();
  std::string missing;
  const auto find = [&](auto* function, const char* symbol) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, symbol));
    if (*function == nullptr) missing = symbol;
  };
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
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(name, " has no function ", missing));
  }
  if (cudnn->GetVersion() < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "found cuDNN ", cudnn->Version(), ", expected ", VersionText(kOldest), " or later"));
  }
  return cudnn;
}

std::string Cudnn::Version() const { return VersionText(GetVersion()); }

absl::Status Cudnn::StatusOf(cudnnStatus_t status, const char* what) const {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char reason[512] = "";
  GetLastErrorString(reason, sizeof reason);
  absl::string_view first = reason;
  first = first.substr(0, first.find('\n'));
  const bool is_refusal = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
  return absl::Status(is_refusal ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInternal,
                      absl::StrCat(what, " failed: ", GetErrorString(status),
                                   first.empty() ? "" : ", ", first, " (cuDNN)"));
}

}  // namespace rubato
