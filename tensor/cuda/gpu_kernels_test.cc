// A GPU's kernels, emulated in float64 and on a real one in its own types, against the CPU's in
// float64, at sizes of many blocks, of rows longer than blocks have threads, and of lengths that
// nothing divides. What goldens of PyTorch hold, at smaller sizes, is tested with the layers.
#include "tensor/cuda/gpu_kernels.h"

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tensor/cuda/rounded_kernels.h"
#include "tensor/cuda/single_value_kernels.h"
#include "tensor/cuda/tested_gpu.h"

namespace rubato {
namespace {

using Values = std::vector<double>;

TensorRef As(Values& values, const Shape& shape) { return TensorRef(values).Reshaped(shape); }
ConstTensorRef As(const Values& values, const Shape& shape) {
  return ConstTensorRef(values).Reshaped(shape);
}

struct Parameter {
  TestedGpu gpu;
  uint64_t seed;  // of the emulated one
  DType dtype = DType::kFloat64;
};

// The distance of neighbours of 1, or what is left of some thousand roundings on the way.
double RoundingOf(DType dtype) {
  return dtype == DType::kBFloat16  ? 0x1p-7
         : dtype == DType::kFloat16 ? 0x1p-10
         : dtype == DType::kFloat32 ? 4e-6
                                    : 1e-12;
}

class GpuKernelsTest : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    const std::string absent = WhyAbsent(GetParam().gpu);
    if (!absent.empty()) GTEST_SKIP() << absent;
    Open();
  }

