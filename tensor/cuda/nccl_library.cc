#include "tensor/cuda/nccl_library.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tensor/cuda/toolkit_library.h"

namespace rubato {
namespace {

// The first with ncclGetLastError. NCCL's own way to write versions since 2.9.
constexpr int kOldest = 21300, kAlltoAll = 22800;

std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Nccl>> Nccl::Open() {
  const std::string file = absl::StrCat("libnccl.so.", NCCL_MAJOR);
  RUBATO_ASSIGN_OR_RETURN(ToolkitLibrary library,
                          ToolkitLibrary::Open(file, absl::StrCat("NCCL, ", file, ",")));
  auto nccl = std::make_shared<Nccl>();
  const auto find = [&](auto* function, const char* name) { library.Find(function, name); };
  find(&nccl->GetVersion, "ncclGetVersion");
  find(&nccl->GetErrorString, "ncclGetErrorString");
  find(&nccl->GetLastError, "ncclGetLastError");
  find(&nccl->CommInitAll, "ncclCommInitAll");
  find(&nccl->CommDestroy, "ncclCommDestroy");
  find(&nccl->CommAbort, "ncclCommAbort");
  find(&nccl->CommGetAsyncError, "ncclCommGetAsyncError");
  find(&nccl->GroupStart, "ncclGroupStart");
  find(&nccl->GroupEnd, "ncclGroupEnd");
  find(&nccl->AllGather, "ncclAllGather");
  find(&nccl->Send, "ncclSend");
  find(&nccl->Recv, "ncclRecv");
  RUBATO_RETURN_IF_ERROR(library.status());
  int version = 0;
  RUBATO_RETURN_IF_ERROR(nccl->StatusOf(nccl->GetVersion(&version), "the question for a version"));
  nccl->version = VersionText(version);
  if (version < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat("found NCCL ", nccl->version, ", expected ",
                                                      VersionText(kOldest), " or later"));
  }
  if (version >= kAlltoAll) find(&nccl->AlltoAll, "ncclAlltoAll");
  RUBATO_RETURN_IF_ERROR(library.status());
  return nccl;
}

}  // namespace rubato
