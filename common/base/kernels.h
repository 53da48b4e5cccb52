// Loops over flat spans of floats: element by element, so that any cut of the work gives the same
// bits. Each loop is written once and compiled for every instruction set (common/base/isa.h);
// without fused multiply-adds the bits are equal at every one of them.
#ifndef RUBATO_COMMON_BASE_KERNELS_H_
#define RUBATO_COMMON_BASE_KERNELS_H_

#include <cstddef>

// Before a loop whose iteration i touches only element i of its arrays: tells the compiler that it
// may vectorise even if arrays are one and the same, as in a[i] = a[i] + b[i].
#if defined(__clang__)
#define RUBATO_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define RUBATO_ELEMENTWISE _Pragma("GCC ivdep")
#endif

namespace rubato {

// out[i] = a[i] + b[i] for i in [0, n). `out` may be `a` or `b` itself; spans that overlap in any
// other way are not allowed. No alignment beyond that of a float is needed.
void Add(const float* a, const float* b, float* out, size_t n);

// The same for unaligned summands, such as those inside a received message: 4n bytes,
// little-endian. `out` may be `a`; it must not overlap `b`.
void Add(const float* a, const char* b, float* out, size_t n);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_KERNELS_H_