  void Open() {
    EmulatedDeviceOptions options;
    options.seed = GetParam().seed;
    options.columns = 100000;
    // What the library has no algorithm for is done in another way, to the same values.
    options.library = options.seed == 3   ? EmulatedLibrary::kNoBias
                      : options.seed == 4 ? EmulatedLibrary::kNothing
                                          : EmulatedLibrary::kWhole;
    absl::StatusOr<std::unique_ptr<Device>> device = OpenTested(GetParam().gpu, options);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  bool IsReal() const { return GetParam().gpu == TestedGpu::kReal; }

  // For a real GPU, multiples of 1/128, which are numbers of all its types.
  Values Draw(int64_t n, uint64_t key) const {
    RandomStream stream(key);
    Values values(n);
    for (double& value : values) {
      value = stream.Uniform(-1, 1);
      if (IsReal()) value = std::round(value * 128) / 128;
    }
    return values;
  }

  // That call(kernels, outputs), with outputs of these sizes, gives the same by both sets, but for
  // the roundings of sums of some thousand terms in another order.
  using Call = std::function<void(KernelSet& kernels, std::vector<Values>& outputs)>;
  void ExpectAlike(const char* what, const std::vector<int64_t>& sizes, const Call& call) {
    std::vector<Values> expected, found;
    for (int64_t size : sizes) expected.emplace_back(size, 77.0);
    found = expected;
    call(CpuKernels(), expected);
    std::vector<DType> dtypes(sizes.size(), DType::kFloat64);
    if (IsReal()) {
      Open();  // a call takes memory
      RoundedKernels kernels(device_.get(), GetParam().dtype);
      call(kernels, found);
      for (size_t k = 0; k < sizes.size(); ++k) dtypes[k] = kernels.TypeOf(found[k].data());
    } else {
      call(device_->kernels(), found);
      device_->Synchronize();
    }
    for (size_t k = 0; k < sizes.size(); ++k) {
      double greatest = 0;
      for (double value : expected[k]) greatest = std::max(greatest, std::abs(value));
      for (size_t i = 0; i < expected[k].size(); ++i) {
        ASSERT_NEAR(found[k][i], expected[k][i], RoundingOf(dtypes[k]) * (1 + greatest))
            << what << ", output " << k << ", value " << i;
      }
    }
  }

  static Values Turned(int64_t n, const Values& values, int64_t channels) {
    Values result(values.size());
    const int64_t plane = static_cast<int64_t>(values.size()) / n / channels;
    CpuKernels().Turn(As(values, {n, channels, plane}), result);
    return result;
  }

  // What call(kernels, window, planes, turned or as it is, output) gives with the channels last
  // and, by the CPU, with the channels first. What is no number shows as 1000.
  template <typename Call>
  void ExpectAlikeLast(const char* what, int64_t n, int64_t channels, const Window& w, int64_t size,
                       const Call& call) {
    const auto shown = [](Values* values) {
      for (double& value : *values) value = std::isnan(value) ? 1000 : value;
    };
    ExpectAlike(what, {size}, [&](KernelSet& k, auto& out) {
      if (&k != &CpuKernels()) {
        Window last = w;
        last.inner = channels;
        call(
            k, last, [&](const Values& v) { return Kept(Turned(n, v, channels)); }, out[0]);
        if (!IsReal()) device_->Synchronize();
        shown(&out[0]);
        return;
      }
      Values first(size);
      call(
          k, w, [&](const Values& v) { return Kept(v); }, first);
      shown(&first);
      out[0] = Turned(n, first, channels);
    });
  }

  void CheckMaxima(int64_t n, int64_t channels, const Window& w, const Values& x) {
    const int64_t out_size = n * channels * w.out_plane();
    const Values dy = Draw(out_size, 2);
    Values y(out_size);
    CpuKernels().MaxPool2d(w, x, y);
    ExpectAlikeLast("max", n, channels, w, out_size,
                    [&](KernelSet& k, const Window& window, auto in_order, Values& to) {
                      k.MaxPool2d(window, *in_order(x), to);
                    });
    ExpectAlikeLast("max backward", n, channels, w, n * channels * w.plane(),
                    [&](KernelSet& k, const Window& window, auto in_order, Values& to) {
                      k.MaxPool2dBackward(window, *in_order(x), *in_order(y), *in_order(dy), to);
                    });
  }

  void CheckPools(int64_t n, int64_t channels, const Window& w, const Values& x) {
    CheckMaxima(n, channels, w, x);
    const int64_t in = n * channels * w.plane(), out_size = n * channels * w.out_plane();
    const auto expect = [&](const char* what, int64_t size, const auto& call) {
      ExpectAlikeLast(what, n, channels, w, size, call);
    };
    const Values dy = Draw(out_size, 2);
    for (const bool count_padding : {false, true}) {
      expect("average", out_size,
             [&](KernelSet& k, const Window& window, auto in_order, Values& to) {
               k.AvgPool2d(window, count_padding, *in_order(x), to);
             });
      expect("average backward", in,
             [&](KernelSet& k, const Window& window, auto in_order, Values& to) {
               k.AvgPool2dBackward(window, count_padding, *in_order(dy), to);
             });
    }
    for (const int64_t side : {3, 7}) {
      const Values d = Draw(n * channels * side * side, 3);
      expect("adaptive", n * channels * side * side,
             [&](KernelSet& k, const Window& window, auto in_order, Values& to) {
               k.AdaptiveAvgPool2d({w.height, w.width, window.inner}, side, *in_order(x), to);
             });
      expect(
          "adaptive backward", in,
          [&](KernelSet& k, const Window& window, auto in_order, Values& to) {
            k.AdaptiveAvgPool2dBackward({w.height, w.width, window.inner}, side, *in_order(d), to);
          });
    }
  }

  void CheckPlanes(int64_t n, int64_t plane, int64_t channels = 6) {
    const int64_t size = n * channels * plane;
    const Shape shape = {n, channels, plane};
    const Values x = Draw(size, 1), dy = Draw(size, 2), weight = Draw(channels, 3),
                 bias = Draw(channels, 4), mean = Draw(channels, 5), variance(channels, 0.7);
    const auto check = [&](const char* what, int64_t sets, auto forward, auto backward) {
      ExpectAlike(what, {size, 2 * sets},
                  [&](KernelSet& k, auto& out) { forward(k, As(out[0], shape), out[1]); });
      Values statistics(2 * sets), y(size);
      forward(CpuKernels(), As(y, shape), statistics);
      ExpectAlike(what, {size, channels, channels}, [&](KernelSet& k, auto& out) {
        backward(k, statistics, As(out[0], shape), out[1], out[2]);
      });
    };
    check(
        "group norm", n * 3,
        [&](KernelSet& k, TensorRef y, TensorRef statistics) {
          k.GroupNorm(3, As(x, shape), weight, bias, 1e-5, y, statistics);
        },
        [&](KernelSet& k, const Values& s, TensorRef dx, TensorRef dweight, TensorRef dbias) {
          k.GroupNormBackward(3, As(x, shape), weight, s, As(dy, shape), dx, dweight, dbias);
        });
    check(
        "batch norm", channels,
        [&](KernelSet& k, TensorRef y, TensorRef statistics) {
          k.BatchNorm(As(x, shape), weight, bias, 1e-5, y, statistics, 0, {});
        },
        [&](KernelSet& k, const Values& s, TensorRef dx, TensorRef dweight, TensorRef dbias) {
          k.BatchNormBackward(As(x, shape), weight, s, As(dy, shape), dx, dweight, dbias);
        });
    ExpectAlike("batch norm by statistics", {size}, [&](KernelSet& k, auto& out) {
      k.BatchNormByStatistics(As(x, shape), weight, bias, mean, variance, 1e-5, As(out[0], shape));
    });
    // Of less examples than rows, as where the channels of planes are last.
    ExpectAlike("averages", {size, 2 * channels, 2 * channels}, [&](KernelSet& k, auto& out) {
      k.BatchNorm(As(x, shape), weight, bias, 1e-5, As(out[0], shape), out[1], (n + 2) / 3, out[2]);
    });
  }

  // Memory until the test ends: a device's work is done later.
  Values* Keep(int64_t size) {
    kept_.push_back(std::make_unique<Values>(size));
    return kept_.back().get();
  }

  Values* Kept(const Values& values) {
    Values* const kept = Keep(static_cast<int64_t>(values.size()));
    *kept = values;
    return kept;
  }

  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Values>> kept_;
};

TEST_P(GpuKernelsTest, OfSingleValues) {
  const int64_t n = 6007;  // the last block's threads have up to eight values each
  Values x = Draw(n, 1), dy = Draw(n, 2);
  for (double& value : x) value *= 4;
  const auto unary = [&](const char* what, auto function) {
    ExpectAlike(what, {n}, [&](KernelSet& k, auto& out) { (k.*function)(x, out[0]); });
  };
  const auto binary = [&](const char* what, auto function) {
    ExpectAlike(what, {n}, [&](KernelSet& k, auto& out) { (k.*function)(x, dy, out[0]); });
  };
  ForEachOfSingleValues(unary, binary);
  ExpectAlike("zeros", {n}, [](KernelSet& k, auto& out) { k.SetToZero(out[0]); });
  for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) {
    ExpectAlike("gelu", {n}, [&](KernelSet& k, auto& out) { k.Gelu(form, x, out[0]); });
    ExpectAlike("gelu with derivative", {n, n},
                [&](KernelSet& k, auto& out) { k.GeluWithDerivative(form, x, out[0], out[1]); });
  }
}

