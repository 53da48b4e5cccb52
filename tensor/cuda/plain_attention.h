// Fused attention in plain loops, with cuDNN's roundings: of what is a factor of a second product
// to the operands' type, of nothing else. Dao et al., "FlashAttention", 2022, algorithms 1 and 4,
// without tiles.
#ifndef RUBATO_TENSOR_CUDA_PLAIN_ATTENTION_H_
#define RUBATO_TENSOR_CUDA_PLAIN_ATTENTION_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/check.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/numbers.h"

namespace rubato {

// That operands are aligned as cuDNN is told, of attention that it takes.
inline void CheckFused(const FusedAttention& fused) {
  if (fused.attention.channels / fused.attention.heads % 8 != 0) return;
  for (const void* operand :
       {fused.x, static_cast<const void*>(fused.y), static_cast<const void*>(fused.statistics),
        fused.dy, static_cast<const void*>(fused.dx)}) {
    RUBATO_CHECK(reinterpret_cast<uintptr_t>(operand) % 16 == 0);
  }
}

// One head of one example.
template <typename T>
class PlainHead {
 public:
  PlainHead(const FusedAttention& fused, int64_t example, int64_t head)
      : places_(fused.attention.places),
        channels_(fused.attention.channels),
        size_(channels_ / fused.attention.heads),
        causal_(fused.attention.causal),
        scale_(1 / std::sqrt(static_cast<float>(size_))),
        x_((example * places_ * 3 * channels_) + head * size_),
        y_((example * places_ * channels_) + head * size_),
        row_((example * fused.attention.heads + head) * places_),
        fused_(fused) {}

  void Forward() {
    std::vector<float> scores(places_);
    for (int64_t i = 0; i < places_; ++i) {
      float greatest = -std::numeric_limits<float>::infinity(), sum = 0;
      for (int64_t j = 0; j < Seen(i); ++j) {
        scores[j] = scale_ * Dot(X(i, 0), X(j, 1));
        greatest = scores[j] > greatest ? scores[j] : greatest;
      }
      for (int64_t j = 0; j < Seen(i); ++j) {
        scores[j] = std::exp(scores[j] - greatest);
        sum += scores[j];
      }
      for (int64_t c = 0; c < size_; ++c) {
        float value = 0;
        for (int64_t j = 0; j < Seen(i); ++j) value += Rounded(scores[j] / sum) * At(X(j, 2), c);
        static_cast<T*>(fused_.y)[y_ + i * channels_ + c] = static_cast<T>(value);
      }
      fused_.statistics[row_ + i] = greatest + std::log(sum);
    }
  }

  void Backward() {
    const int64_t values = places_ * size_;
    std::vector<float> dq(values), dk(values), dv(values);
    for (int64_t i = 0; i < places_; ++i) {
      // Of the row, the sum of probabilities times their gradients.
      float& sum = static_cast<float*>(fused_.workspace)[row_ + i];
      sum = Dot(Y(fused_.dy, i), Y(fused_.y, i));
      for (int64_t j = 0; j < Seen(i); ++j) {
        const float score = scale_ * Dot(X(i, 0), X(j, 1));
        const float p = std::exp(score - fused_.statistics[row_ + i]);
        const float ds = Rounded(p * (Dot(Y(fused_.dy, i), X(j, 2)) - sum) * scale_);
        for (int64_t c = 0; c < size_; ++c) {
          dq[i * size_ + c] += ds * At(X(j, 1), c);
          dk[j * size_ + c] += ds * At(X(i, 0), c);
          dv[j * size_ + c] += Rounded(p) * At(Y(fused_.dy, i), c);
        }
      }
    }
    for (int64_t i = 0; i < places_; ++i) {
      for (int64_t c = 0; c < size_; ++c) {
        T* const dx = static_cast<T*>(fused_.dx) + x_ + i * 3 * channels_ + c;
        dx[0] = static_cast<T>(dq[i * size_ + c]);
        dx[channels_] = static_cast<T>(dk[i * size_ + c]);
        dx[2 * channels_] = static_cast<T>(dv[i * size_ + c]);
      }
    }
  }

 private:
  int64_t Seen(int64_t place) const { return causal_ ? place + 1 : places_; }
  // Place i's query, key or value.
  const T* X(int64_t i, int part) const {
    return static_cast<const T*>(fused_.x) + x_ + (i * 3 + part) * channels_;
  }
  const T* Y(const void* values, int64_t i) const {
    return static_cast<const T*>(values) + y_ + i * channels_;
  }
  static float At(const T* values, int64_t c) { return static_cast<float>(Widen(values[c])); }
  static float Rounded(float value) { return static_cast<float>(Widen(static_cast<T>(value))); }
  float Dot(const T* a, const T* b) const {
    float sum = 0;
    for (int64_t c = 0; c < size_; ++c) sum += At(a, c) * At(b, c);
    return sum;
  }

  const int64_t places_, channels_, size_;
  const bool causal_;
  const float scale_;
  const int64_t x_, y_, row_;  // where it begins
  const FusedAttention& fused_;
};

// Bytes.
inline int64_t PlainAttentionWorkspace(const Attention& attention, int64_t n) {
  return n * attention.heads * attention.places * static_cast<int64_t>(sizeof(float));
}

template <typename T>
void AttendPlainly(const FusedAttention& fused) {
  for (int64_t example = 0; example < fused.n; ++example) {
    for (int64_t head = 0; head < fused.attention.heads; ++head) {
      PlainHead<T> plain(fused, example, head);
      if (fused.dx == nullptr) {
        plain.Forward();
      } else {
        plain.Backward();
      }
    }
  }
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PLAIN_ATTENTION_H_
