#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensor/cuda/nccl_library.h"

namespace rubato {

absl::Status Nccl::StatusOf(ncclResult_t result, const std::string& what) const {
  if (result == ncclSuccess) return absl::OkStatus();
  const char* const last = GetLastError(nullptr);  // of this or of an earlier call
  absl::string_view reason = last == nullptr ? "" : last;
  reason = reason.substr(0, reason.find('\n'));
  return absl::InternalError(absl::StrCat(what, " failed: ", GetErrorString(result),
                                          reason.empty() ? "" : ", ", reason, " (NCCL)"));
}

}  // namespace rubato