TEST_P(GpuKernelsTest, DropoutDrawsTheSameNumbers) {
  const Values x = Draw(5003, 1);
  for (const uint64_t key : {uint64_t{0}, uint64_t{0x123456789abcdef}, ~uint64_t{0}}) {
    for (const double p : {0.0, 0.1, 0.5, 0.999}) {
      ExpectAlike("dropout", {5003},
                  [&](KernelSet& k, auto& out) { k.Dropout(&key, p, x, out[0]); });
    }
  }
}

TEST_P(GpuKernelsTest, OfRowsAndColumns) {
  for (const auto& [rows, columns] :
       {std::make_pair(1, 3000), std::make_pair(2500, 3), std::make_pair(517, 70),
        std::make_pair(33, 33), std::make_pair(2, 8069), std::make_pair(1030, 136),
        std::make_pair(40, 16)}) {
    const int64_t n = int64_t{rows} * columns;
    const Shape shape = {rows, columns};
    const Values x = Draw(n, 1), dy = Draw(n, 2), row = Draw(columns, 3);
    const int64_t c = columns, r = rows;
    ExpectAlike("column sums", {c},
                [&](KernelSet& k, auto& out) { k.ColumnSums(As(x, shape), out[0]); });
    ExpectAlike("add row", {n},
                [&](KernelSet& k, auto& out) { k.AddRow(As(x, shape), row, As(out[0], shape)); });
    ExpectAlike("layer norm", {n, 2 * r}, [&](KernelSet& k, auto& out) {
      k.LayerNorm(As(x, shape), row, row, 1e-5, As(out[0], shape), out[1]);
    });
    ExpectAlike("layer norm without weights", {n, 2 * r}, [&](KernelSet& k, auto& out) {
      k.LayerNorm(As(x, shape), {}, {}, 1e-5, As(out[0], shape), out[1]);
    });
    Values statistics(2 * r), y(n);
    CpuKernels().LayerNorm(As(x, shape), row, row, 1e-5, y, statistics);
    ExpectAlike("layer norm backward", {n, c, c}, [&](KernelSet& k, auto& out) {
      k.LayerNormBackward(As(x, shape), row, statistics, As(dy, shape), As(out[0], shape), out[1],
                          out[2]);
    });
  }
}

