// Kernels of single values and of losses, in the types that GPUs train in, on an emulated GPU and
// on a real one: against the CPU's in float64, on the same rounded operands. Layers are tested in
// worker/model/conformance_test.cc.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/single_value_kernels.h"
#include "tensor/cuda/tested_gpu.h"
#include "tensor/half_float.h"
#include "tensor/kernels.h"

namespace rubato {
namespace {

using Values = std::vector<double>;

// Calls f with a zero of the type.
template <typename F>
void OfType(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat16:
      return f(Float16(0));
    case DType::kBFloat16:
      return f(BFloat16(0));
    case DType::kFloat32:
      return f(float{0});
    default:
      return f(double{0});
  }
}

class DeviceKernelsTest : public ::testing::TestWithParam<std::tuple<TestedGpu, DType>> {
 protected:
  void SetUp() override {
    const std::string absent = WhyAbsent(std::get<0>(GetParam()));
    if (!absent.empty()) GTEST_SKIP() << absent;
    absl::StatusOr<std::unique_ptr<Device>> device = OpenTested(std::get<0>(GetParam()));
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  DeviceKernels& kernels() { return device_->kernels(); }

  // Whether what is in one piece is cuDNN's on a GPU, and no plain loops': of the emulated GPU, or
  // beside the runtime in CUDA's place (fake_cuda.h).
  bool HasFastLibrary() const {
    return std::get<0>(GetParam()) == TestedGpu::kReal && !device_->fused_by().empty() &&
           !absl::StartsWith(device_->description(), "Fake");
  }

  // Numbers of the type.
  Values Draw(int64_t n, uint64_t key, double greatest = 1) {
    RandomStream stream(key);
    Values values(n);
    OfType(dtype_, [&](auto zero) {
      using T = decltype(zero);
      for (double& value : values) {
        value = Widen(T(static_cast<float>(greatest * stream.Uniform(-1, 1))));
      }
    });
    return values;
  }

  template <typename T>
  TensorRef Send(const std::vector<T>& values) {
    const TensorRef to = Take(static_cast<int64_t>(values.size()), DTypeOf<T>());
    device_->Upload(Stream::kCompute, values.data(), const_cast<void*>(to.address()),
                    static_cast<int64_t>(values.size() * sizeof(T)));
    device_->Synchronize();
    return to;
  }
  // In the type.
  TensorRef Send(const Values& values) {
    TensorRef sent;
    OfType(dtype_, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> converted;
      for (double value : values) converted.push_back(T(static_cast<float>(value)));
      sent = Send<T>(converted);
    });
    return sent;
  }

  TensorRef Take(int64_t n, DType dtype) {
    const absl::StatusOr<void*> memory = device_->Allocate(n * BytesOf(dtype));
    RUBATO_CHECK(memory.ok());
    return TensorRef::At(*memory, dtype, {n});
  }
  TensorRef Take(int64_t n) { return Take(n, dtype_); }

  Values Receive(const TensorRef& from) {
    Values values(from.size());
    OfType(from.dtype(), [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> found(from.size());
      device_->Download(Stream::kCompute, from.address(), found.data(),
                        static_cast<int64_t>(found.size() * sizeof(T)));
      device_->Synchronize();
      std::transform(found.begin(), found.end(), values.begin(), [](T v) { return Widen(v); });
    });
    return values;
  }

  // But for float32's roundings on the way, and the type's of the result.
  void ExpectNear(const char* what, const TensorRef& found, const Values& expected,
                  double greatest = 1) {
    const Values values = Receive(found);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(values[i], expected[i],
                  4e-6 * (greatest + std::abs(expected[i])) + rounding_ * std::abs(expected[i]))
          << what << ", value " << i;
    }
  }

  const DType dtype_ = std::get<1>(GetParam());
  const double rounding_ = dtype_ == DType::kBFloat16  ? 0x1p-8
                           : dtype_ == DType::kFloat16 ? 0x1p-11
                                                       : 0x1p-24;
  std::unique_ptr<Device> device_;
};

