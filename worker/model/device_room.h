// What is said where a device has not the memory for a model's steps.
#ifndef RUBATO_WORKER_MODEL_DEVICE_ROOM_H_
#define RUBATO_WORKER_MODEL_DEVICE_ROOM_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tensor/device.h"
#include "worker/model/network.h"

namespace rubato {

// Of a device with room for `room` bytes; batches of n take bytes_for(n). Says how many would fit.
absl::Status DoesNotFit(const Device& device, int64_t room, Purpose purpose, int64_t batch,
                        absl::FunctionRef<int64_t(int64_t n)> bytes_for);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_DEVICE_ROOM_H_