// Sides of 1, which the library is kept from, as well as others.
TEST_P(GpuKernelsTest, OfLinearLayers) {
  for (const auto& [rows, in, out] : {std::make_tuple(64, 13, 64), std::make_tuple(64, 64, 1),
                                      std::make_tuple(1, 64, 7), std::make_tuple(9, 1, 5)}) {
    const int64_t r = rows, i = in, o = out;  // a binding cannot be captured
    const Values x = Draw(r * i, 1), weight = Draw(o * i, 2), bias = Draw(o, 3),
                 dy = Draw(r * o, 4);
    ExpectAlike("linear", {r * o}, [&](KernelSet& k, auto& y) {
      k.Linear(As(x, {r, i}), As(weight, {o, i}), bias, As(y[0], {r, o}));
    });
    ExpectAlike("linear backward", {r * i, o * i, o}, [&](KernelSet& k, auto& d) {
      k.LinearBackward(As(x, {r, i}), As(weight, {o, i}), As(dy, {r, o}), As(d[0], {r, i}),
                       As(d[1], {o, i}), d[2]);
    });
  }
}

TEST_P(GpuKernelsTest, OfPlanes) { CheckPlanes(5, 307); }
TEST_P(GpuKernelsTest, OfLargePlanes) { CheckPlanes(2, 6083); }
// Of one place: channels lie behind one another. By packs and single values, with rows for many
// groups, for some, for less than a block has, and for one.
TEST_P(GpuKernelsTest, OfPlanesOfOnePlace) {
  CheckPlanes(6083, 1);
  CheckPlanes(1037, 1, 24);
  CheckPlanes(2, 1, 48);
  CheckPlanes(30, 1, 150);
  CheckPlanes(1, 1, 24);
}

// Means that are a thousand deviations from 0, and a first value that is far from all others; in
// half floats, which do not hold such values, neither.
TEST_P(GpuKernelsTest, VariancesOfDistantValues) {
  const int64_t rows = 4000, channels = 16;
  Values x = Draw(rows * channels, 1);
  for (int64_t i = 0; i < rows * channels; ++i) {
    x[i] = IsReal() ? std::round(x[i] * 64) / 64 : x[i];
    if (!IsHalf(GetParam().dtype)) x[i] += i < channels && i % 2 == 0 ? 1064 : 1000;
  }
  const Shape shape = {rows, channels, 1};
  ExpectAlike("statistics", {rows * channels, 2 * channels}, [&](KernelSet& k, auto& out) {
    k.BatchNorm(As(x, shape), {}, {}, 1e-5, As(out[0], shape), out[1], 0, {});
  });
}