TEST_P(DeviceKernelsTest, OfSingleValues) {
  const int64_t n = 6007;
  const Values x = Draw(n, 1, 4), dy = Draw(n, 2);
  const TensorRef on_device = Send(x), dy_on_device = Send(dy);
  const auto unary = [&](const char* what, auto function) {
    Values expected(n);
    const TensorRef found = Take(n);
    (CpuKernels().*function)(x, expected);
    (kernels().*function)(on_device, found);
    ExpectNear(what, found, expected);
  };
  const auto binary = [&](const char* what, auto function) {
    Values expected(n);
    const TensorRef found = Take(n);
    (CpuKernels().*function)(x, dy, expected);
    (kernels().*function)(on_device, dy_on_device, found);
    ExpectNear(what, found, expected, 16);  // 1 - y * y
  };
  ForEachOfSingleValues(unary, binary);
  const TensorRef zeros = Send(x);
  kernels().SetToZero(zeros);
  EXPECT_EQ(Receive(zeros), Values(n, 0.0));
}

// Of values one by one, and of packs.
TEST_P(DeviceKernelsTest, OfGelu) {
  for (const int64_t n : {6007, 6008}) {
    const Values x = Draw(n, 1, 9);
    const TensorRef on_device = Send(x);
    for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) {
      Values y(n), derivative(n);
      CpuKernels().GeluWithDerivative(form, x, y, derivative);
      const TensorRef found = Take(n), with = Take(n), slope = Take(n);
      kernels().Gelu(form, on_device, found);
      kernels().GeluWithDerivative(form, on_device, with, slope);
      ExpectNear("gelu", found, y);
      ExpectNear("gelu beside its derivative", with, y);
      ExpectNear("gelu's derivative", slope, derivative);
    }
  }
}

// To the type's rounding of each value, small ones too.
TEST_P(DeviceKernelsTest, OfGeluBelowZero) {
  Values x;
  for (int i = 0; i < 2000; ++i) x.push_back(-i / 160.0);
  OfType(dtype_, [&](auto zero) {
    for (double& value : x) value = Widen(decltype(zero)(static_cast<float>(value)));
  });
  Values y(x.size()), derivative(x.size());
  CpuKernels().GeluWithDerivative(GeluForm::kExact, x, y, derivative);
  const TensorRef found = Take(static_cast<int64_t>(x.size()));
  kernels().Gelu(GeluForm::kExact, Send(x), found);
  const Values values = Receive(found);
  const double least = dtype_ == DType::kFloat16 ? 0x1p-24 : 0x1p-126;
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(values[i], y[i], (rounding_ + 2e-5) * std::abs(y[i]) + least) << x[i];
  }
}

// Zeros of both signs, the least and the greatest numbers, and what is beyond them.
TEST_P(DeviceKernelsTest, OfExtremeValues) {
  const double least = dtype_ == DType::kFloat16 ? 0x1p-24 : 0x1p-133, greatest = 0x1.ep15;
  Values each, x, dy;  // each with each
  for (const double value : {0.0, least, 3 * least, 0x1p-14, 1.0, 4.0, 12.0, 100.0, greatest,
                             static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    each.insert(each.end(), {value, -value});
  }
  for (const double value : each) {
    x.insert(x.end(), each.size(), value);
    dy.insert(dy.end(), each.begin(), each.end());
  }
  const int64_t n = static_cast<int64_t>(x.size());
  const TensorRef x_there = Send(x), dy_there = Send(dy);
  const auto expect = [&](const char* what, auto call) {
    Values exact(n);
    const TensorRef result = Take(n);
    call(CpuKernels(), x, dy, exact);
    call(kernels(), x_there, dy_there, result);
    const Values found = Receive(result),
                 expected = Receive(Send(exact));  // as numbers of the type
    for (int64_t i = 0; i < n; ++i) {
      SCOPED_TRACE(absl::StrCat(what, " of ", x[i], " and ", dy[i]));
      if (std::isnan(expected[i]) && std::isinf(x[i])) {
        EXPECT_TRUE(std::isnan(found[i]) || found[i] == 0) << found[i];  // 0 times infinity
      } else if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(found[i])) << found[i];
      } else if (std::isinf(expected[i])) {
        EXPECT_EQ(found[i], expected[i]);
      } else {
        EXPECT_NEAR(found[i], expected[i], (1e-5 + rounding_) * std::abs(expected[i]) + least);
      }
    }
  };
  const auto unary = [&](const char* what, auto function) {
    expect(what, [&](KernelSet& k, const ConstTensorRef& from, const ConstTensorRef&,
                     const TensorRef& to) { (k.*function)(from, to); });
  };
  const auto binary = [&](const char* what, auto function) {
    expect(what, [&](KernelSet& k, const ConstTensorRef& from, const ConstTensorRef& with,
                     const TensorRef& to) { (k.*function)(from, with, to); });
  };
  ForEachOfSingleValues(unary, binary);
  for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) {
    expect("gelu", [&](KernelSet& k, const ConstTensorRef& from, const ConstTensorRef&,
                       const TensorRef& to) { k.Gelu(form, from, to); });
  }
}

