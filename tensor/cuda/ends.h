// The two ends of a model: embeddings (embeddings.h), and the loss.
#ifndef RUBATO_TENSOR_CUDA_ENDS_H_
#define RUBATO_TENSOR_CUDA_ENDS_H_

#include <cmath>

#include "tensor/cuda/block.h"
#include "tensor/cuda/embeddings.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/pack.h"
#include "tensor/device.h"

namespace rubato {
namespace ends {

// A row of logits, a block's: read once for the greatest and the sum of exponentials, and once for
// the gradient. A thread has every so many packs of the row, whether packs may lie there (kWhole)
// or not, so that sums have one order.
template <typename T, bool kWhole>
struct CrossEntropyRow {
  using A = Wide<T>;
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kWidth = PackWidth<T>();
  static constexpr int kAhead = kWhole ? 4 : 1;
  using Values = Pack<T, kWidth>;

  int64_t classes;
  double label_smoothing, gradient_scale;
  int64_t ignore_index;
  const float* class_weights;  // of each, or null: 1
  double sum_of_weights;
  const T* logits;
  const int32_t* labels;
  const float* scale;
  T* gradient;
  double* rows;  // of each row its loss, and whether it was right

  // The greatest of some logits, and the sum of exponentials of what they are from it.
  using Sums = Pair<A>;
  struct Join {
    RUBATO_HOST_DEVICE Sums operator()(Sums a, Sums b) const {
      const A most = numbers::Greatest(a.first, b.first);
      return {most, a.second * numbers::FastExp(a.first - most) +
                        b.second * numbers::FastExp(b.first - most)};
    }
  };

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int64_t row = block.index(), label = labels[row];
    const T* const x = logits + row * classes;
    const int64_t packs = (classes + kWidth - 1) / kWidth;
    if (label == ignore_index) {
      block.ForEach([&](int thread) {
        for (int64_t i = thread; i < packs; i += block.threads()) StoreZeros(row, i);
        if (thread == 0) rows[2 * row] = rows[2 * row + 1] = 0;
      });
      return;
    }
    const auto load = [&](int64_t i) {
      return LoadOfRow<kWidth, kWhole>(x + i * kWidth, classes - i * kWidth,
                                       T(static_cast<float>(-INFINITY)));
    };
    // No infinity: the distance of one from itself is no number.
    const Sums all = block.Reduce(
        Sums{A(-0x1.fffffep127), 0},
        [&](int thread) {
          Sums part = {A(-0x1.fffffep127), 0};
          InTurn<kAhead>(thread, packs, block.threads(), load,
                         [&](int64_t, const Values& values) { Add(values, &part); });
          return part;
        },
        Join());
    const A greatest = all.first, sum = all.second, own_logit = Widen(x[label]);
    // Of equals the first counts.
    const bool is_right = own_logit == greatest && block.Sum(0, [&](int thread) {
      int before = 0;
      InTurn<kAhead>(thread, (label + kWidth - 1) / kWidth, block.threads(), load,
                     [&](int64_t i, const Values& values) {
                       RUBATO_UNROLL
                       for (int k = 0; k < kWidth; ++k) {
                         if (i * kWidth + k < label && Widen(values.values[k]) == greatest)
                           ++before;
                       }
                     });
      return before;
    }) == 0;
    const bool weighs = class_weights != nullptr;
    // Of a class, or of what pads a row.
    const auto weight = [&](int64_t j) { return weighs && j < classes ? class_weights[j] : 1.0f; };
    const double even = label_smoothing / static_cast<double>(classes);
    const double below = even == 0 ? 0 : block.Sum(0.0, [&](int thread) {
      double part = 0;
      InTurn<kAhead>(thread, packs, block.threads(), load, [&](int64_t i, const Values& values) {
        for (int k = 0; k < kWidth && i * kWidth + k < classes; ++k) {
          part += weight(i * kWidth + k) *
                  (static_cast<double>(greatest) - static_cast<double>(Widen(values.values[k])));
        }
      });
      return part;
    });
    const double own = (1 - label_smoothing) * weight(label);
    const A factor = static_cast<A>(gradient_scale) * static_cast<A>(*scale);
    const A of_all = static_cast<A>(even) * factor, of_own = static_cast<A>(own) * factor;
    const A of_sum = (weighs ? static_cast<A>(own + even * sum_of_weights) : 1) * factor / sum;
    block.ForEach([&](int thread) {
      InTurn<kAhead>(thread, packs, block.threads(), load, [&](int64_t i, const Values& loaded) {
        const int64_t at = label - i * kWidth;
        const bool is_here = at >= 0 && at < kWidth;
        Values values;
        RUBATO_UNROLL
        for (int k = 0; k < kWidth; ++k) {
          A value = numbers::FastExp(Widen(loaded.values[k]) - greatest) * of_sum -
                    of_all * weight(i * kWidth + k);
          if (is_here && k == at) value -= of_own;
          values.values[k] = static_cast<T>(value);
        }
        Store(row, i, values);
      });
      if (thread != 0) return;
      const double log_sum = log(static_cast<double>(sum));
      double loss =
          own * (log_sum + (static_cast<double>(greatest) - static_cast<double>(own_logit)));
      const double all = weighs ? sum_of_weights : static_cast<double>(classes);
      if (even > 0) loss += even * (all * log_sum + below);
      rows[2 * row] = loss;
      rows[2 * row + 1] = is_right ? 1 : 0;
    });
  }

