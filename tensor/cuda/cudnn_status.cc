#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensor/cuda/cudnn_library.h"

namespace rubato {

std::string Cudnn::VersionText(size_t version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
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
