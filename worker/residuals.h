// What a worker has not sent yet, where it sends only its gradients' largest values.
#ifndef RUBATO_WORKER_RESIDUALS_H_
#define RUBATO_WORKER_RESIDUALS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/flat_space.h"

namespace rubato {

// Error feedback with momentum correction: Lin et al., "Deep Gradient Compression", ICLR 2018. Over
// the flat space, with g a gradient sum:
//
//   u ← momentum · u + g          u ← u + g          for later sums of the same step
//   v ← v + u                     v ← v + g          v ← v + g + momentum · (u's change) with
//   nesterov
//
// The values of v that are largest go out, and there u and v become 0. So each gradient arrives in
// the end, with the momentum that it would have had; the server's optimizer has none of its own.
class Residuals {
 public:
  struct Settings {
    float momentum = 0;  // 0: only v is kept
    bool nesterov = false;
  };

  // All zero. Of `values` floats each.
  Residuals(int64_t values, Settings settings);

  // Takes `gradient`, which is that of `range`, and writes the `k` largest values of v there to
  // `out`, which has EncodedBound(Codec::kTopK, k) bytes. `first`: the first sum of its step.
  void Encode(Range range, absl::Span<const float> gradient, bool first, size_t k, char* out);

  // How many values of a span of `n` go out: n · density, rounded, at least one; none of none.
  static size_t CountOf(size_t n, double density);

  // The density in a warm-up of `warmup` epochs, which falls by equal factors: with 0.001 and 4 as
  // in the paper 0.25, 0.063, 0.016, 0.004, then 0.001.
  static double DensityAt(double density, double epoch, double warmup);

 private:
  Settings settings_;
  std::vector<float> u_;  // empty without momentum
  std::vector<float> v_;
  std::vector<uint32_t> sent_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_RESIDUALS_H_
