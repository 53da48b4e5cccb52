#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "tensor/cuda/emulated_queue.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/product_timer.h"

namespace rubato {
namespace {

double SecondsOf(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class EmulatedProductTimer final : public ProductTimer {
 public:
  explicit EmulatedProductTimer(ProductPrecision precision) : queue_(precision, /*seed=*/1) {}

  absl::StatusOr<ProductTime> Time(const Product& product) override {
    ProductTime time = {};
    ByType<EmulatedQueue>(product.a.dtype, [&](auto zero) {
      using T = decltype(zero);
      time = product.c.dtype == DTypeOf<T>() ? TimeAs<T, T>(product) : TimeAs<T, float>(product);
    });
    return time;
  }

 private:
  template <typename T>
  std::vector<T> Draw(int64_t size) {
    std::vector<T> values(size);
    for (T& value : values) value = static_cast<T>(random_.Uniform(-1, 1));
    return values;
  }

  template <typename T, typename C>
  ProductTime TimeAs(Product p) {
    const std::vector<T> a = Draw<T>(ExtentOfA(p)), b = Draw<T>(ExtentOfB(p));
    std::vector<C> c(ExtentOfC(p), C(0)), bias(p.n, C(0));
    std::vector<double> alone(c.size());
    p.a.values = a.data();
    p.b.values = b.data();
    p.c.values = c.data();
    if (p.bias != nullptr) p.bias = bias.data();
    ProductTime time = {};
    time.seconds = SecondsOf([&] {
      queue_.Multiply(p);
      queue_.Run([] { return false; });
    });
    time.alone_seconds = SecondsOf([&] {
      for (int64_t i = 0; i < p.count; ++i) MultiplyPlainly(p, i, a.data(), b.data(), &alone);
    });
    double most = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      most = std::max(most, std::fabs(alone[i]));
      const double off = std::fabs(static_cast<double>(Widen(c[i])) - alone[i]);
      if (!(off <= time.difference)) time.difference = off;  // also what is no number
    }
    if (most > 0) time.difference /= most;
    return time;
  }

  template <typename T>
  static void MultiplyPlainly(const Product& p, int64_t i, const T* a, const T* b,
                              std::vector<double>* c) {
    const auto at = [](const Matrix& matrix, Transpose transpose, int64_t row, int64_t column) {
      return transpose == Transpose::kYes ? column * matrix.pitch + row
                                          : row * matrix.pitch + column;
    };
    for (int64_t row = 0; row < p.m; ++row) {
      for (int64_t column = 0; column < p.n; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum +=
              static_cast<double>(Widen(a[i * p.a.distance + at(p.a, p.transpose_a, row, k)])) *
              static_cast<double>(Widen(b[i * p.b.distance + at(p.b, p.transpose_b, k, column)]));
        }
        (*c)[i * p.c.distance + row * p.c.pitch + column] = p.alpha * sum;
      }
    }
  }

  EmulatedQueue queue_;
  RandomStream random_{1};
};

}  // namespace

std::unique_ptr<ProductTimer> MakeEmulatedProductTimer(ProductPrecision precision) {
  return std::make_unique<EmulatedProductTimer>(precision);
}

}  // namespace rubato