  Traffic Moves(int64_t n) const {
    const int64_t weights = class_weights == nullptr ? 0 : classes;
    return {n * (classes * SizeInBytes<T>() + SizeInBytes<int32_t>()) +
                (1 + weights) * SizeInBytes<float>(),
            n * (classes * SizeInBytes<T>() + 2 * SizeInBytes<double>()),
            (kWhole ? kWidth : 1) * SizeInBytes<T>()};
  }

 private:
  RUBATO_HOST_DEVICE static void Add(const Values& values, Sums* part) {
    A most = part->first, sum = 0;
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) most = numbers::Greatest(most, Widen(values.values[k]));
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) sum += numbers::FastExp(Widen(values.values[k]) - most);
    if (most > part->first) {
      part->second *= numbers::FastExp(part->first - most);
      part->first = most;
    }
    part->second += sum;
  }
  RUBATO_HOST_DEVICE void Store(int64_t row, int64_t i, const Values& values) const {
    StoreOfRow<kWidth, kWhole>(values, gradient + row * classes + i * kWidth, classes - i * kWidth);
  }
  RUBATO_HOST_DEVICE void StoreZeros(int64_t row, int64_t i) const {
    Values zeros;
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) zeros.values[k] = T(0.0f);
    Store(row, i, zeros);
  }
};

// What the values of a row cost, a block's.
template <typename T>
struct RegressionRow {
  using A = Wide<T>;
  static constexpr int kMostThreads = kUsualThreads;

  int64_t columns;
  RegressionForm form;
  A delta;
  double factor;
  const T* x;
  const float* targets;
  const float* scale;
  T* gradient;
  double* rows;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int64_t begin = block.index() * columns;
    const A grows = static_cast<A>(form == RegressionForm::kSquared ? 2 * factor : factor);
    const double sum = block.Sum(0.0, [&](int thread) {
      double part = 0;
      for (int64_t j = begin + thread; j < begin + columns; j += block.threads()) {
        const A distance = Widen(x[j]) - static_cast<A>(targets[j]);
        part += Cost(static_cast<double>(distance));
        gradient[j] = static_cast<T>(grows * Slope(distance) * static_cast<A>(*scale));
      }
      return part;
    });
    block.ForEach([&](int thread) {
      if (thread != 0) return;
      rows[2 * block.index()] = sum;
      rows[2 * block.index() + 1] = 0;
    });
  }

  Traffic Moves(int64_t n) const {
    return {n * columns * (SizeInBytes<T>() + SizeInBytes<float>()) + SizeInBytes<float>(),
            n * (columns * SizeInBytes<T>() + 2 * SizeInBytes<double>()), SizeInBytes<T>()};
  }

 private:
  RUBATO_HOST_DEVICE double Cost(double distance) const {
    const double size = distance < 0 ? -distance : distance, most = static_cast<double>(delta);
    if (form == RegressionForm::kSquared) return size * size;
    if (form == RegressionForm::kAbsolute) return size;
    return size > most ? most * (size - most / 2) : size * size / 2;
  }
  // What is not a number stays so.
  RUBATO_HOST_DEVICE A Slope(A distance) const {
    if (form == RegressionForm::kSquared) return distance;
    const bool turns = form == RegressionForm::kAbsolute;  // at 0, from -1 to 1
    const A near = turns ? A(0) : delta, most = turns ? A(1) : delta;
    return distance > near ? most : distance < -near ? -most : distance;
  }
};

