// Settings for single machines and single pairs of machines, in place of --latency and --bandwidth.
#ifndef RUBATO_TOOLS_SIMULATOR_LINK_H_
#define RUBATO_TOOLS_SIMULATOR_LINK_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/simulator/event_queue.h"

namespace rubato {

// If one of `worker` and `shard` is set: the network card of that machine; if both: the link
// between the two. Values that are not set keep their defaults.
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
