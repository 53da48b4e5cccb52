// What a worker has not sent yet, where it sends only its gradients' largest values.
#ifndef RUBATO_WORKER_STEP_RESIDUALS_H_
#define RUBATO_WORKER_STEP_RESIDUALS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/space/flat_space.h"

namespace rubato {

// Error feedback with momentum correction: Lin et al., "Deep Gradient Compression", ICLR 2018. Over
// the flat space, with g a gradient sum:
//
//   u ← momentum · u + g          u ← u + g          for later sums of the same step
//   v ← v + u                     v ← v + g          v ← v + g + momentum · (u's change) with
//   nesterov
//
// The values of v that are largest go out, and there u and v become 0, so that the momentum of old
// gradients does not carry on what has waited for long. Where all go, nothing has waited: then v
// becomes 0 and u stays, which is momentum as everywhere. The server's optimizer has none.
class Residuals {
 public:
  struct Settings {
    float momentum = 0;  // 0: only v is kept
    bool nesterov = false;
  };
  // Of the sums that are taken in.
  struct Step {
    bool first = true;  // of its step
    // Of a sum of its samples, so that what is left of it is right among others': the server
    // divides what is sent by the samples of the step in which it is. What goes out is divided by
    // that step's.
    float weight = 1;
  };

  // All zero. Of `values` floats each.
  Residuals(int64_t values, Settings settings);

  // Takes `gradient`, which is that of `range`, and writes the `k` largest values of v there to
  // `out`, which has EncodedBound(Codec::kTopK, k) bytes.
  void Encode(Range range, absl::Span<const float> gradient, const Step& step, size_t k, char* out);

  // Takes `gradient` and writes all of v there to `out`, as floats.
  void EncodeAll(Range range, absl::Span<const float> gradient, const Step& step, char* out);

  // The density in a warm-up of `warmup` epochs, which falls by equal factors: with 0.001 and 4 as
  // in the paper 0.25, 0.063, 0.016, 0.004, then 0.001.
  static double DensityAt(double density, double epoch, double warmup);

 private:
  // Adds `gradient` to u and v.
  void Take(Range range, absl::Span<const float> gradient, const Step& step);

  Settings settings_;
  std::vector<float> u_;  // empty without momentum
  std::vector<float> v_;
  std::vector<uint32_t> sent_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_RESIDUALS_H_
