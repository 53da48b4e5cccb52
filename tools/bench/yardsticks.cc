#include "tools/bench/yardsticks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/isa.h"
#include "common/base/kernels.h"
#include "tools/bench/median.h"

namespace rubato {
namespace {

// Larger than the caches of a server's socket that one thread can fill in a pass.
constexpr size_t kArrayBytes = 128 << 20;

struct TriadKernel {
  static RUBATO_ALWAYS_INLINE void Run(double* a, const double* b, const double* c, double factor,
                                       size_t n) {
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) a[i] = b[i] + factor * c[i];
  }
};

}  // namespace

double SecondsOf(absl::FunctionRef<void()> call) {
  const int64_t begin = absl::GetCurrentTimeNanos();
  call();
  return static_cast<double>(std::max<int64_t>(absl::GetCurrentTimeNanos() - begin, 1)) * 1e-9;
}

double MedianSeconds(double seconds, absl::FunctionRef<void()> call) {
  for (int i = 0; i < 3; ++i) call();
  std::vector<double> times;
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  while (times.size() < 5 || absl::Now() < end) times.push_back(SecondsOf(call));
  return Median(std::move(times));
}

Triad::Triad()
    : a_(kArrayBytes / sizeof(double), 1),
      b_(kArrayBytes / sizeof(double), 2),
      c_(kArrayBytes / sizeof(double), 3) {}

double Triad::GigabytesPerSecond() {
  const double seconds =
      SecondsOf([&] { Dispatch<TriadKernel>(a_.data(), b_.data(), c_.data(), 3.0, a_.size()); });
  return 3.0 * kArrayBytes / seconds * 1e-9;
}

Copying::Copying() : from_(kArrayBytes, 1), to_(kArrayBytes, 2) {}

double Copying::GigabytesPerSecond() {
  const double seconds = SecondsOf([&] { std::memcpy(to_.data(), from_.data(), from_.size()); });
  return kArrayBytes / seconds * 1e-9;
}

}  // namespace rubato
