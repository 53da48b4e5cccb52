// Drawn clusters on three shards, with drawn faults (tools/simulator/scenario.h), in a mode that
// only a test knows. The environment may say which:
//   RUBATO_SEED=123         this one alone, with what the coordinator says
//   RUBATO_CAUGHT_BY=TEXT   the policy has a bug on purpose: a seed must fail with a message that
//   has
//                           this
#ifndef RUBATO_TESTS_DRAWN_CLUSTERS_H_
#define RUBATO_TESTS_DRAWN_CLUSTERS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/consistency/policy.h"
#include "proto/mode.pb.h"
#include "tools/simulator/simulation.h"

namespace rubato {

constexpr int kDrawnShards = 3;

// Cluster `seed`, in `mode` from its beginning to its end, with `blocks` blocks.
absl::StatusOr<SimulationSetting> DrawCluster(uint64_t seed, const proto::Mode& mode,
                                              PolicyFactory policies, int64_t blocks);

// Runs what must hold for seeds 0 to `seeds` - 1. Whether all were run, and none alone.
bool ForEachSeed(int64_t seeds, absl::FunctionRef<absl::Status(uint64_t seed)> run);

}  // namespace rubato

#endif  // RUBATO_TESTS_DRAWN_CLUSTERS_H_
