#ifndef RUBATO_WORKER_MODEL_LOSS_SCALER_H_
#define RUBATO_WORKER_MODEL_LOSS_SCALER_H_

#include <cstdint>

namespace rubato {

// By how much a loss is multiplied so that its gradients are neither too small nor too large for
// float16: Micikevicius et al., "Mixed precision training", 2018, section 3.2. The factor changes
// as torch.cuda.amp.GradScaler's does by default: halved after a step that overflowed, doubled
// after 2000 in a row that did not. A power of two always, so that but for what is too small
// dividing by it restores each bit. Each worker has its own, of the steps in which it overflowed.
class LossScaler {
 public:
  static constexpr double kInitial = 65536, kGrowth = 2, kBackoff = 0.5;
  static constexpr int64_t kGrowthInterval = 2000;
  static constexpr double kGreatest = 0x1p64;  // its inverse is far from float32's end

  double scale() const { return scale_; }

  void OnStep(bool overflowed) {
    if (overflowed) {
      good_steps_ = 0;
      scale_ = scale_ * kBackoff < 1 ? 1 : scale_ * kBackoff;
    } else if (++good_steps_ == kGrowthInterval) {
      good_steps_ = 0;
      if (scale_ < kGreatest) scale_ *= kGrowth;
    }
  }

 private:
  double scale_ = kInitial;
  int64_t good_steps_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LOSS_SCALER_H_
