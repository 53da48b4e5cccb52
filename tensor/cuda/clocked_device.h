// A GPU whose work is held to what orders it.
#ifndef RUBATO_TENSOR_CUDA_CLOCKED_DEVICE_H_
#define RUBATO_TENSOR_CUDA_CLOCKED_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace rubato {

// What a test has the device leave out, as if the program had not asked for it.
struct LeftOut {
  int order = -1;                             // the Order that does nothing, counted from 0
  bool signals = false, synchronize = false;  // waits that return at once
};

// Computes on the CPU, in the order of the calls, and keeps vector clocks (Fidge 1988, Mattern
// 1989) of the host, of the streams and of what is recorded in them. Each access to the device's
// memory and to pinned memory, by a kernel, a copy or the host, is a race unless all accesses
// before it, of which one of the two writes, happen before it by CUDA's rules alone:
//   work of a stream comes after what that stream had before, and after what the host did before
//     it gave it;
//   Order, as an event recorded in one stream and awaited by another;
//   a signal, which the host waits for, and Synchronize;
//   a recording comes after what kCompute had before, and before what it has next; what is in it is
//     ordered as it was recorded, and not with other work of the streams in which it was.
// The library of products has no algorithm: they are kernels.
//
// What AllocatePinned has given can be pinned: for a test it is memory that others own.
//
// `races` gets a sentence for each pair of actors that race, once; `orders` each Order ("waiting
// after other"). Both must outlive the device. The host may access pinned memory only from the
// calling thread.
std::unique_ptr<Device> MakeClockedDevice(const LeftOut& left_out, std::vector<std::string>* races,
                                          std::vector<std::string>* orders);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CLOCKED_DEVICE_H_