// Of few rows and of many, in one tile and in several, whole packs and not.
TEST_P(GpuKernelsTest, TurnedMatrices) {
  for (const auto& [matrices, rows, columns] :
       {std::make_tuple(3, 9, 616), std::make_tuple(2, 16, 40), std::make_tuple(2, 17, 40),
        std::make_tuple(2, 1, 70), std::make_tuple(1, 3, 8), std::make_tuple(5, 9, 7),
        std::make_tuple(1, 70, 65)}) {
    const Shape shape = {matrices, rows, columns};
    const Values x = Draw(SizeOf(shape), 1);
    ExpectAlike("turn", {SizeOf(shape)},
                [&](KernelSet& k, auto& out) { k.Turn(As(x, shape), out[0]); });
  }
}

// Of more examples than what is reckoned of a place serves.
TEST_P(GpuKernelsTest, ConvolutionsOfManyExamples) {
  const int64_t n = 19;
  const Convolution c = {Window{6, 5, 3, 2, 1}, 2, 4, 1};
  const Shape shape = {n, 2, 6, 5}, outputs = {n, 4, c.window.out_height(), c.window.out_width()};
  const Values x = Draw(SizeOf(shape), 1), weight = Draw(4 * c.filter(), 2), bias = Draw(4, 3);
  const Values g = Draw(SizeOf(outputs), 4);
  const DType dtype = GetParam().dtype;
  const int64_t scratch = std::max(CpuKernels().ConvolutionScratch(c, dtype, n),
                                   device_->kernels().ConvolutionScratch(c, dtype, n));
  ExpectAlike("convolution", {SizeOf(outputs)}, [&](KernelSet& k, auto& out) {
    k.Conv2d(c, As(x, shape), weight, bias, As(out[0], outputs), *Keep(scratch));
  });
  ExpectAlike("convolution backward", {SizeOf(shape), static_cast<int64_t>(weight.size()), 4},
              [&](KernelSet& k, auto& out) {
                k.Conv2dBackward(c, As(x, shape), weight, As(g, outputs), As(out[0], shape), out[1],
                                 out[2], *Keep(scratch));
              });
}

// With the channels last, in packs or not: as with them first, turned.
TEST_P(GpuKernelsTest, PoolsOfChannelsThatAreLast) {
  for (const int64_t channels : {6, 16}) {
    for (const Window& w : {Window{23, 31, 2, 2, 0}, Window{9, 7, 5, 1, 2}, Window{13, 11, 3, 2, 1},
                            Window{7, 8, 2, 3, 0}}) {
      CheckPools(3, channels, w, Draw(3 * channels * w.plane(), 1));
    }
  }
}

// The first of equal values is the greatest, and a value that is no number before all others.
TEST_P(GpuKernelsTest, PoolsOfEqualValuesAndOfNoNumbers) {
  for (const int64_t channels : {6, 16}) {
    for (const Window& w :
         {Window{12, 15, 3, 2, 1}, Window{6, 5, 5, 1, 2}, Window{8, 8, 2, 1, 0}}) {
      Values x(3 * channels * w.plane());
      RandomStream stream(1);
      for (double& value : x) {
        const int64_t drawn = stream.Below(16);
        value = drawn == 15 ? std::nan("") : static_cast<double>(drawn % 3);
      }
      CheckMaxima(3, channels, w, x);
    }
  }
}