TEST_P(DeviceKernelsTest, DropoutDrawsTheSameNumbers) {
  const int64_t n = 5003;
  const Values x = Draw(n, 1);
  const uint64_t key = 0x123456789abcdef;
  double bits;
  std::memcpy(&bits, &key, sizeof bits);
  const TensorRef on_device = Send(x), found = Take(n), keys = Send<double>({bits});
  for (const double p : {0.1, 0.5}) {
    Values expected(n);
    CpuKernels().Dropout(&key, p, x, expected);
    kernels().Dropout(static_cast<const uint64_t*>(keys.address()), p, on_device, found);
    ExpectNear("dropout", found, expected);
  }
}

TEST_P(DeviceKernelsTest, ConvertRoundsToNearest) {
  RandomStream stream(1);
  std::vector<float> x = {0, -0.0f, 1, -1, 1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1p-11f, 60000, 0x1p-24f};
  for (int i = 0; i < 5000; ++i) x.push_back(stream.Uniform(-100, 100));
  const TensorRef found = Take(static_cast<int64_t>(x.size()));
  kernels().Convert(Send<float>(x), found);
  Values expected;
  OfType(dtype_, [&](auto zero) {
    for (float value : x) expected.push_back(Widen(decltype(zero)(value)));
  });
  EXPECT_EQ(Receive(found), expected);
}

TEST_P(DeviceKernelsTest, OfCrossEntropy) {
  const int64_t rows = 700;
  for (const int64_t classes : {3, 65, 1000}) {
    const Values logits = Draw(rows * classes, 1, 8);  // of half floats some are equal
    std::vector<int32_t> labels(rows);
    RandomStream stream(2);
    for (int32_t& label : labels) label = static_cast<int32_t>(stream.Below(classes));
    const Values drawn = Draw(classes, 3);
    std::vector<float> weights;
    for (const double value : drawn) weights.push_back(std::abs(static_cast<float>(value)));
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (CrossEntropyOptions options : {CrossEntropyOptions{}, CrossEntropyOptions{0.1, 2, 0.25},
                                        CrossEntropyOptions{0, -1, 1, weights.data(), all},
                                        CrossEntropyOptions{0.1, 2, 0.25, weights.data(), all}}) {
      SCOPED_TRACE(absl::StrCat(classes, " classes"));
      Values expected(rows * classes);
      const CrossEntropySums e = SoftmaxCrossEntropy(
          ConstTensorRef(logits).Reshaped({rows, classes}), labels, options, expected);
      for (double& value : expected) value *= 8;
      const TensorRef gradient = Take(rows * classes), sums = Take(2, DType::kFloat64);
      if (options.class_weights != nullptr) {
        options.class_weights = Send<float>(weights).values<float>().data();
      }
      kernels().CrossEntropy(Send(logits).Reshaped({rows, classes}), Send<int32_t>(labels), options,
                             Send<float>({8}), gradient, Take(2 * rows, DType::kFloat64), sums);
      const Values found = Receive(sums);
      EXPECT_NEAR(found[0], e.loss, 1e-5 * e.loss);
      EXPECT_EQ(found[1], e.correct);
      ExpectNear("gradient", gradient, expected, 8);
    }
  }
}

