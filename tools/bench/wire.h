// `rubato bench wire`: how fast floats go between a worker and a server.
#ifndef RUBATO_TOOLS_BENCH_WIRE_H_
#define RUBATO_TOOLS_BENCH_WIRE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/frames/codec.h"

namespace rubato {

struct WireBench {
  std::vector<int64_t> sizes = {4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};  // bytes
  std::vector<std::string> paths = {"tcp", "shm"};
  std::vector<Codec> codecs = {Codec::kFloat32, Codec::kBf16, Codec::kFp16, Codec::kInt8,
                               Codec::kTopK};
  std::vector<int> workers = {1};
  int threads = 1;                   // with which a server makes updates
  int rounds = 9;                    // of which the medians count; all take turns in each
  int64_t sample_bytes = 64 << 20;   // that go in one measurement, at least
  int64_t round_trips = 2000;        // a round
  int64_t memory_bytes = 128 << 20;  // of parameters, whose server's memory is measured
};

// Starts a shard in a process of its own for each size, and a raw TCP server, on loopback. For
// people, or as one JSON object. Internal if a float is not what it should be.
absl::StatusOr<std::string> BenchWire(const WireBench& bench, bool json);

// Returns the exit code.
int BenchWireMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_WIRE_H_