// With the channels last: as with them first, turned.
TEST_P(GpuKernelsTest, OfChannelsThatAreLast) {
  const int64_t n = 3, channels = 6, out_channels = 8;
  const auto turned = [&](const Values& values, int64_t c) { return Turned(n, values, c); };
  for (const Window& w : {Window{23, 31, 2, 2, 0}, Window{9, 7, 5, 1, 2}, Window{13, 11, 3, 2, 1},
                          Window{6, 8, 1, 1, 0}}) {
    const int64_t in = n * channels * w.plane();
    const Values x = Draw(in, 1);
    ExpectAlike("turn", {in}, [&](KernelSet& k, auto& out) {
      k.Turn(As(x, {n, channels, w.plane()}), out[0]);
    });
    for (const auto& [x_last, y_last, groups, has_bias] :
         {std::make_tuple(true, true, 1, true), std::make_tuple(true, false, 2, true),
          std::make_tuple(false, true, 2, false), std::make_tuple(true, true, 2, false)}) {
      const bool is_x_last = x_last, is_y_last = y_last, biased = has_bias;
      const auto order = [](bool is_last) {
        return is_last ? ChannelOrder::kLast : ChannelOrder::kFirst;
      };
      const Convolution c = {w, channels, out_channels, groups, order(x_last), order(y_last)};
      const Convolution first = {w, channels, out_channels, groups};
      const Shape inputs = {n, channels, w.height, w.width};
      const Shape outputs = {n, out_channels, w.out_height(), w.out_width()};
      const Values weight = Draw(out_channels * c.filter(), 4), bias = Draw(out_channels, 5);
      const Values g = Draw(SizeOf(outputs), 6);
      const auto b = [&] { return biased ? ConstTensorRef(bias) : ConstTensorRef(); };
      const int64_t scratch =
          std::max(CpuKernels().ConvolutionScratch(first, GetParam().dtype, n),
                   device_->kernels().ConvolutionScratch(c, GetParam().dtype, n));
      const auto given = [&](bool is_last, const Values& v, int64_t count) {
        return Kept(is_last ? turned(v, count) : v);
      };
      ExpectAlike("convolution", {SizeOf(outputs)}, [&](KernelSet& k, auto& out) {
        if (&k != &CpuKernels()) {
          k.Conv2d(c, As(*given(is_x_last, x, channels), inputs), weight, b(), As(out[0], outputs),
                   *Keep(scratch));
          return;
        }
        Values expected(SizeOf(outputs));
        k.Conv2d(first, As(x, inputs), weight, b(), As(expected, outputs), *Keep(scratch));
        out[0] = *given(is_y_last, expected, out_channels);
      });
      std::vector<int64_t> gradients = {SizeOf(inputs), static_cast<int64_t>(weight.size())};
      if (biased) gradients.push_back(out_channels);
      ExpectAlike("convolution backward", gradients, [&](KernelSet& k, auto& out) {
        const TensorRef dbias = biased ? TensorRef(out[2]) : TensorRef();
        if (&k != &CpuKernels()) {
          k.Conv2dBackward(c, As(*given(is_x_last, x, channels), inputs), weight,
                           As(*given(is_y_last, g, out_channels), outputs), As(out[0], inputs),
                           out[1], dbias, *Keep(scratch));
          return;
        }
        Values expected(SizeOf(inputs));
        k.Conv2dBackward(first, As(x, inputs), weight, As(g, outputs), As(expected, inputs), out[1],
                         dbias, *Keep(scratch));
        out[0] = *given(is_x_last, expected, channels);
      });
    }
  }
}

TEST_P(GpuKernelsTest, OfWindows) {
  for (const Window& w : {Window{23, 31, 2, 2, 0}, Window{23, 31, 3, 2, 1}, Window{9, 7, 5, 1, 2},
                          Window{8, 8, 3, 3, 0}, Window{61, 59, 3, 1, 1}}) {
    const int64_t planes = 14, in = planes * w.plane(), out_size = planes * w.out_plane();
    const Values x = Draw(in, 1), dy = Draw(out_size, 2);
    Values y(out_size);
    ExpectAlike("max", {out_size}, [&](KernelSet& k, auto& out) { k.MaxPool2d(w, x, out[0]); });
    CpuKernels().MaxPool2d(w, x, y);
    ExpectAlike("max backward", {in},
                [&](KernelSet& k, auto& out) { k.MaxPool2dBackward(w, x, y, dy, out[0]); });
    for (const bool count_padding : {false, true}) {
      ExpectAlike("average", {out_size},
                  [&](KernelSet& k, auto& out) { k.AvgPool2d(w, count_padding, x, out[0]); });
      ExpectAlike("average backward", {in}, [&](KernelSet& k, auto& out) {
        k.AvgPool2dBackward(w, count_padding, dy, out[0]);
      });
    }
    for (const int64_t side : {1, 3, 7}) {
      const Values d = Draw(planes * side * side, 3);
      ExpectAlike("adaptive", {planes * side * side}, [&](KernelSet& k, auto& out) {
        k.AdaptiveAvgPool2d({w.height, w.width}, side, x, out[0]);
      });
      ExpectAlike("adaptive backward", {in}, [&](KernelSet& k, auto& out) {
        k.AdaptiveAvgPool2dBackward({w.height, w.width}, side, d, out[0]);
      });
    }
    for (const int64_t groups : {1, 2}) {
      const Convolution c = {w, 2, 6, groups};
      const int64_t n = 7;
      const Shape shape = {n, 2, w.height, w.width};  // as many planes as above
      const Values weight = Draw(c.out_channels * c.filter(), 4), bias = Draw(6, 5);
      const Values g = Draw(n * 6 * w.out_plane(), 6);
      const Shape outputs = {n, 6, w.out_height(), w.out_width()};
      const DType dtype = GetParam().dtype;
      const int64_t scratch = std::max(CpuKernels().ConvolutionScratch(c, dtype, n),
                                       device_->kernels().ConvolutionScratch(c, dtype, n));
      ExpectAlike("convolution", {SizeOf(outputs)}, [&](KernelSet& k, auto& out) {
        Values* const memory = Keep(scratch);
        k.Conv2d(c, As(x, shape), weight, bias, As(out[0], outputs), *memory);
      });
      ExpectAlike("convolution backward", {SizeOf(shape), static_cast<int64_t>(weight.size()), 6},
                  [&](KernelSet& k, auto& out) {
                    Values* const memory = Keep(scratch);
                    k.Conv2dBackward(c, As(x, shape), weight, As(g, outputs), As(out[0], shape),
                                     out[1], out[2], *memory);
                  });
    }
  }
}

