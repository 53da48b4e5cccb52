// The server's side of `rubato bench wire`: a shard as rubato-server runs it, without a
// coordinator.
#ifndef RUBATO_TOOLS_BENCH_WIRE_SHARD_H_
#define RUBATO_TOOLS_BENCH_WIRE_SHARD_H_

#include <cstdint>
#include <string>

#include "common/space/flat_space.h"

namespace rubato {

// Both sides name it, so that strangers are refused.
constexpr char kBenchDigest[] = "rubato bench wire";

// The last block of a measured space, which answers that what came before it has been applied.
constexpr int64_t kReceiptValues = 16;

// Of `bytes` of parameters, in blocks of 256 KiB or of the whole, and the receipt's block.
FlatSpace BenchSpace(int64_t bytes);

// The gradient's value at `index`: a small whole number, so that sums are exact.
inline float BenchGradient(int64_t index) { return static_cast<float>(index % 7 + 1); }

// The peer's role. The space's parameters begin at 0; contributions are applied on arrival with a
// learning rate of 1: a value is what the contributions subtracted from it in turn. With `sync`
// they are those of two workers in step, with a momentum of 0.5. Secured as `path` says.
int ServeBenchShard(int64_t bytes, const std::string& path = "", bool sync = false);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_WIRE_SHARD_H_