// Classes that cannot be, logits that are far from each other or all the same, of which the first
// is the answer; and a row that is left out.
TEST_P(DeviceKernelsTest, OfCrossEntropyOfExtremeLogits) {
  const int64_t rows = 6;
  for (const int64_t classes : {5, 40, 2053}) {
    SCOPED_TRACE(absl::StrCat(classes, " classes"));
    Values logits(rows * classes);
    for (int64_t j = 0; j < classes; ++j) {
      logits[j] = j % 3 == 0 ? -INFINITY : 0.25 * static_cast<double>(j % 7);
      logits[classes + j] = j == 2 ? 60000 : -60000;
      logits[2 * classes + j] = -60000;
      logits[3 * classes + j] = logits[4 * classes + j] = 2;
      logits[5 * classes + j] = j < classes / 2 ? -INFINITY : 1;
    }
    OfType(dtype_, [&](auto zero) {
      using T = decltype(zero);
      for (double& value : logits) value = Widen(T(static_cast<float>(value)));
    });
    const std::vector<int32_t> labels = {1, 2, 3, 0, 1, 3};
    const CrossEntropyOptions options{0, 3, 1};
    Values expected(rows * classes);
    const CrossEntropySums e = SoftmaxCrossEntropy(ConstTensorRef(logits).Reshaped({rows, classes}),
                                                   labels, options, expected);
    const TensorRef gradient = Take(rows * classes), sums = Take(2, DType::kFloat64);
    kernels().CrossEntropy(Send(logits).Reshaped({rows, classes}), Send<int32_t>(labels), options,
                           Send<float>({1}), gradient, Take(2 * rows, DType::kFloat64), sums);
    const Values found = Receive(sums);
    EXPECT_NEAR(found[0], e.loss, 1e-5 * e.loss);
    EXPECT_EQ(found[1], e.correct);
    EXPECT_EQ(found[1], 2) << "of equals the first";
    ExpectNear("gradient", gradient, expected);
  }
}

// Rows where packs may lie, and the same ones one value further: the same bits.
TEST_P(DeviceKernelsTest, OfRowsThatAreNotAligned) {
  const int64_t rows = 3, n = rows * 800;
  for (const int64_t columns : {40, 800}) {
    const int64_t size = rows * columns;
    const Values x = Draw(size, 1, 4), dy = Draw(size, 2), weight = Draw(columns, 3);
    const std::vector<float> wide(weight.begin(), weight.end());
    Values runs[2];
    for (const int64_t off : {0, 1}) {
      const auto at = [&](const TensorRef& values, const Shape& shape) {
        const char* const from = static_cast<const char*>(values.address());
        return TensorRef::At(const_cast<char*>(from) + off * BytesOf(values.dtype()),
                             values.dtype(), shape);
      };
      const Shape shape = {rows, columns};
      const auto sent = [&](const Values& values) {
        Values moved(off, 0.0);
        moved.insert(moved.end(), values.begin(), values.end());
        return at(Send(moved), shape);
      };
      const TensorRef xs = sent(x), dys = sent(dy);
      const TensorRef y = at(Take(n + 8), shape), dx = at(Take(n + 8), shape),
                      gradient = at(Take(n + 8), shape);
      const TensorRef weights = Send<float>(wide), statistics = Take(2 * rows, DType::kFloat32);
      kernels().LayerNorm(xs, weights, weights, 1e-5, y, statistics);
      kernels().LayerNormBackward(xs, weights, statistics, dys, dx, {}, {});
      kernels().CrossEntropy(xs, Send<int32_t>({1, 39, 7}), {}, Send<float>({8}), gradient,
                             Take(2 * rows, DType::kFloat64), Take(2, DType::kFloat64));
      for (const TensorRef& found : {y, dx, gradient, statistics}) {
        const Values values = Receive(found);
        runs[off].insert(runs[off].end(), values.begin(), values.end());
      }
      Values expected(size), deviations(2 * rows);
      CpuKernels().LayerNorm(ConstTensorRef(x).Reshaped(shape), weight, weight, 1e-5,
                             TensorRef(expected).Reshaped(shape), deviations);
      ExpectNear("layer norm", y, expected);
    }
    EXPECT_EQ(runs[0], runs[1]) << columns;
  }
}

