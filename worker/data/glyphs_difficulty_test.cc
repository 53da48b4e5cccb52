// The drawings must be neither trivial nor impossible: a linear model learns them, but stays well
// below what a network with a hidden layer reaches (whose training a whole-system test checks).
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <vector>

#include "common/space/permutation.h"
#include "gtest/gtest.h"
#include "worker/data/dataset.h"
#include "worker/data/glyphs.h"

namespace rubato {
namespace {

constexpr int kPixels = 28 * 28, kClasses = 10;

// Softmax regression, one example at a time; written for this test alone.
class SoftmaxRegression {
 public:
  std::vector<float> Probabilities(const float* pixels) const {
    std::vector<float> outputs(bias_);
    for (int c = 0; c < kClasses; ++c) {
      // Sums of their own for eight columns, or the compiler may not use vectors.
      float sums[8] = {};
      for (int i = 0; i < kPixels; i += 8) {
        for (int j = 0; j < 8; ++j) sums[j] += weight_[c * kPixels + i + j] * pixels[i + j];
      }
      outputs[c] += std::accumulate(sums, sums + 8, 0.0f);
    }
    const float largest = *std::max_element(outputs.begin(), outputs.end());
    float total = 0;
    for (float& output : outputs) total += output = std::exp(output - largest);
    for (float& output : outputs) output /= total;
    return outputs;
  }

  void Learn(const float* pixels, int label, float rate) {
    const std::vector<float> probabilities = Probabilities(pixels);
    for (int c = 0; c < kClasses; ++c) {
      const float step = rate * ((c == label ? 1.0f : 0.0f) - probabilities[c]);
      for (int i = 0; i < kPixels; ++i) weight_[c * kPixels + i] += step * pixels[i];
      bias_[c] += step;
    }
  }

 private:
  std::vector<float> weight_ = std::vector<float>(kClasses * kPixels);
  std::vector<float> bias_ = std::vector<float>(kClasses);
};

double Accuracy(const SoftmaxRegression& model, const Dataset& dataset) {
  std::vector<float> pixels(kPixels);
  int32_t label;
  int right = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.Read({i}, pixels.data(), &label);
    const std::vector<float> p = model.Probabilities(pixels.data());
    right += std::max_element(p.begin(), p.end()) - p.begin() == label;
  }
  return static_cast<double>(right) / dataset.size();
}

TEST(GlyphsDifficultyTest, ALinearModelLearnsThemButNotWell) {
  const Normalization none = {{0}, {1}};
  const Dataset train(DrawGlyphs(0, "train", 60000), none);
  const Dataset test(DrawGlyphs(0, "test", 10000), none);
  SoftmaxRegression model;
  std::vector<float> pixels(kPixels);
  int32_t label;
  constexpr int kEpochs = 5;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const float rate = 0.01f * (1 - static_cast<float>(epoch) / kEpochs);
    for (int64_t i = 0; i < train.size(); ++i) {
      const int64_t sample = SampleAt(1, epoch, i, train.size());
      train.Read({sample}, pixels.data(), &label);
      model.Learn(pixels.data(), label, rate);
    }
  }
  const double accuracy = Accuracy(model, test);
  std::cout << "test accuracy " << accuracy << std::endl;
  EXPECT_LT(accuracy, 0.93);
  EXPECT_GT(accuracy, 0.80);  // PyTorch reaches 0.84 to 0.86
}

}  // namespace
}  // namespace rubato
