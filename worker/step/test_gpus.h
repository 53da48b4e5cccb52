// GPUs that tests of the whole system have a worker take, by variables of its environment that are
// documented nowhere else:
//
//   RUBATO_TEST_GPU=emulated:4       the host has 4 emulated GPUs (emulated_device.h); "emulated":
//                                    one
//   RUBATO_TEST_GPU_FAILS=2:30:FILE  GPU 2 of them fails when it is waited for the 30th time: the
//                                    process ends, and FILE is there; while it is, the GPU cannot
//                                    be opened
#ifndef RUBATO_WORKER_STEP_TEST_GPUS_H_
#define RUBATO_WORKER_STEP_TEST_GPUS_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/product.h"
#include "tensor/device.h"

namespace rubato {

constexpr char kTestGpuVariable[] = "RUBATO_TEST_GPU";
constexpr char kTestGpuFailsVariable[] = "RUBATO_TEST_GPU_FAILS";

// How many there are, if GPUs are emulated.
std::optional<int> CountTestGpus();

absl::StatusOr<std::unique_ptr<Device>> OpenTestGpu(int index, ProductPrecision precision,
                                                    AttentionForm attention);

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_TEST_GPUS_H_
