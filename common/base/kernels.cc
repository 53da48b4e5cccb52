#include "common/base/kernels.h"

#include "common/base/isa.h"

namespace rubato {
namespace {

struct AddFloats {
  static RUBATO_ALWAYS_INLINE void Run(const float* a, const float* b, float* out, size_t n) {
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
  }
};

struct AddBytes {
  static RUBATO_ALWAYS_INLINE void Run(const float* a, const char* b, float* out, size_t n) {
    // Read from any address, which costs these processors nothing.
    struct __attribute__((packed, may_alias)) Unaligned {
      float value;
    };
    const auto* floats = reinterpret_cast<const Unaligned*>(b);
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) out[i] = a[i] + floats[i].value;
  }
};

}  // namespace

void Add(const float* a, const float* b, float* out, size_t n) {
  Dispatch<AddFloats>(a, b, out, n);
}

void Add(const float* a, const char* b, float* out, size_t n) { Dispatch<AddBytes>(a, b, out, n); }

}  // namespace rubato
