// What single machines, and single pairs of them, have instead of --latency and --bandwidth.
#ifndef RUBATO_TOOLS_SIMULATOR_LINK_H_
#define RUBATO_TOOLS_SIMULATOR_LINK_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/simulator/event_queue.h"

namespace rubato {

// One of `worker` and `shard`: the card of that machine. Both: the way between the two. What is not
// set is as it is without.
struct LinkSetting {
  std::optional<int> worker;
  std::optional<int> shard;
  std::optional<SimTime> latency;
  std::optional<double> bytes_per_second;
};

// As "worker=3,latency=5ms,bandwidth=1Gbit", of a job with workers below `workers` and `shards`
// shards. InvalidArgument, in one sentence.
absl::StatusOr<LinkSetting> ParseLink(absl::string_view text, int workers, int shards);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_LINK_H_
