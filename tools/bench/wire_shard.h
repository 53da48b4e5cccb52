// The server's side of `rubato bench wire`: a shard as rubato-server runs it, without a
// coordinator.
#ifndef RUBATO_TOOLS_BENCH_WIRE_SHARD_H_
#define RUBATO_TOOLS_BENCH_WIRE_SHARD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/space/flat_space.h"

namespace rubato {

// Both sides name it, so that strangers are refused.
constexpr char kBenchDigest[] = "rubato bench wire";

// The last block of a measured space. Its answer confirms that everything sent before it has been
// applied.
constexpr int64_t kReceiptValues = 16;

// Of `bytes` of parameters, in blocks of 256 KiB or of the whole, and the receipt's block.
FlatSpace BenchSpace(int64_t bytes);

// The gradient's value at `index`: a small whole number, so that sums are exact.
inline float BenchGradient(int64_t index) { return static_cast<float>(index % 7 + 1); }

// A shard, and who works with it.
struct BenchShard {
  int64_t bytes = 0;  // of parameters
  std::string path;   // by which it is secured
  int workers = 1;
  bool sync = false;  // in step, else their contributions are applied on arrival
  float momentum = 0;
  int threads = 1;  // for updates: cluster.server_threads

  // As the word that starts its process, and back. Nothing if it is no such word.
  std::string Role() const;
  static std::optional<BenchShard> FromRole(const std::string& role);
};

// The peer's role. The space's parameters begin at 0; the learning rate is 1: a value is what the
// contributions, or the means of those of a step, subtracted from it in turn.
int ServeBenchShard(const BenchShard& bench);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_WIRE_SHARD_H_
