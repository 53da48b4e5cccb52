// A job, checked as far as one process can check it before it starts others, so that each mistake
// is reported once.
#ifndef RUBATO_TOOLS_COMMAND_PLAN_H_
#define RUBATO_TOOLS_COMMAND_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "worker/data/dataset.h"
#include "worker/process/worker_memory.h"

namespace rubato {

struct Plan {
  proto::Job job;
  // Which of its keys were not taken from the file; for the caller to fill in.
  Sources sources;
  proto::Layout layout;
  int64_t train_samples = 0;  // of an epoch
  int64_t validation_samples = 0;
  int64_t test_samples = 0;
  // On the disk in the end: the parameters, and a checkpoint with the optimizer's state.
  int64_t result_bytes = 0;
  // What people should know of the data, a sentence each.
  std::vector<std::string> notes;
  // Names of the model's inputs and of the classes, in order, where the format has any.
  std::vector<std::string> columns, classes;
  Normalization normalization;  // by `normalize: auto`, of numbers among the columns
  // What a worker holds; its bytes of training are of one thread.
  WorkerSizes sizes;
};

// `job` as LoadJob makes it. Reads data files, for their errors; draws next to nothing. NotFound,
// FailedPrecondition or InvalidArgument if the data are wrong or the model does not fit them.
absl::StatusOr<Plan> MakePlan(proto::Job job);

// Bytes that the job's processes are predicted to hold, each by itself, if they train on one host;
// of a script's, without its model and data, which are not known before it runs.
int64_t MemoryInTraining(const Plan& plan);

// Samples that the whole training processes; 0 if a time decides.
int64_t TotalSamples(const Plan& plan);

// Whether workers on this host compute on GPUs, as far as that is known before they do.
bool UseGpus(const proto::Job& job);
// What to warn of where they do not, and the job says in which precision they should; else empty.
std::string IgnoredPrecision(const proto::Job& job);

// What to warn of besides what the notes do, on any host.
std::vector<std::string> WarningsOf(const Plan& plan);

// The output of `rubato train --dry-run`: the resolved job as YAML, and after it, as comments, so
// that the whole is a valid job: the parameters, the shards, a table's inputs, the samples of a
// step and of an async contribution, and the memory of each process.
std::string DryRunText(const Plan& plan);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_PLAN_H_
