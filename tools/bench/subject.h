// What `rubato bench step` and `rubato bench products` measure: a model on random examples.
#ifndef RUBATO_TOOLS_BENCH_SUBJECT_H_
#define RUBATO_TOOLS_BENCH_SUBJECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/flags.h"
#include "proto/job.pb.h"
#include "worker/model/loss.h"
#include "worker/step/compute_device.h"

namespace rubato {

struct BenchSubject {
  std::string model = "mlp";   // a preset, or a whole model: section as YAML
  std::vector<int64_t> shape;  // of an example; empty: what the preset is usually trained with
  int64_t classes = 0;         // 0: likewise
  int64_t batch = 64;
  std::string device = "cpu";         // or cuda, as in a job
  std::string precision = "float32";  // of a GPU, likewise
  std::string attention = "auto";     // likewise
  std::string convolution = "auto";   // likewise
  bool opens_device = true;           // or else it stays the CPU, whatever `device` says
};

// The flags of a subject; what stands behind --shape goes to `shape`, for ParseShape.
void AddSubjectFlags(Flags* flags, BenchSubject* subject, std::string* shape);
// "3,32,32". InvalidArgument.
absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& shape);

// A model with random examples for it.
struct BenchSetup {
  proto::Model model;
  std::vector<int64_t> shape;
  ComputeDevice device;
  GpuNumbers numbers;  // of a GPU in that precision
  Objective objective;
  std::vector<float> features;
  std::vector<int32_t> labels;
};

// InvalidArgument if there is no such model; errors as ComputeDevice::Choose.
absl::StatusOr<BenchSetup> MakeSetup(const BenchSubject& subject);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_SUBJECT_H_
