// The workers of `rubato bench wire`: all in this process, each with a connection and a thread of
// its own.
#ifndef RUBATO_TOOLS_BENCH_WIRE_WORKERS_H_
#define RUBATO_TOOLS_BENCH_WIRE_WORKERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/wire/connection_options.h"
#include "tools/bench/peer.h"
#include "tools/bench/wire_load.h"
#include "tools/bench/wire_shard.h"

namespace rubato {

class WireWorkers {
 public:
  // Of the shard that `server` serves, which outlives it.
  WireWorkers(const BenchShard& shard, const Peer* server, const ConnectionOptions& connection);

  // What `count` requests of each worker at a time take (WireLoad::Run). Internal if one float that
  // comes of it is not what it should be.
  struct Took {
    double seconds = 0;
    double worker_cpu_seconds = 0;  // of this process
    double server_cpu_seconds = 0;
    int64_t switches = 0;  // of threads of both that had nothing to do
  };
  absl::StatusOr<Took> Run(WireOp op, Codec codec, int64_t count);

  // Of the first worker alone: see WireLoad.
  absl::StatusOr<std::vector<double>> RoundTrips(int64_t count) {
    return workers_[0]->RoundTrips(count);
  }

 private:
  const Peer& server_;
  std::vector<std::unique_ptr<WireLoad>> workers_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_WIRE_WORKERS_H_
