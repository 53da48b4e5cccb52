// A device's kernels, by way of layers and compositions of them, against PyTorch: on an emulated
// GPU and on a real one, which is skipped where there is none. Tolerances are those of the CPU's
// own test, by how far results move with their operands.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/tested_gpu.h"
#include "tests/golden.h"
#include "worker/model/factors.h"
#include "worker/model/network.h"
#include "worker/model/network_cases.h"

namespace rubato {
namespace {

// A precision and how exact it is.
struct Precision {
  const char* name;
  DType dtype;
  ProductPrecision products;
  double rounding;  // the distance of neighbours of 1
  AttentionForm attention = AttentionForm::kProducts;
};
constexpr Precision kPrecisions[] = {
    {"float64", DType::kFloat64, ProductPrecision::kFloat32, 0x1p-52},
    {"float32", DType::kFloat32, ProductPrecision::kFloat32, 0x1p-23},
    {"tf32", DType::kFloat32, ProductPrecision::kTf32, 0x1p-10},
    {"bf16", DType::kBFloat16, ProductPrecision::kFloat32, 0x1p-7},
    {"fp16", DType::kFloat16, ProductPrecision::kFloat32, 0x1p-10},
    {"bf16_fused", DType::kBFloat16, ProductPrecision::kFloat32, 0x1p-7, AttentionForm::kFused},
    {"fp16_fused", DType::kFloat16, ProductPrecision::kFloat32, 0x1p-10, AttentionForm::kFused},
};

absl::StatusOr<std::unique_ptr<Device>> Open(TestedGpu gpu, const Precision& precision) {
  EmulatedDeviceOptions options;
  options.precision = precision.products;
  options.attention = precision.attention;
  if (precision.attention == AttentionForm::kFused) options.convolution = ConvolutionForm::kFused;
  options.columns = 300;  // convolutions take few examples at a time
  return OpenTested(gpu, options);
}

// A network in a device's memory.
class DeviceNetwork {
 public:
  DeviceNetwork(const std::string& text, absl::Span<const int64_t> shape, int64_t max_batch,
                DType dtype, Device* device)
      : device_(*device),
        max_batch_(max_batch),
        dtype_(dtype),
        value_(dtype == DType::kFloat64 ? dtype : DType::kFloat32) {
    absl::StatusOr<Graph> graph = BuildGraph(Parse(text), shape, /*classes=*/0);
    RUBATO_CHECK(graph.ok());
    MemoryPlan plan =
        PlanMemory(*graph, max_batch, Purpose::kInputGradient, device->kernels(), dtype);
    has_channels_last_ =
        std::count(plan.orders.begin(), plan.orders.end(), ChannelOrder::kLast) > 0;
    parameters_ = Take(value_, graph->size);
    // Each aligned for itself, as a step's (device_layout.h).
    int64_t factors = 0;
    for (const Graph::Node& node : graph->nodes) {
      begins_.push_back(factors);
      factors += (node.parameters + 127) / 128 * 128;
    }
    factors_ = Take(dtype, std::max<int64_t>(factors, 1));
    gradient_ = Take(value_, graph->size);
    x_ = Take(value_, max_batch * SizeOf(graph->shapes[0]));
    converted_ = Take(dtype, x_.size());
    dy_ = Take(value_, max_batch * SizeOf(graph->shapes.back()));
    const TensorRef keys = Take(DType::kFloat64, static_cast<int64_t>(graph->nodes.size()));
    keys_ = static_cast<const uint64_t*>(keys.address());
    std::vector<uint64_t> values(graph->nodes.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = Key(3, i);
    device->Upload(Stream::kCompute, values.data(), const_cast<uint64_t*>(keys_),
                   static_cast<int64_t>(values.size()) * 8);
    device->Synchronize();
    const TensorRef arena = Take(dtype, plan.size);
    network_ = std::make_unique<Network>(*std::move(graph), std::move(plan), max_batch,
                                         &device->kernels(), arena);
  }
  ~DeviceNetwork() { device_.Synchronize(); }

  const Graph& graph() const { return network_->graph(); }
  bool has_channels_last() const { return has_channels_last_; }

  template <typename T>
  void Compute(Call<T>& call) {
    call.y = Forward(call, /*training=*/true);
    const TensorRef dy = network_->output_gradient();
    ASSERT_EQ(dy.size(), static_cast<int64_t>(call.dy.size()));
    Send(call.dy, dy_);
    device_.kernels().Convert(dy_.Slice(0, {dy.size()}), dy);
    const ConstTensorRef dx = network_->Backward(parameters_, gradient_, [](int64_t) {});
    call.dx = Receive<T>(dx);
    call.dparameters = Receive<T>(gradient_);
  }

  template <typename T>
  std::vector<T> Forward(const Call<T>& call, bool training) {
    Send(call.parameters, parameters_);
    Send(call.x, x_);
    Network::Inputs inputs;
    inputs.parameters = parameters_;
    inputs.x = x_.Slice(0, {static_cast<int64_t>(call.x.size())});
    inputs.keys = keys_;
    if (BytesOf(dtype_) == 2) {
      inputs.indices = inputs.x;
      const TensorRef converted = converted_.Slice(0, {inputs.x.size()});
      device_.kernels().Convert(inputs.x, converted);
      inputs.x = converted;
      inputs.factors = factors_;
      inputs.factor_begins = begins_;
      for (size_t i = 0; i < begins_.size(); ++i) {
        const Graph::Node& node = graph().nodes[i];
        if (node.parameters == 0) continue;
        WriteFactors(*node.layer, max_batch_, parameters_.Slice(node.begin, {node.parameters}),
                     factors_.Slice(begins_[i], {node.parameters}), &device_.kernels());
      }
    }
    return Receive<T>(network_->Forward(inputs, training, training ? gradient_ : TensorRef()));
  }

 private:
  TensorRef Take(DType dtype, int64_t size) {
    const absl::StatusOr<void*> memory =
        device_.Allocate(std::max<int64_t>(size, 1) * BytesOf(dtype));
    RUBATO_CHECK(memory.ok());
    return TensorRef::At(*memory, dtype, {size});
  }

  template <typename T>
  void Send(const std::vector<T>& values, const TensorRef& to) {
    device_.Upload(Stream::kCompute, values.data(), const_cast<void*>(to.address()),
                   static_cast<int64_t>(values.size() * sizeof(T)));
    device_.Synchronize();
  }

  template <typename T>
  std::vector<T> Receive(const ConstTensorRef& from) {
    std::vector<char> bytes(from.size() * BytesOf(from.dtype()));
    device_.Download(Stream::kCompute, from.address(), bytes.data(),
                     static_cast<int64_t>(bytes.size()));
    device_.Synchronize();
    std::vector<T> values(from.size());
    const auto convert = [&](auto zero) {
      using From = decltype(zero);
      for (int64_t i = 0; i < from.size(); ++i) {
        From value;
        std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
        values[i] = static_cast<T>(Widen(value));
      }
    };
    switch (from.dtype()) {
      case DType::kBFloat16:
        convert(BFloat16());
        break;
      case DType::kFloat16:
        convert(Float16());
        break;
      case DType::kFloat32:
        convert(float());
        break;
      default:
        convert(double());
    }
    return values;
  }

  Device& device_;
  const int64_t max_batch_;
  const DType dtype_, value_;
  bool has_channels_last_ = false;
  TensorRef parameters_, factors_, gradient_, x_, converted_, dy_;
  const uint64_t* keys_;
  std::vector<int64_t> begins_;
  std::unique_ptr<Network> network_;
};

// Sets `has_last` if channels are last in some of the network's values.
template <typename T>
void ExpectPyTorchs(bool* has_last, const Case& c, TestedGpu gpu, const Precision& precision) {
  const absl::Span<const int64_t> shape = absl::MakeSpan(c.shape).subspan(1);
  absl::StatusOr<Graph> graph = BuildGraph(Parse(c.text), shape, /*classes=*/0);
  RUBATO_ASSERT_OK(graph);
  const auto reference =
      Network::Create(*std::move(graph), c.shape[0], DType::kFloat64, Purpose::kInputGradient);
  RUBATO_ASSERT_OK(reference);
  const auto exactly = [&](Call<double>& call) {
    call.dparameters.assign(call.parameters.size(), 77);
    const auto values = [](const ConstTensorRef& tensor) {
      const absl::Span<const double> v = tensor.values<double>();
      return std::vector<double>(v.begin(), v.end());
    };
    call.y = values((*reference)->Forward(call.parameters, call.x, true, 3, call.dparameters));
    std::copy(call.dy.begin(), call.dy.end(),
              (*reference)->output_gradient().values<double>().begin());
    call.dx = values((*reference)->Backward(call.parameters, call.dparameters, [](int64_t) {}));
  };
  const Tolerance<T> tolerance(exactly, c.call, precision.rounding);
  const auto device = Open(gpu, precision);
  RUBATO_ASSERT_OK(device);
  DeviceNetwork network(c.text, shape, c.shape[0] + 2, precision.dtype, device->get());
  *has_last = network.has_channels_last();
  Call<T> call = Convert<T>(c.call);
  network.Compute(call);
  const auto expect = [&](const std::vector<T>& found, const std::vector<double>& expected,
                          double allowed, const char* what) {
    ExpectNear(found, expected, allowed, what, precision.rounding);
  };
  expect(call.y, c.call.y, tolerance.y, "y");
  if (!c.call.dx.empty()) expect(call.dx, c.call.dx, tolerance.dx, "dx");
  const size_t trainable = c.call.dparameters.size();
  expect(std::vector<T>(call.dparameters.begin(), call.dparameters.begin() + trainable),
         c.call.dparameters, tolerance.dparameters, "dparameters");
  if (c.running.empty()) return;

  // What the batch adds to the averages, and evaluation by them.
  const proto::Layout& layout = network.graph().layout;
  const double momentum = layout.parameters(layout.parameters_size() - 1).average();
  for (size_t i = 0; i < c.running.size(); ++i) {
    T& value = call.parameters[trainable + i];
    const double measured = call.dparameters[trainable + i] / static_cast<double>(c.shape[0]);
    value += static_cast<T>(momentum * (measured - value));
    ASSERT_NEAR(value, c.running[i], 10 * precision.rounding * (1 + std::abs(c.running[i])))
        << "buffer " << i;
  }
  expect(network.Forward(call, /*training=*/false), c.evaluated, tolerance.y, "evaluation");
}

void ExpectAll(TestedGpu gpu, const Precision& precision) {
  const Golden golden("compositions.safetensors");
  int cases = 0, channels_last = 0;
  for (const auto& [name, text] : golden.metadata()) {
    if (absl::StartsWith(text, "loss")) continue;
    SCOPED_TRACE(absl::StrCat(name, " in ", precision.name));
    ++cases;
    const Case c = Read(golden, name);
    bool has_last = false;
    if (precision.dtype == DType::kFloat64) {
      ExpectPyTorchs<double>(&has_last, c, gpu, precision);
    } else {
      ExpectPyTorchs<float>(&has_last, c, gpu, precision);
    }
    channels_last += has_last ? 1 : 0;
  }
  const bool is_fused = precision.attention == AttentionForm::kFused;
  // On a real one, where its library is there.
  EXPECT_TRUE(channels_last == (is_fused ? 4 : 0) || (is_fused && gpu == TestedGpu::kReal));
  EXPECT_EQ(cases, 66);
}

std::string NameOf(const ::testing::TestParamInfo<Precision>& info) { return info.param.name; }

class EmulatedGpu : public ::testing::TestWithParam<Precision> {};

TEST_P(EmulatedGpu, AgreesWithPyTorch) { ExpectAll(TestedGpu::kEmulated, GetParam()); }

INSTANTIATE_TEST_SUITE_P(Conformance, EmulatedGpu, ::testing::ValuesIn(kPrecisions), NameOf);

class Gpu : public ::testing::TestWithParam<Precision> {};

TEST_P(Gpu, AgreesWithPyTorch) {
  const std::string absent = WhyAbsent(TestedGpu::kReal);
  if (!absent.empty()) GTEST_SKIP() << absent;
  ExpectAll(TestedGpu::kReal, GetParam());
}

// float64 is the emulated one's alone.
INSTANTIATE_TEST_SUITE_P(Conformance, Gpu,
                         ::testing::ValuesIn(std::begin(kPrecisions) + 1, std::end(kPrecisions)),
                         NameOf);

}  // namespace
}  // namespace rubato
