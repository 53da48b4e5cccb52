// What a kernel has to move, told by each beside its code as Moves() and held by traffic_test to
// what it touches.
#ifndef RUBATO_TENSOR_CUDA_TRAFFIC_H_
#define RUBATO_TENSOR_CUDA_TRAFFIC_H_

#include <cstdint>

namespace rubato {

// Bytes of the GPU's memory. What several threads read counts once, and what a kernel has written
// before it reads it counts as written: caches may give it. Where the values decide what is read,
// the most that it may be.
struct Traffic {
  int64_t read = 0, written = 0;
  int64_t load = 0;            // bytes of most of the loads, each
  double multiplications = 0;  // of a product of matrices
};

template <typename T>
constexpr int64_t SizeInBytes() {
  return static_cast<int64_t>(sizeof(T));
}

// Of one side of a window's plane: how many of its values some output sees, and how many pairs of
// an output and a place of its window lie inside.
struct SideSeen {
  int64_t values = 0, pairs = 0;
};
inline SideSeen SeenOfSide(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                           int64_t out) {
  SideSeen seen;
  for (int64_t i = 0; i < size; ++i) {
    int64_t by = 0;
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t from = i + padding - k;
      if (from >= 0 && from % stride == 0 && from / stride < out) ++by;
    }
    seen.pairs += by;
    if (by > 0) ++seen.values;
  }
  return seen;
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_TRAFFIC_H_
