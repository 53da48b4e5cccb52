// Why a process that asks for GPUs has none: one sentence for its user.
#ifndef RUBATO_TENSOR_CUDA_NO_GPU_H_
#define RUBATO_TENSOR_CUDA_NO_GPU_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rubato {

// What CUDA answered.
struct NoGpu {
  enum Kind {
    kNone,      // there is none
    kNoDriver,  // the driver is older than the build, or none
    kOther,
  };
  absl::string_view error = "";  // to the question how many there are; empty: none is visible
  Kind kind = kNone;             // of the error
  int driver = 0;                // the CUDA version that the driver is for, 12040 for 12.4; 0: no
                                 // driver
  absl::string_view driver_error = "";  // to the question for it
  int build = 0;                        // the CUDA version of this build, likewise
};

// Begins with "there is no GPU" only where that is so: there may be one that an older driver
// serves, or one that does not work.
inline std::string WhyNoGpu(const NoGpu& found) {
  const auto version = [](int number) {
    return absl::StrCat(number / 1000, ".", number % 1000 / 10);
  };
  // All drivers of one major version serve its builds.
  const std::string wanted = version(found.build / 1000 * 1000);
  if (found.kind == NoGpu::kNoDriver && found.driver > 0) {
    return absl::StrCat("the GPU's driver is too old: it is for CUDA ", version(found.driver),
                        ", and this build wants one for CUDA ", wanted, " or later");
  }
  const std::string driver =
      !found.driver_error.empty()
          ? absl::StrCat("the driver's version is not known: ", found.driver_error)
      : found.driver == 0 ? "no driver is installed"
                          : absl::StrCat("the driver is for CUDA ", version(found.driver));
  const bool is_none =
      found.kind == NoGpu::kNone || (found.kind == NoGpu::kNoDriver && found.driver_error.empty());
  return absl::StrCat(is_none ? "there is no GPU: " : "the GPUs cannot be used: ",
                      found.error.empty() ? "none is visible" : found.error, " (", driver,
                      "; this build wants one for CUDA ", wanted, " or later)");
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_NO_GPU_H_