// A score's rounding to a half float is an error of its probability, here of up to e^(1/16). What
// is left is the rounding of the probability itself.
TEST_P(DeviceKernelsTest, AttentionsScoresAreNotRounded) {
  const int64_t n = 3, places = 33;
  for (const int64_t heads : {1, 2, 5}) {  // one product for each head, or for each example
    const int64_t size = 4, channels = heads * size, scores = n * heads * places * places;
    const Values x = Draw(n * places * 3 * channels, 7, 4);
    Values y(n * places * channels), p(scores);
    for (const bool causal : {false, true}) {
      const Attention attention = {heads, places, channels, causal, dtype_};
      CpuKernels().ScaledDotProductAttention(heads, causal,
                                             ConstTensorRef(x).Reshaped({n, places, 3 * channels}),
                                             TensorRef(y).Reshaped({n, places, channels}), p, {});
      const TensorRef found = Take(scores), out = Take(n * places * channels);
      kernels().ScaledDotProductAttention(heads, causal,
                                          Send(x).Reshaped({n, places, 3 * channels}),
                                          out.Reshaped({n, places, channels}), found,
                                          Take(kernels().MemoryOf(attention, n).scratch));
      const Values values = Receive(found);
      for (int64_t i = 0; i < scores; ++i) {
        // Smallest numbers of float16 are 2^-24 apart.
        ASSERT_NEAR(values[i], p[i], (rounding_ + 2e-5) * p[i] + 0x1p-25) << heads << " " << i;
      }
    }
  }
}

// Probabilities, and what they are multiplied by on the way back, are rounded once, as factors. On
// a real GPU this is cuDNN's, where that is there and takes it, also of a size that it is made for.
TEST_P(DeviceKernelsTest, FusedAttentionIsNearAndTheSameEachTime) {
  const TestedGpu gpu = std::get<0>(GetParam());
  EmulatedDeviceOptions options;
  options.attention = AttentionForm::kFused;
  device_ = *OpenTested(gpu, options);
  struct Subject {
    int64_t n, heads, places, size;
  };
  const std::vector<Subject> subjects = {{2, 3, 40, 16}, {3, 1, 33, 8}, {2, 12, 1024, 64}};
  for (const auto& [n, heads, places, size] : subjects) {
    const bool is_large = places > 1000;  // else for nothing
    if (is_large && !HasFastLibrary()) continue;
    for (const bool causal : {false, true}) {
      const int64_t channels = heads * size;
      SCOPED_TRACE(absl::StrCat(places, " places, causal: ", causal));
      const Shape in = {n, places, 3 * channels}, out = {n, places, channels};
      const Values x = Draw(SizeOf(in), 7, 2), dy = Draw(SizeOf(out), 8);
      Values y(dy.size()), dx(x.size()), p(n * heads * places * places), one(places * places);
      CpuKernels().ScaledDotProductAttention(heads, causal, ConstTensorRef(x).Reshaped(in),
                                             TensorRef(y).Reshaped(out), p, {});
      CpuKernels().ScaledDotProductAttentionBackward(
          heads, causal, ConstTensorRef(x).Reshaped(in), ConstTensorRef(y).Reshaped(out), p,
          ConstTensorRef(dy).Reshaped(out), TensorRef(dx).Reshaped(in), one);
      const AttentionMemory memory =
          kernels().MemoryOf({heads, places, channels, causal, dtype_}, n);
      const TensorRef xs = Send(x).Reshaped(in), ys = Take(SizeOf(out)).Reshaped(out),
                      dys = Send(dy).Reshaped(out), saved = Take(memory.saved),
                      scratch = Take(memory.scratch);
      kernels().ScaledDotProductAttention(heads, causal, xs, ys, saved, scratch);
      const Values found = Receive(ys);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(found[i], y[i], 4 * rounding_ + 1e-5) << "y " << i;
      }
      Values runs[2];
      for (Values& run : runs) {
        const TensorRef dxs = Take(SizeOf(in)).Reshaped(in);
        kernels().ScaledDotProductAttentionBackward(heads, causal, xs, ys, saved, dys, dxs,
                                                    scratch);
        run = Receive(dxs);
      }
      EXPECT_EQ(runs[0], runs[1]);
      for (size_t i = 0; i < dx.size(); ++i) {
        ASSERT_NEAR(runs[0][i], dx[i], 8 * rounding_ * (1 + std::abs(dx[i])) + 1e-5) << "dx " << i;
      }
    }
  }
}