// One block adds up all rows.
struct SumRows {
  int64_t n;
  const double* rows;
  double* sums;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const Pair<double> sum = block.Sum(Pair<double>{0, 0}, [&](int thread) {
      Pair<double> part = {0, 0};
      for (int64_t i = thread; i < n; i += block.threads()) {
        part = part + Pair<double>{rows[2 * i], rows[2 * i + 1]};
      }
      return part;
    });
    block.ForEach([&](int thread) {
      if (thread != 0) return;
      sums[0] = sum.first;
      sums[1] = sum.second;
    });
  }

  Traffic Moves(int64_t) const {
    return {2 * n * SizeInBytes<double>(), 2 * SizeInBytes<double>(), SizeInBytes<double>()};
  }
};

}  // namespace ends

template <typename Queue>
class EndKernels : public virtual DeviceKernels {
 public:
  explicit EndKernels(Queue* queue) : queue_(*queue) {}

  void Embed(const ConstTensorRef& x, const ConstTensorRef& weight, const TensorRef& y) override {
    ByType<Queue>(y.dtype(), [&](auto zero) {
      using T = decltype(zero);
      LaunchForEach(queue_, y.size(),
                    embeddings::Embed<T>{weight.dim(0), weight.dim(1), Pointer<Wide<T>>(x),
                                         Pointer<Wide<T>>(weight), Pointer<T>(y)});
    });
  }
  void EmbedBackward(const ConstTensorRef& x, const ConstTensorRef& dy,
                     const TensorRef& dweight) override {
    ByType<Queue>(dy.dtype(), [&](auto zero) {
      embeddings::LaunchBackward<decltype(zero)>(queue_, x, dy, dweight);
    });
  }

  void CrossEntropy(const ConstTensorRef& logits, const ConstTensorRef& labels,
                    const CrossEntropyOptions& options, const ConstTensorRef& scale,
                    const TensorRef& gradient, const TensorRef& rows,
                    const TensorRef& sums) override {
    const int64_t classes = logits.dim(1);
    ByType<Queue>(logits.dtype(), [&](auto zero) {
      using T = decltype(zero);
      constexpr int64_t kWidth = PackWidth<T>();
      ByWholeness<T>(classes, {logits.address(), gradient.address()}, [&](auto is_whole) {
        queue_.Launch(labels.size(), ThreadsFor((classes + kWidth - 1) / kWidth),
                      ends::CrossEntropyRow<T, is_whole()>{
                          classes, options.label_smoothing, options.gradient_scale,
                          options.ignore_index, options.class_weights, options.sum_of_weights,
                          Pointer<T>(logits), Pointer<int32_t>(labels), Pointer<float>(scale),
                          Pointer<T>(gradient), Pointer<double>(rows)});
      });
    });
    AddUp(labels.size(), rows, sums);
  }

  void RegressionLoss(const ConstTensorRef& x, const ConstTensorRef& targets,
                      const RegressionOptions& options, double factor, const ConstTensorRef& scale,
                      const TensorRef& gradient, const TensorRef& rows,
                      const TensorRef& sums) override {
    const int64_t columns = x.dim(1);
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      queue_.Launch(
          x.dim(0), ThreadsFor(columns),
          ends::RegressionRow<T>{columns, options.form, static_cast<Wide<T>>(options.delta), factor,
                                 Pointer<T>(x), Pointer<float>(targets), Pointer<float>(scale),
                                 Pointer<T>(gradient), Pointer<double>(rows)});
    });
    AddUp(x.dim(0), rows, sums);
  }

 private:
  void AddUp(int64_t n, const TensorRef& rows, const TensorRef& sums) {
    queue_.Launch(1, ThreadsFor(n, kMaxThreads),
                  ends::SumRows{n, Pointer<double>(rows), Pointer<double>(sums)});
  }

  Queue& queue_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_ENDS_H_
