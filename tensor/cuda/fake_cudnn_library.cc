#include "tensor/cuda/fake_cudnn_library.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tensor/cuda/cudnn_attention.h"
#include "tensor/cuda/cudnn_convolution.h"
#include "tensor/cuda/cudnn_library.h"
#include "tensor/cuda/cudnn_plans.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/fake_cudnn.h"

// A handle's stream.
struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace rubato {
namespace {

constexpr int64_t kEngines = 2, kWorkspaceBytes = 512;

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  int64_t engine = -1;
};

std::set<Descriptor*>& TheDescriptors() {
  static auto* const descriptors = new std::set<Descriptor*>;
  return *descriptors;
}

// What every call begins with.
cudnnStatus_t Enter(const char* name) {
  FakeCudnnLibrary& fake = TheFakeCudnnLibrary();
  fake.calls.push_back(name);
  const bool fails = static_cast<int64_t>(fake.calls.size()) - 1 == fake.fails_at;
  return fails ? fake.error : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Violation(const std::string& what) {
  TheFakeCudnnLibrary().violations.push_back(what);
  return CUDNN_STATUS_BAD_PARAM;
}

// What a call names, or null.
Descriptor* Find(const void* descriptor) {
  auto* const found = static_cast<Descriptor*>(const_cast<void*>(descriptor));
  return TheDescriptors().count(found) > 0 ? found : nullptr;
}

cudnnStatus_t Create(cudnnHandle_t* handle) {
  const cudnnStatus_t entered = Enter("cudnnCreate");
  if (entered != CUDNN_STATUS_SUCCESS) return entered;
  *handle = new cudnnContext;
  ++TheFakeCudnnLibrary().live;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t Destroy(cudnnHandle_t handle) {
  const cudnnStatus_t entered = Enter("cudnnDestroy");
  if (entered != CUDNN_STATUS_SUCCESS) return entered;
  delete handle;
  --TheFakeCudnnLibrary().live;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t SetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const cudnnStatus_t entered = Enter("cudnnSetStream");
  if (entered == CUDNN_STATUS_SUCCESS) handle->stream = stream;
  return entered;
}
size_t GetVersion() { return 91900; }
const char* GetErrorString(cudnnStatus_t status) {
  static char text[32];
  std::snprintf(text, sizeof text, "status %d", static_cast<int>(status));
  return text;
}
void GetLastErrorString(char* text, size_t size) { std::snprintf(text, size, "why\nand more"); }

cudnnStatus_t CreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  const cudnnStatus_t entered = Enter("cudnnBackendCreateDescriptor");
  if (entered != CUDNN_STATUS_SUCCESS) return entered;
  auto* const descriptor = new Descriptor{type};
  TheDescriptors().insert(descriptor);
  ++TheFakeCudnnLibrary().live;
  *made = descriptor;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t DestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const cudnnStatus_t entered = Enter("cudnnBackendDestroyDescriptor");
  if (entered != CUDNN_STATUS_SUCCESS) return entered;
  Descriptor* const found = Find(descriptor);
  if (found == nullptr) return Violation("a descriptor is destroyed that is not there");
  TheDescriptors().erase(found);
  delete found;
  --TheFakeCudnnLibrary().live;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetAttribute(cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                           int64_t count, const void* values) {
  const cudnnStatus_t entered = Enter("cudnnBackendSetAttribute");
  if (entered != CUDNN_STATUS_SUCCESS) return entered;
  Descriptor* const found = Find(descriptor);
  if (found == nullptr || found->is_final) {
    return Violation(absl::StrCat("attribute ", attribute, " of what is not there, or final"));
  }
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
  for (int64_t i = 0; i < count; ++i) {
    const Descriptor* const part = Find(static_cast<const cudnnBackendDescriptor_t*>(values)[i]);
    if (part == nullptr || !part->is_final) {
      return Violation(absl::StrCat("attribute ", attribute, " is not there, or not final"));
    }
    found->engine = std::max(found->engine, part->engine);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Finalize(cudnnBackendDescriptor_t descriptor) {
  const cudnnStatus_t entered = Enter("cudnnBackendFinalize");
  if (entered != CUDNN_STATUS_SUCCESS) return entered;
  Descriptor* const found = Find(descriptor);
  if (found == nullptr || found->is_final) return Violation("what is not there, or final, is made");
  found->is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t Answer(T value, int64_t* count, void* values) {
  *count = 1;
  std::memcpy(values, &value, sizeof value);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetAttribute(cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t,
                           int64_t most, int64_t* count, void* values) {
  const cudnnStatus_t entered = Enter("cudnnBackendGetAttribute");
  if (entered != CUDNN_STATUS_SUCCESS) return entered;
  const Descriptor* const found = Find(descriptor);
  if (found == nullptr || !found->is_final) {
    return Violation(absl::StrCat("attribute ", attribute, " of what is not there, or not final"));
  }
  // What is handed over is filled in.
  const auto fill = [&](int64_t i, int64_t engine) {
    Descriptor* const part = Find(static_cast<const cudnnBackendDescriptor_t*>(values)[i]);
    RUBATO_CHECK(part != nullptr);
    part->is_final = true;
    part->engine = engine;
  };
  switch (attribute) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      *count = kEngines;
      for (int64_t i = 0; i < std::min(most, kEngines); ++i) fill(i, i);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      *count = 1;
      fill(0, found->engine);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return Answer<int64_t>(found->engine, count, values);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return Answer(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, count, values);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return Answer<int64_t>(kWorkspaceBytes, count, values);
    default:
      return Violation(absl::StrCat("attribute ", attribute, " is asked for"));
  }
}

cudnnStatus_t Execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t pack) {
  const cudnnStatus_t entered = Enter("cudnnBackendExecute");
  if (entered != CUDNN_STATUS_SUCCESS) return entered;
  for (const Descriptor* const part : {Find(plan), Find(pack)}) {
    if (part == nullptr || !part->is_final) return Violation("a run of what is not final");
  }
  TheFakeCudnnLibrary().runs.push_back(Find(plan)->engine);
  GiveToFakeStream(handle->stream, [] { return cudaSuccess; });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

FakeCudnnLibrary& TheFakeCudnnLibrary() {
  static FakeCudnnLibrary fake;
  return fake;
}

absl::StatusOr<std::shared_ptr<const Cudnn>> Cudnn::Open() {
  auto cudnn = std::make_shared<Cudnn>();
  cudnn->Create = &rubato::Create;
  cudnn->Destroy = &rubato::Destroy;
  cudnn->SetStream = &rubato::SetStream;
  cudnn->GetVersion = &rubato::GetVersion;
  cudnn->GetErrorString = &rubato::GetErrorString;
  cudnn->GetLastErrorString = &rubato::GetLastErrorString;
  cudnn->CreateDescriptor = &rubato::CreateDescriptor;
  cudnn->DestroyDescriptor = &rubato::DestroyDescriptor;
  cudnn->SetAttribute = &rubato::SetAttribute;
  cudnn->GetAttribute = &rubato::GetAttribute;
  cudnn->Finalize = &rubato::Finalize;
  cudnn->Execute = &rubato::Execute;
  return cudnn;
}

void UseFakeCudnnLibrary() {
  TheFakeCudnnOpeners().attention = [](int major, cudaStream_t stream) {
    return absl::StatusOr<std::unique_ptr<AttentionLibrary>>(
        OpenOnCudnn<CudnnAttention>(major, stream));
  };
  TheFakeCudnnOpeners().convolution = [](int major, cudaStream_t stream) {
    return absl::StatusOr<std::unique_ptr<ConvolutionLibrary>>(
        OpenOnCudnn<CudnnConvolution>(major, stream));
  };
}

}  // namespace rubato