// Likewise: results are rounded once, gradients by weights not at all.
TEST_P(DeviceKernelsTest, FusedConvolutionsAreNearAndTheSameEachTime) {
  const TestedGpu gpu = std::get<0>(GetParam());
  EmulatedDeviceOptions options;
  options.convolution = ConvolutionForm::kFused;
  device_ = *OpenTested(gpu, options);
  struct Subject {
    Convolution convolution;
    int64_t n;
  };
  constexpr ChannelOrder kFirst = ChannelOrder::kFirst, kLast = ChannelOrder::kLast;
  const std::vector<Subject> subjects = {{{{7, 9, 3, 1, 1}, 4, 34, 1}, 3},
                                         {{{7, 9, 3, 1, 1}, 8, 40, 1}, 3},
                                         {{{7, 9, 3, 1, 1}, 8, 40, 1, kLast, kLast}, 3},
                                         {{{13, 11, 3, 2, 1}, 40, 6, 1, kFirst, kLast}, 2},
                                         {{{13, 11, 3, 2, 1}, 40, 8, 1, kFirst, kLast}, 2},
                                         {{{6, 5, 1, 2, 0}, 8, 16, 1, kLast, kFirst}, 2},
                                         {{{4, 4, 3, 1, 1}, 8, 8, 1, kLast, kLast}, 2},
                                         {{{32, 32, 3, 2, 1}, 64, 128, 1, kLast, kLast}, 16}};
  for (const auto& [c, n] : subjects) {
    const bool is_large = c.in_channels == 64;  // for a GPU's own library alone
    if (is_large && !HasFastLibrary()) continue;
    // Products round more often.
    if (IsHalf(dtype_) && !kernels().ComputesChannelsLast(c, dtype_, n + 2)) continue;
    SCOPED_TRACE(absl::StrCat(c.in_channels, " to ", c.out_channels, " channels"));
    const Window& w = c.window;
    const Shape in = {n, c.in_channels, w.height, w.width};
    const Shape out = {n, c.out_channels, w.out_height(), w.out_width()};
    Values x = Draw(SizeOf(in), 7), dy = Draw(SizeOf(out), 8);
    const Values weight = Draw(c.out_channels * c.filter(), 9), bias = Draw(c.out_channels, 10);
    Values y(dy.size()), dx(x.size()), dweight(weight.size()), dbias(bias.size());
    Values one(CpuKernels().ConvolutionScratch(c, DType::kFloat64, n));
    const Convolution first = {w, c.in_channels, c.out_channels, c.groups};
    CpuKernels().Conv2d(first, ConstTensorRef(x).Reshaped(in), weight, bias,
                        TensorRef(y).Reshaped(out), one);
    CpuKernels().Conv2dBackward(first, ConstTensorRef(x).Reshaped(in), weight,
                                ConstTensorRef(dy).Reshaped(out), TensorRef(dx).Reshaped(in),
                                dweight, dbias, one);
    const auto turn = [&](ChannelOrder order, int64_t channels, Values* values) {
      if (order == kFirst) return;
      const Values from = *values;
      const int64_t plane = static_cast<int64_t>(from.size()) / n / channels;
      CpuKernels().Turn(ConstTensorRef(from).Reshaped({n, channels, plane}), *values);
    };
    for (Values* const values : {&x, &dx}) turn(c.x_order, c.in_channels, values);
    for (Values* const values : {&y, &dy}) turn(c.y_order, c.out_channels, values);
    const TensorRef xs = Send(x).Reshaped(in), dys = Send(dy).Reshaped(out);
    const DType wide = DType::kFloat32;
    const TensorRef weights = Send(weight), biases = Send(bias);
    if (kernels().ComputesChannelsLast(c, dtype_, n)) {
      const Shape filters = {c.out_channels, c.in_channels, w.kernel * w.kernel};
      const std::vector<float> given(weight.begin(), weight.end());
      kernels().ConvertFilters(Send<float>(given).Reshaped(filters), weights);
    }
    // Planned for more examples than come.
    const TensorRef scratch = Take(kernels().ConvolutionScratch(c, dtype_, n + 2));
    Values runs[2];
    for (Values& run : runs) {
      const TensorRef found[] = {Take(SizeOf(out)).Reshaped(out), Take(SizeOf(in)).Reshaped(in),
                                 Take(static_cast<int64_t>(weight.size()), wide),
                                 Take(static_cast<int64_t>(bias.size()), wide)};
      kernels().Conv2d(c, xs, weights, biases, found[0], scratch);
      kernels().Conv2dBackward(c, xs, weights, dys, found[1], found[2], found[3], scratch);
      for (const TensorRef& values : found) {
        const Values received = Receive(values);
        run.insert(run.end(), received.begin(), received.end());
      }
    }
    EXPECT_EQ(runs[0], runs[1]);
    size_t at = 0;
    const auto expect = [&](const char* what, const Values& expected, double rounding) {
      for (size_t i = 0; i < expected.size(); ++i, ++at) {
        ASSERT_NEAR(runs[0][at], expected[i], rounding * (1 + std::abs(expected[i]))) << what << i;
      }
    };
    expect("y ", y, 2 * rounding_ + 1e-4);  // the bias is added to what is rounded
    expect("dx ", dx, rounding_ + 1e-4);
    expect("dweight ", dweight, 1e-4);
    expect("dbias ", dbias, 1e-4);
  }
}