// Each index many times, seldom, or one of them nearly always; packs and single values of either
// operand; and more places and indices than are listed at a time.
TEST_P(GpuKernelsTest, EmbeddingsBackward) {
  for (const auto& [places, indices, width, often] :
       {std::make_tuple(700, 9, 300, 0.0), std::make_tuple(704, 9, 16, 0.0),
        std::make_tuple(701, 900, 24, 0.0), std::make_tuple(1200, 1000, 7, 0.9),
        std::make_tuple(1, 3, 8, 0.0), std::make_tuple(50000, 9, 1, 0.1),
        std::make_tuple(600, 33000, 1, 0.1), std::make_tuple(200, 70000, 8, 0.0)}) {
    const int64_t rows = places, count = indices, channels = width;
    Values x(rows);
    RandomStream stream(1);
    for (double& value : x) {
      value = stream.Uniform(0, 1) < often ? count / 2 : stream.Below(count - 1);
    }
    const Values dy = Draw(rows * channels, 3);
    ExpectAlike("embedding backward", {count * channels}, [&](KernelSet& k, auto& out) {
      k.EmbedBackward(x, dy, As(out[0], {count, channels}));
    });
  }
}

TEST_P(GpuKernelsTest, OfTexts) {
  const int64_t rows = 700, count = 9, channels = 300;
  Values x(rows);
  RandomStream stream(1);
  for (double& value : x) value = stream.Below(count - 1);  // one is never there
  const Values weight = Draw(count * channels, 2);
  ExpectAlike("embedding", {rows * channels}, [&](KernelSet& k, auto& out) {
    k.Embed(x, As(weight, {count, channels}), out[0]);
  });
  // More examples than heads, and fewer; rows longer than a block.
  for (const auto& [n, head_count, places] :
       {std::make_tuple(3, 2, 37), std::make_tuple(2, 3, 20), std::make_tuple(1, 1, 300),
        std::make_tuple(1, 1, 1100)}) {
    const int64_t heads = head_count;  // a binding cannot be captured
    const int64_t size = 4, c = heads * size, values = int64_t{n} * places * c;
    const Values qkv = Draw(3 * values, 4), d = Draw(values, 5);
    const Shape in = {n, places, 3 * c}, out_shape = {n, places, c};
    const int64_t scores = int64_t{n} * heads * places * places;
    const AttentionMemory memory =
        device_->kernels().MemoryOf({heads, places, c, false, GetParam().dtype}, n);
    ASSERT_EQ(memory.saved, scores);  // as products and a softmax
    const int64_t scratch = std::max(scores, memory.scratch);
    for (const bool causal : {false, true}) {
      ExpectAlike("attention", {values, scores}, [&](KernelSet& k, auto& out) {
        k.ScaledDotProductAttention(heads, causal, As(qkv, in), As(out[0], out_shape), out[1],
                                    *Keep(scratch));
      });
      Values y(values), p(scores);
      CpuKernels().ScaledDotProductAttention(heads, causal, As(qkv, in), As(y, out_shape), p,
                                             TensorRef());
      ExpectAlike("attention backward", {3 * values}, [&](KernelSet& k, auto& out) {
        k.ScaledDotProductAttentionBackward(heads, causal, As(qkv, in), As(y, out_shape), p,
                                            As(d, out_shape), As(out[0], in), *Keep(scratch));
      });
    }
  }
}

