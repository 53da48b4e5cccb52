#include "common/base/isa.h"

#include <atomic>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rubato {
namespace {

// Written at start-up and by tests, read by every kernel call: a relaxed load costs nothing.
std::atomic<Isa>& Current() {
  static std::atomic<Isa> current(DetectIsa());
  return current;
}

}  // namespace

Isa DetectIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) return Isa::kAvx2;
#endif
  return Isa::kGeneric;
}

Isa CurrentIsa() { return Current().load(std::memory_order_relaxed); }

void SetIsa(Isa isa) {
  RUBATO_CHECK(isa <= DetectIsa());
  Current().store(isa, std::memory_order_relaxed);
}

absl::StatusOr<Isa> IsaFromName(absl::string_view name) {
  if (name == "auto") return DetectIsa();
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (name != IsaName(isa)) continue;
    if (isa > DetectIsa()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "this processor lacks ", name, "; the best that it has is ", IsaName(DetectIsa())));
    }
    return isa;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown instruction set '", name, "'; expected auto, generic, avx2 or avx512"));
}

absl::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace rubato