TEST_P(DeviceKernelsTest, OfRegressions) {
  const int64_t rows = 700, columns = 300;
  Values x = Draw(rows * columns, 3);
  const std::vector<float> targets(x.size(), 0.25f);
  x[12345] = 0.25;
  for (const RegressionOptions& options :
       {RegressionOptions{RegressionForm::kSquared}, RegressionOptions{RegressionForm::kAbsolute},
        RegressionOptions{RegressionForm::kHuber, 0.5}}) {
    Values expected(x.size());
    const double e = RegressionLoss(x, targets, options, 0.5, expected);
    for (double& value : expected) value *= 4;
    const TensorRef gradient = Take(rows * columns), sums = Take(2, DType::kFloat64);
    kernels().RegressionLoss(Send(x).Reshaped({rows, columns}), Send<float>(targets), options, 0.5,
                             Send<float>({4}), gradient, Take(2 * rows, DType::kFloat64), sums);
    EXPECT_NEAR(Receive(sums)[0], e, 1e-5 * e);
    ExpectNear("gradient", gradient, expected, 4);
  }
}

TEST_P(DeviceKernelsTest, UnscaleDividesAndSeesOverflows) {
  for (const float odd : {3.0f, INFINITY, -INFINITY, NAN}) {
    std::vector<float> values(5003, 1.5f);
    values[4097] = odd;
    const TensorRef gradient = Send<float>(values), overflow = Send<double>({0});
    kernels().Unscale(Send<float>({8}), gradient, overflow);
    EXPECT_EQ(Receive(overflow)[0], std::isfinite(odd) ? 0 : 1) << odd;
    const Values found = Receive(gradient);
    EXPECT_EQ(found[0], 0.1875);
    EXPECT_EQ(std::isfinite(found[4097]), std::isfinite(odd));
  }
}

TEST_P(DeviceKernelsTest, FlagsWhatIsNotFinite) {
  for (const float odd : {std::numeric_limits<float>::max(), INFINITY, -INFINITY, NAN}) {
    for (const size_t at : {0, 4097, 5002}) {
      std::vector<float> values(at == 4097 ? 5004 : 5003, -1.5f);  // by packs, or value by value
      values[at] = odd;
      const TensorRef flag = Send<double>({0});
      kernels().FlagNonFinite(Send<float>(values), flag);
      EXPECT_EQ(Receive(flag)[0], std::isfinite(odd) ? 0 : 1) << odd << " at " << at;
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<DeviceKernelsTest::ParamType>& info) {
  return std::string(DTypeName(std::get<1>(info.param)));
}

const auto kTypes = ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16);

INSTANTIATE_TEST_SUITE_P(EmulatedGpu, DeviceKernelsTest,
                         ::testing::Combine(::testing::Values(TestedGpu::kEmulated), kTypes),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceKernelsTest,
                         ::testing::Combine(::testing::Values(TestedGpu::kReal), kTypes), NameOf);

}  // namespace
}  // namespace rubato
