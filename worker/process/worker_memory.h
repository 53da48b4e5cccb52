// How much memory a worker's process holds: the formulas, in one place.
#ifndef RUBATO_WORKER_PROCESS_WORKER_MEMORY_H_
#define RUBATO_WORKER_PROCESS_WORKER_MEMORY_H_

#include <cstdint>

#include "common/space/flat_space.h"
#include "proto/job.pb.h"

namespace rubato {

// What a worker's job comes to.
struct WorkerSizes {
  int64_t values = 0;          // of the flat vector
  int64_t data_bytes = 0;      // of all splits
  int64_t example_values = 0;  // of one example, as the model takes it
  int64_t training_bytes = 0;  // of one model's activations and gradients
  int64_t test_bytes = 0;      // of the one that tests
};

// Bytes that are resident.
struct WorkerMemory {
  int64_t training = 0;
  int64_t test = 0;  // besides, of a worker that has tested parameters
};

// The memory of worker `index` among the cluster.workers.start workers of the job, with its servers
// on the same host. On GPUs (device.type: cuda; or auto, with cluster.gpus_per_worker) it is the
// host's memory, without what CUDA itself takes there.
WorkerMemory PlanWorkerMemory(const proto::Job& job, const WorkerSizes& sizes, int64_t index);

}  // namespace rubato

#endif  // RUBATO_WORKER_PROCESS_WORKER_MEMORY_H_
