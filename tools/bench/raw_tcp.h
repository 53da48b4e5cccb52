// The throughput of a loopback TCP connection without any framing: the baseline of the wire
// benchmark.
#ifndef RUBATO_TOOLS_BENCH_RAW_TCP_H_
#define RUBATO_TOOLS_BENCH_RAW_TCP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rubato {

// The peer's role: serves one client at a time, each from buffers of the size that it names.
int ServeRawTcp();

class RawTcp {
 public:
  static absl::StatusOr<std::unique_ptr<RawTcp>> Connect(const std::string& address);
  ~RawTcp();

  // Seconds for `count` messages of `bytes` each, from a buffer of that size to one of that size;
  // one byte comes back for them all.
  absl::StatusOr<double> Push(int64_t bytes, int64_t count);
  // The other way round.
  absl::StatusOr<double> Pull(int64_t bytes, int64_t count);
  // Seconds of each of `count` round trips of `bytes` both ways.
  absl::StatusOr<std::vector<double>> RoundTrips(int64_t bytes, int64_t count);

 private:
  explicit RawTcp(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_RAW_TCP_H_
