// The computation of a simulated worker: on the real model and data (real_worker.h), or on symbols
// (symbolic_worker.h).
#ifndef RUBATO_TOOLS_SIMULATOR_WORKER_MODEL_H_
#define RUBATO_TOOLS_SIMULATOR_WORKER_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/consistency/policy.h"
#include "common/space/flat_space.h"
#include "common/space/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "tools/simulator/message.h"

namespace rubato {

class WorkerModel {
 public:
  using Push = absl::FunctionRef<void(int64_t block, Content content)>;

  virtual ~WorkerModel() = default;
  // It takes part from here on, as one who has not been here before.
  virtual void OnJoin() {}
  // A block of parameters is here.
  virtual void OnBlock(int64_t block, const Content& content) = 0;
  // As worker/step/contributions.h.
  virtual absl::Status Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                               const Policy& policy, Push push, proto::Progress* progress) = 0;
  // That the leaves `node` count for together.
  virtual int64_t Weight(const SampleSchedule& schedule, int64_t unit, Range node) const {
    return schedule.Samples(unit, node);
  }
  // Tests the parameters that are here, which have seen `unit` units; on the test split too if
  // `is_final`.
  virtual std::vector<proto::EvaluationResult> Test(int64_t unit, bool is_final) = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_WORKER_MODEL_H_
