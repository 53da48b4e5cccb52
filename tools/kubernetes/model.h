// A job as Kubernetes is to run it: what every format is made from (manifests.h).
#ifndef RUBATO_TOOLS_KUBERNETES_MODEL_H_
#define RUBATO_TOOLS_KUBERNETES_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace rubato::kubernetes {

// What makes the pods.
enum class Format {
  kPlain,            // Jobs
  kJobSet,           // one JobSet
  kTrainingRuntime,  // a TrainingRuntime, of which each TrainJob makes a JobSet
};

// What is told beside the job, as flags.
struct Options {
  Format format = Format::kPlain;
  std::string image;
  std::string worker_image;  // of the workers; default: image
  // Of all that is rendered, with a digest behind it; default: the job's.
  std::string name;
  int gpus = 0;  // of each worker: 0 or 1
  // A claim with the data, NAME or NAME:PATH, which the workers mount at PATH to read it.
  std::string data_claim;
  // What an init container of each worker runs in a shell, in the folder that it is to fill.
  std::string data_command;
  // data.path as the workers see it; default: in the folder above, under the name that it has here.
  std::string data_path;
  // An existing claim for the run's folder; default: one is rendered.
  std::string runs_claim;
  // What the job goes on from: a run or checkpoint in that claim, auto, required or never; empty:
  // what checkpoint.resume says.
  std::string resume;
  std::string priority_class;
  bool disruption_budget = false;
  std::string queue;                 // of Kueue, which a JobSet waits in
  std::string monitoring_namespace;  // whose pods may reach the servers' health port
  std::string cpu;                   // that each container requests; default: its threads
};

// Bytes of memory that a container asks for, and that it never holds more than.
struct Memory {
  int64_t request = 0;
  int64_t limit = 0;
};

// What is predicted (predict.h).
struct Sizes {
  Memory coordinator;  // shard 0, or the coordinator of its own
  Memory server;       // the largest of the others
  Memory worker;
  int64_t runs = 0;  // bytes on the volume of the run's folder
  // Bytes of a node's disk, of each worker, if they are told: /tmp, data that it gets, its log.
  int64_t worker_storage = 0;
};

struct Model {
  proto::Job job;          // as the pods read it
  std::string job_digest;  // JobDigest of it, and of the job as it ran elsewhere
  Options options;
  Sizes sizes;
  std::string name;         // of what is not bound to this rendering: the Secrets
  std::string base;         // of what is: the name and a digest of all that is rendered
  std::string data_volume;  // where the data are mounted; empty: nowhere
  std::string data_claim;   // the name alone
  bool any_device = false;  // the job leaves it open, so that it can run with and without GPUs

  const std::string& WorkerImage() const {
    return options.worker_image.empty() ? options.image : options.worker_image;
  }
  // The workers run the job's script, beside which each has a rubato-worker.
  bool IsScript() const { return job.script_size() > 0; }
};

// Checks `job`, as LoadJob makes it, and `options`, and changes the job to what holds in pods:
// addresses by names, times to wait, paths, no shared memory. InvalidArgument or
// FailedPrecondition, in one sentence, naming the flag or key.
absl::StatusOr<Model> MakeModel(proto::Job job, const Options& options, const Sizes& sizes);

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_MODEL_H_
