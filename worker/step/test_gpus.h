// GPUs that tests of the whole system have a worker take (rubato-worker-on-emulated-gpus), by
// variables of its environment:
//
//   RUBATO_TEST_GPU=emulated:4       the host has 4 emulated GPUs (emulated_device.h); "emulated":
//                                    one
//   RUBATO_TEST_GPU_FAILS=2:30:FILE  GPU 2 of them fails when it is waited for the 30th time: the
//                                    process ends, and FILE is there; while it is, the GPU cannot
//                                    be opened
//   RUBATO_TEST_EXCHANGE_REFUSES=1   they exchange nothing
//
// A program that this is linked into heeds them.
#ifndef RUBATO_WORKER_STEP_TEST_GPUS_H_
#define RUBATO_WORKER_STEP_TEST_GPUS_H_

namespace rubato {

constexpr char kTestGpuVariable[] = "RUBATO_TEST_GPU";
constexpr char kTestGpuFailsVariable[] = "RUBATO_TEST_GPU_FAILS";
constexpr char kTestExchangeRefusesVariable[] = "RUBATO_TEST_EXCHANGE_REFUSES";

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_TEST_GPUS_H_
