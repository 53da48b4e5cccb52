// Published figures of GPUs, for estimates: none of them was measured here.
#ifndef RUBATO_TOOLS_BENCH_PUBLISHED_H_
#define RUBATO_TOOLS_BENCH_PUBLISHED_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace rubato {

struct PublishedGpu {
  const char* name;
  const char* description;
  int architecture;  // 90: sm_90, by which kernel_table.txt has it
  int64_t processors;
  // A second: of the GPU's memory, and of the host's bus in one direction.
  double memory_bytes, bus_bytes;
  // Operations a second, dense: products of half floats, of TF32, and float32's without tensor
  // cores.
  double half, tf32, float32;
};

// "h100", "h200", "a100". InvalidArgument, saying which there are.
absl::StatusOr<PublishedGpu> FindPublishedGpu(const std::string& name);

// From a kernel's end to the next one's begin, in a recording: seconds. A. Gray, "Getting started
// with CUDA graphs" (NVIDIA's technical blog, 2019): 20 kernels of 2.9 us take 3.4 us each in a
// graph. That was a V100.
constexpr double kLaunchSeconds = 0.5e-6;

// How long a load from the GPU's memory takes under load: seconds. A guess: idle ones take 478.8
// cycles of an H100 (Luo et al., "Benchmarking and dissecting the Nvidia Hopper GPU architecture
// via microbenchmarking", 2024, table IV), some 300 ns, and queues are longer when all is busy.
constexpr double kLoadSeconds = 650e-9;

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_PUBLISHED_H_
