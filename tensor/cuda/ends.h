// The two ends of a model: embeddings (embeddings.h), and the loss.
#ifndef RUBATO_TENSOR_CUDA_ENDS_H_
#define RUBATO_TENSOR_CUDA_ENDS_H_

#include <cmath>

#include "tensor/cuda/block.h"
#include "tensor/cuda/embeddings.h"
#include "tensor/cuda/numbers.h"
#include "tensor/device.h"

namespace rubato {
namespace ends {

// A row of logits, a block's.
template <typename T>
struct CrossEntropyRow {
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kAhead = 8;

  int64_t classes;
  double label_smoothing, gradient_scale;
  int64_t ignore_index;
  const T* logits;
  const int32_t* labels;
  const float* scale;
  T* gradient;
  double* rows;  // of each row its loss, and whether it was right

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    using A = Wide<T>;
    const int64_t row = block.index(), label = labels[row];
    const T* const x = logits + row * classes;
    T* const g = gradient + row * classes;
    if (label == ignore_index) {
      block.ForEach([&](int thread) {
        for (int64_t j = thread; j < classes; j += block.threads()) g[j] = T(0.0f);
        if (thread == 0) rows[2 * row] = rows[2 * row + 1] = 0;
      });
      return;
    }
    const auto load = [&](int64_t j) { return x[j]; };
    const A lowest = numbers::Lowest<A>();
    const A greatest = block.Reduce(
        lowest,
        [&](int thread) {
          A most = lowest;
          InTurn<kAhead>(thread, classes, block.threads(), load,
                         [&](int64_t, T value) { most = Greater()(most, Widen(value)); });
          return most;
        },
        Greater());
    // Of exponentials, and how many of the greatest lie before the label.
    const Pair<A> sums = block.Sum(Pair<A>{0, 0}, [&](int thread) {
      Pair<A> part = {0, 0};
      InTurn<kAhead>(thread, classes, block.threads(), load, [&](int64_t j, T value) {
        part.first += numbers::Exp(Widen(value) - greatest);
        if (j < label && Widen(value) == greatest) part.second += 1;
      });
      return part;
    });
    const A sum = sums.first;
    const double even = label_smoothing / static_cast<double>(classes);
    const double below = even == 0 ? 0 : block.Sum(0.0, [&](int thread) {
      double part = 0;
      InTurn<kAhead>(thread, classes, block.threads(), load, [&](int64_t, T value) {
        part += static_cast<double>(greatest) - static_cast<double>(Widen(value));
      });
      return part;
    });
    const double own = 1 - label_smoothing;
    const A factor = static_cast<A>(gradient_scale) * static_cast<A>(*scale);
    block.ForEach([&](int thread) {
      if (thread == 0) {
        const double log_sum = log(static_cast<double>(sum));
        const A own_logit = Widen(x[label]);
        double loss = log_sum + (static_cast<double>(greatest) - static_cast<double>(own_logit));
        if (even > 0) loss = own * loss + even * (static_cast<double>(classes) * log_sum + below);
        rows[2 * row] = loss;
        rows[2 * row + 1] = own_logit == greatest && sums.second == 0 ? 1 : 0;
      }
      InTurn<kAhead>(thread, classes, block.threads(), load, [&](int64_t j, T loaded) {
        A value = numbers::Exp(Widen(loaded) - greatest) / sum - static_cast<A>(even);
        if (j == label) value -= static_cast<A>(own);
        g[j] = static_cast<T>(value * factor);
      });
    });
  }

  Traffic Moves(int64_t n) const {
    return {n * (classes * SizeInBytes<T>() + SizeInBytes<int32_t>()) + SizeInBytes<float>(),
            n * (classes * SizeInBytes<T>() + 2 * SizeInBytes<double>()), SizeInBytes<T>()};
  }
};

// The squared errors of a row, a block's.
template <typename T>
struct SquaredErrorRow {
  static constexpr int kMostThreads = kUsualThreads;

  int64_t columns;
  double factor;
  const T* x;
  const float* targets;
  const float* scale;
  T* gradient;
  double* rows;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    using A = Wide<T>;
    const int64_t begin = block.index() * columns;
    const double sum = block.Sum(0.0, [&](int thread) {
      double part = 0;
      for (int64_t j = begin + thread; j < begin + columns; j += block.threads()) {
        const A difference = Widen(x[j]) - static_cast<A>(targets[j]);
        part += static_cast<double>(difference) * static_cast<double>(difference);
        gradient[j] =
            static_cast<T>(static_cast<A>(2 * factor) * difference * static_cast<A>(*scale));
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
      queue_.Launch(labels.size(), ThreadsFor(classes),
                    ends::CrossEntropyRow<T>{
                        classes, options.label_smoothing, options.gradient_scale,
                        options.ignore_index, Pointer<T>(logits), Pointer<int32_t>(labels),
                        Pointer<float>(scale), Pointer<T>(gradient), Pointer<double>(rows)});
    });
    AddUp(labels.size(), rows, sums);
  }

  void SquaredErrors(const ConstTensorRef& x, const ConstTensorRef& targets, double factor,
                     const ConstTensorRef& scale, const TensorRef& gradient, const TensorRef& rows,
                     const TensorRef& sums) override {
    const int64_t columns = x.dim(1);
    ByType<Queue>(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      queue_.Launch(x.dim(0), ThreadsFor(columns),
                    ends::SquaredErrorRow<T>{columns, factor, Pointer<T>(x),
                                             Pointer<float>(targets), Pointer<float>(scale),
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
