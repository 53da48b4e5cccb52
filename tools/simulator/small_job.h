// Jobs for tests of the simulator: no data, no model, a few small blocks of symbols.
#ifndef RUBATO_TOOLS_SIMULATOR_SMALL_JOB_H_
#define RUBATO_TOOLS_SIMULATOR_SMALL_JOB_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/space/modes.h"
#include "proto/job.pb.h"
#include "tools/simulator/simulation.h"

namespace rubato {

constexpr int64_t kBlockBytes = 64;  // of a small job's blocks

// Where what is not finite is left out, it is one gradient of so many.
constexpr uint64_t kLeftOutOf = 61;

struct SmallJob {
  // How often something is due, in steps; said so, or as samples or a part of an epoch.
  struct Every {
    enum class Said { kSteps, kSamples, kEpochs };
    int64_t steps = 0;  // 0: only as it must be
    Said said = Said::kSteps;
  };
  // One mode of a schedule, up to a sample.
  struct Stage {
    proto::Mode mode;
    int64_t until_samples = 0;
  };

  proto::Mode mode = SyncMode();
  int workers = 2;
  int servers = 2;
  int64_t blocks = 4;
  int64_t micro_batches = 8;
  int64_t micro_batch = 1;  // samples
  int64_t steps = 20;
  double seconds = 0;  // in place of steps: train.until.time; 0: steps
  // train.stop_when: what a test of parameters that have seen so many units shows; 0: none
  int64_t target = 0;
  int64_t epochs = 1;    // that the steps are divided over evenly
  int64_t short_by = 0;  // samples that an epoch's last step has less
  int max_workers = 0;   // cluster.workers.max; 0: as many as there are at the start
  int min_workers = 1;   // cluster.workers.min
  int max_restarts = 0;  // cluster.max_restarts; 0: the job ends with a server
  bool dedicated_coordinator = false;
  std::vector<Stage>
      schedule;               // if not empty, instead of `mode`; the last one's end does not count
  bool is_script = false;     // the workers bring the optimizer, and weights of micro-batches
  bool gives_values = false;  // and the values that the job begins with
  int64_t pieces = 1;         // that these travel in
  bool leaves_out = false;    // what is not finite (train.on_non_finite: skip)
  // In place of that: one gradient of so many ends the job (train.on_non_finite: stop); 0: none.
  uint64_t diverges_in = 0;
  bool learning_rate_parity = true;
  double clip_grad_norm = 0;      // 0: none
  Every checkpoint_every;         // 0: only at the end
  double checkpoint_seconds = 0;  // in place of steps: checkpoint.every.time
  int keep_last = 0;              // checkpoint.keep_last; 0: as many as by default
  // checkpoint.keep_best, by the accuracy of tests; none: no more than that.
  std::optional<proto::KeepBest::Mode> keep_best;
  Every evaluate_every;  // 0: each epoch
  bool top_k = false;    // wire.push
  uint64_t seed = 0;
};

// As the job's file says it.
proto::Point PointOf(const SmallJob& small, const SmallJob::Every& every);

// Whose workers take a second for a micro-batch, on a network that takes no time.
SimulationSetting MakeSetting(const SmallJob& small);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SMALL_JOB_H_
