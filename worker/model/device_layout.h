// Where the memory of a model's steps on a device lies (worker/model/device_step.h).
#ifndef RUBATO_WORKER_MODEL_DEVICE_LAYOUT_H_
#define RUBATO_WORKER_MODEL_DEVICE_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"
#include "worker/model/loss.h"
#include "worker/model/network.h"

namespace rubato {

// Of the host's values beside a device that computes in `dtype`.
inline DType HostTypeOf(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

// What a device keeps for the sums of gradients.
struct Keeping {
  int keeps = 0;      // so many gradients at a time
  int64_t spare = 0;  // values behind parameters and gradients that an exchange may read and write
};

// What is needed of the device and of the host, and where it lies there, in bytes from the begin of
// either's memory.
struct DeviceLayout {
  int64_t parameters, factors, features, converted, targets, weights, scale, keys, rows, sums,
      arena;
  std::vector<int64_t> gradients, factor_begins;
  int64_t device_bytes;
  struct {
    int64_t parameters, gradient, features, targets, weights, scale, keys, sums, flags;
    int64_t bytes;
  } host;
  // Values.
  int64_t n_features, n_targets, n_weights, n_rows, n_factors;
  int64_t n_flags;  // behind the device's sums
  DType target;
};

// For batches of up to max_batch examples; arguments as DeviceStep::Create's.
DeviceLayout LayOut(const Graph& graph, const MemoryPlan& plan, const Objective& objective,
                    int64_t max_batch, DType dtype, Purpose purpose, const Keeping& keeping);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_DEVICE_LAYOUT_H_
