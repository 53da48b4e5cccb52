// The levels of the instruction set for which kernels are compiled, and the choice among them at
// run time.
#ifndef RUBATO_COMMON_BASE_ISA_H_
#define RUBATO_COMMON_BASE_ISA_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Compiles one function for a level of the instruction set, whatever the rest of the build
// targets. Neither brings fused multiply-adds: with them the levels would round differently.
// AVX-512 works on 32 bytes at a time: what these loops do is bound by memory, which vectors of 64
// bytes use less well (on an EPYC of the fourth generation by 15 %).
#if defined(__x86_64__)
#if defined(__clang__)  // whose default that is
#define RUBATO_256_BITS
#else
#define RUBATO_256_BITS ",prefer-vector-width=256"
#endif
#define RUBATO_AVX2 __attribute__((target("avx2")))
#define RUBATO_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl" RUBATO_256_BITS)))
#else
#define RUBATO_AVX2
#define RUBATO_AVX512
#endif

// For the body of a kernel: it is compiled inside each function that calls it, for the level of
// that function.
#define RUBATO_ALWAYS_INLINE inline __attribute__((always_inline))

namespace rubato {

// A level of the instruction set for which kernels are compiled. Every kernel of the project
// gives equal bits at every level; only the speed differs.
enum class Isa { kGeneric, kAvx2, kAvx512 };

// The best level of this processor and operating system.
Isa DetectIsa();

// The level at which kernels run: DetectIsa() until SetIsa is called.
Isa CurrentIsa();

// Fixes the level for this process; the processor must have it (see IsaFromName). For the start
// of main and for tests: kernels already running finish at the old level.
void SetIsa(Isa isa);

// "auto" (DetectIsa()), "generic", "avx2" or "avx512". InvalidArgument for another name,
// FailedPrecondition if this processor lacks the level.
absl::StatusOr<Isa> IsaFromName(absl::string_view name);

// The name that IsaFromName takes.
absl::string_view IsaName(Isa isa);

namespace isa_internal {

template <typename Kernel, typename... Args>
RUBATO_AVX2 auto RunAvx2(Args... args) {
  return Kernel::Run(args...);
}

template <typename Kernel, typename... Args>
RUBATO_AVX512 auto RunAvx512(Args... args) {
  return Kernel::Run(args...);
}

}  // namespace isa_internal

// Runs a kernel at the current level. A kernel is written once:
//
//   struct Scale {
//     static RUBATO_ALWAYS_INLINE void Run(float factor, float* x, int64_t n) {
//       for (int64_t i = 0; i < n; ++i) x[i] *= factor;
//     }
//   };
//   Dispatch<Scale>(0.5f, x, n);
//
// and compiled once a level, because its body is inlined into a function that targets that
// level. For equal bits: everything that it calls is always inlined too, and sums have a fixed
// number of lanes and a fixed final tree. Arguments are passed by value: pointers and numbers.
template <typename Kernel, typename... Args>
auto Dispatch(Args... args) {
  switch (CurrentIsa()) {
    case Isa::kAvx512:
      return isa_internal::RunAvx512<Kernel>(args...);
    case Isa::kAvx2:
      return isa_internal::RunAvx2<Kernel>(args...);
    case Isa::kGeneric:
      break;
  }
  return Kernel::Run(args...);
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_ISA_H_
