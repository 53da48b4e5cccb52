#include "worker/step/residuals.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/frames/codec.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// Small integers, whose sums are exact.
std::vector<float> Gradient(uint64_t key, size_t n) {
  RandomStream stream(key);
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(stream.Below(41)) - 20;
  return values;
}

std::vector<float> Send(Residuals* residuals, Range range, const std::vector<float>& gradient,
                        bool first, size_t k) {
  std::vector<char> bytes(EncodedBound(Codec::kTopK, k));
  residuals->Encode(range, gradient, {first, 1}, k, bytes.data());
  const auto encoded = Encoded::Create(Codec::kTopK, bytes, gradient.size());
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  std::vector<float> values(gradient.size());
  encoded->Decode(0, absl::MakeSpan(values));
  return values;
}

TEST(Residuals, WithoutMomentumAllArrivesInTheEnd) {
  constexpr size_t kValues = 50;
  Residuals residuals(100 + kValues, {});
  const Range range = {100, 100 + kValues};
  std::vector<float> produced(kValues), sent(kValues);
  const auto add = [](const std::vector<float>& values, std::vector<float>* sum) {
    std::transform(values.begin(), values.end(), sum->begin(), sum->begin(), std::plus<float>());
  };
  for (int step = 0; step < 30; ++step) {
    const std::vector<float> gradient = Gradient(step, kValues);
    add(gradient, &produced);
    add(Send(&residuals, range, gradient, true, 5), &sent);
  }
  EXPECT_NE(sent, produced);
  add(Send(&residuals, range, std::vector<float>(kValues), true, kValues), &sent);
  EXPECT_EQ(sent, produced);
}

// The paper's algorithm in double precision, with a sort; of one step's sums at once.
struct Reference {
  std::vector<double> u, v;
  std::vector<double> Send(const std::vector<double>& g, double momentum, bool nesterov, size_t k) {
    for (size_t i = 0; i < g.size(); ++i) {
      u[i] = momentum * u[i] + g[i];
      v[i] += nesterov ? g[i] + momentum * u[i] : u[i];
    }
    std::vector<size_t> order(g.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
    std::vector<double> sent(g.size());
    for (size_t i = 0; i < k; ++i) {
      std::swap(sent[order[i]], v[order[i]]);
      u[order[i]] = 0;
    }
    return sent;
  }
};

TEST(Residuals, KeepsTheMomentumOfWhatWaits) {
  constexpr size_t kValues = 40;
  for (bool nesterov : {false, true}) {
    Residuals residuals(kValues, {0.5f, nesterov});  // 1/2: exact
    Reference reference = {std::vector<double>(kValues), std::vector<double>(kValues)};
    for (int step = 0; step < 15; ++step) {
      const std::vector<float> gradient = Gradient(step, kValues);
      const std::vector<float> sent = Send(&residuals, {0, kValues}, gradient, true, 4);
      const std::vector<double> expected =
          reference.Send({gradient.begin(), gradient.end()}, 0.5, nesterov, 4);
      for (size_t i = 0; i < kValues; ++i) {
        EXPECT_NEAR(sent[i], expected[i], 1e-5 * std::abs(expected[i])) << step << " " << i;
      }
    }
  }
}

TEST(Residuals, TheSumsOfOneStepShareItsMomentum) {
  constexpr size_t kValues = 16;
  for (bool nesterov : {false, true}) {
    Residuals whole(kValues, {0.5f, nesterov}), parts(kValues, {0.5f, nesterov});
    for (int step = 0; step < 5; ++step) {
      const std::vector<float> first = Gradient(Key(1, step), kValues);
      const std::vector<float> second = Gradient(Key(2, step), kValues);
      std::vector<float> sum(kValues);
      for (size_t i = 0; i < kValues; ++i) sum[i] = first[i] + second[i];
      // Nothing goes out before the step's end, when all does at the last step.
      const size_t k = step == 4 ? kValues : 0;
      const std::vector<float> expected = Send(&whole, {0, kValues}, sum, true, k);
      Send(&parts, {0, kValues}, first, true, 0);
      EXPECT_EQ(Send(&parts, {0, kValues}, second, false, k), expected);
    }
  }
}

TEST(Residuals, WarmsUpAsInThePaper) {
  EXPECT_NEAR(Residuals::DensityAt(0.001, 0, 4), 0.25, 2e-3);
  EXPECT_NEAR(Residuals::DensityAt(0.001, 1.5, 4), 0.0625, 1e-3);
  EXPECT_NEAR(Residuals::DensityAt(0.001, 3.9, 4), 0.004, 1e-4);
  EXPECT_EQ(Residuals::DensityAt(0.001, 4, 4), 0.001);
  EXPECT_EQ(Residuals::DensityAt(0.001, 0, 0), 0.001);
}

}  // namespace
}  // namespace rubato