TEST_P(GpuKernelsTest, OfLosses) {
  if (IsReal()) return;  // device_kernels_test has them in its types
  const int64_t rows = 700;
  for (const int64_t classes : {3, 65, 1000}) {
    const Values logits = Draw(rows * classes, 1);
    std::vector<int32_t> labels(rows);
    RandomStream stream(2);
    for (int32_t& label : labels) label = static_cast<int32_t>(stream.Below(classes));
    std::vector<float> weights(classes);
    for (int64_t j = 0; j < classes; ++j) weights[j] = static_cast<float>(j % 5) / 4;
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (const CrossEntropyOptions& options :
         {CrossEntropyOptions{}, CrossEntropyOptions{0.1, 2, 0.25},
          CrossEntropyOptions{0.1, 2, 0.25, weights.data(), all}}) {
      Values expected(rows * classes), found(rows * classes, 77), row(2 * rows), sums(2);
      const CrossEntropySums e =
          SoftmaxCrossEntropy(As(logits, {rows, classes}), labels, options, expected);
      const float scale = 8;
      device_->kernels().CrossEntropy(As(logits, {rows, classes}), labels, options,
                                      absl::MakeConstSpan(&scale, 1), found, row, sums);
      device_->Synchronize();
      EXPECT_NEAR(sums[0], e.loss, 1e-11 * e.loss);
      EXPECT_EQ(sums[1], e.correct);
      for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], 8 * expected[i], 1e-12);
    }
  }
  const int64_t columns = 300;
  const Values x = Draw(rows * columns, 3);
  std::vector<float> targets(x.size(), 0.25f);
  for (const RegressionOptions& options :
       {RegressionOptions{RegressionForm::kSquared}, RegressionOptions{RegressionForm::kAbsolute},
        RegressionOptions{RegressionForm::kHuber, 0.5}}) {
    Values expected(x.size()), found(x.size(), 77), row(2 * rows), sums(2);
    const double e = RegressionLoss(x, targets, options, 0.5, expected);
    const float scale = 1;
    device_->kernels().RegressionLoss(As(x, {rows, columns}), targets, options, 0.5,
                                      absl::MakeConstSpan(&scale, 1), found, row, sums);
    device_->Synchronize();
    EXPECT_NEAR(sums[0], e, 1e-11 * e);
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-12);
  }
}

std::string NameOf(const ::testing::TestParamInfo<Parameter>& info) {
  return info.param.gpu == TestedGpu::kReal ? std::string(DTypeName(info.param.dtype))
                                            : absl::StrCat(info.param.seed);
}

// Orders of work, blocks and threads.
INSTANTIATE_TEST_SUITE_P(Seeds, GpuKernelsTest,
                         ::testing::Values(Parameter{TestedGpu::kEmulated, 1},
                                           Parameter{TestedGpu::kEmulated, 2},
                                           Parameter{TestedGpu::kEmulated, 3},
                                           Parameter{TestedGpu::kEmulated, 4}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Gpu, GpuKernelsTest,
                         ::testing::Values(Parameter{TestedGpu::kReal, 1, DType::kFloat32},
                                           Parameter{TestedGpu::kReal, 1, DType::kBFloat16},
                                           Parameter{TestedGpu::kReal, 1, DType::kFloat16}),
                         NameOf);

}  // namespace
}  // namespace rubato
