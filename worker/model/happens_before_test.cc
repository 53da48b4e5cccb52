// That all that a model's steps do on a device, and the host with what crosses, is ordered by what
// CUDA orders (tensor/cuda/clocked_device.h), and that each order is needed.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/clocked_device.h"
#include "worker/model/device_step.h"
#include "worker/model/preset_trajectory.h"

namespace rubato {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBatch = 2;

struct Found {
  std::vector<std::string> races, orders;
};

// Steps of a model whose gradient leaves in two parts: what a batch measures is one by itself.
// `sums` of them are added on the device. Forward is one segment, or one for each layer that has
// parameters. Memory of the host is pinned, or not. Before each step there may be one that ends
// when its third part of parameters is to be waited for.
Found Train(const LeftOut& left_out, DType dtype, int steps, int sums = 1,
            int64_t segment_values = 1000, bool pins = false, bool ends_early = false) {
  Found found;
  const proto::Model layers = ParseModel(
      "layers { conv2d { out_channels: 2 kernel_size: 2 } } layers { batch_norm {} } "
      "layers { relu {} } layers { flatten {} } layers { dropout { p: 0.5 } } "
      "layers { linear { out_features: 3 } }");
  const std::vector<int64_t> shape = {1, 4, 3};
  auto graph = BuildGraph(layers, shape, /*classes=*/3);
  RUBATO_EXPECT_OK(graph);
  std::unique_ptr<Device> device = MakeClockedDevice(left_out, &found.races, &found.orders);
  const auto share = [&, size = graph->size](std::vector<float>* own) {
    own->assign(size, 0.5f);
    if (!pins) return absl::MakeSpan(*own);
    void* const memory = *device->AllocatePinned(size * static_cast<int64_t>(sizeof(float)));
    return absl::MakeSpan(static_cast<float*>(memory), size);
  };
  std::vector<float> own_parameters, own_gradient;
  const absl::Span<float> parameters = share(&own_parameters), gradient = share(&own_gradient);
  auto step = DeviceStep::Create(*std::move(graph), {3}, kBatch, dtype, Purpose::kTraining,
                                 Keeping{sums - 1}, std::move(device), segment_values);
  RUBATO_EXPECT_OK(step);
  for (const absl::Span<float> values : {parameters, gradient}) {
    EXPECT_EQ((*step)->Pin(values.data(), static_cast<int64_t>(values.size() * sizeof(float))),
              pins);
  }
  const std::vector<float> features(kBatch * SizeOf(shape));
  const std::vector<int32_t> labels(kBatch);
  float sum = 0;
  for (int i = 0; i < steps; ++i) {
    if (ends_early) {
      std::fill(parameters.begin(), parameters.end(), 0.5f);
      (*step)->OnNewParameters();
      int asked = 0;
      EXPECT_FALSE((*step)->Gradient(
          ConstTensorRef(parameters), features, {labels, {}}, /*key=*/i, TensorRef(gradient),
          [](int64_t) {}, [&](Range) { return ++asked < 3; }));
    }
    std::fill(parameters.begin(), parameters.end(), 0.5f);
    (*step)->OnNewParameters();
    for (int k = 0; k < sums; ++k) {
      Summing summing;
      summing.leaves = k == sums - 1;
      summing.adds = summing.leaves ? sums - 1 : 0;
      (*step)->Gradient(
          ConstTensorRef(parameters), features, {labels, {}}, /*key=*/i, TensorRef(gradient),
          [&](int64_t begin) { sum += gradient[begin]; }, AllHaveArrived, summing);
    }
    (*step)->Evaluate(ConstTensorRef(parameters), features, {labels, {}});
  }
  step->reset();
  return found;
}

// The second step is recorded, later ones are that recording.
TEST(HappensBefore, HoldsForAllOfAStep) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const int sums : {1, 3}) {
      for (const auto& [segment_values, pins] :
           {std::make_pair(1000, false), std::make_pair(1, false), std::make_pair(1, true)}) {
        const Found found = Train({}, dtype, 4, sums, segment_values, pins);
        EXPECT_THAT(found.races, IsEmpty());
        EXPECT_THAT(found.orders, Contains("kDownload after kCompute").Times(4));
        // For the parameters of each segment, and for batches alone: an evaluation's, and those of
        // gradients with the same parameters.
        const int steps = 4, segments = segment_values == 1 ? 3 : 1;
        EXPECT_THAT(found.orders,
                    Contains("kCompute after kUpload").Times(steps * (segments + sums)));
      }
    }
  }
}

// Of the first step, and of the recording in the third.
void ExpectNoticed(int64_t segment_values, size_t orders) {
  const Found whole = Train({}, DType::kFloat32, 3, /*sums=*/1, segment_values);
  ASSERT_EQ(whole.orders.size(), orders);
  for (size_t i = 0; i < whole.orders.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "order " << i << ", " << whole.orders[i]);
    LeftOut left_out;
    left_out.order = static_cast<int>(i);
    const Found found = Train(left_out, DType::kFloat32, 3, /*sums=*/1, segment_values);
    if (whole.orders[i] == "kCompute after kDownload") {
      // The host waits for both. CUDA wants this for the stream to be part of the recording:
      // cuda_device_test.
      EXPECT_THAT(found.races, IsEmpty());
      continue;
    }
    const bool uploads = whole.orders[i] == "kCompute after kUpload";
    EXPECT_THAT(found.races, Contains(HasSubstr(uploads ? " reads what kUpload wrote"
                                                        : " reads what kCompute")));
  }
}

TEST(HappensBefore, NoticesEachOrderThatIsMissing) { ExpectNoticed(1000, 12); }

TEST(HappensBefore, NoticesEachOrderOfSegmentsThatIsMissing) { ExpectNoticed(1, 18); }

TEST(HappensBefore, NoticesWaitsThatAreMissing) {
  LeftOut signals;
  signals.signals = true;
  EXPECT_THAT(Train(signals, DType::kFloat32, 1).races,
              Contains(HasSubstr("the host reads what kDownload wrote")));
  EXPECT_THAT(Train(signals, DType::kFloat32, 3).races,
              Contains(HasSubstr("the host reads what kDownload in a recording wrote")));
  EXPECT_THAT(Train(signals, DType::kFloat32, 3, 1, 1, /*pins=*/true).races,
              Contains(HasSubstr("the host reads what kDownload in a recording wrote")));
  LeftOut synchronize;
  synchronize.synchronize = true;
  // The loss; and the next batch over one that may not have gone yet.
  EXPECT_THAT(Train(synchronize, DType::kFloat32, 1).races,
              Contains(HasSubstr("the host reads what kCompute wrote")));
  EXPECT_THAT(Train(synchronize, DType::kFloat32, 2).races,
              Contains(HasSubstr("the host writes what kUpload read")));
}

// Pinned parameters are written anew when a step ends because they no longer come, too: the device
// has read by then what was there.
TEST(HappensBefore, HoldsIfAStepEndsEarly) {
  const auto end_early = [](const LeftOut& left_out) {
    return Train(left_out, DType::kFloat32, 2, 1, 1, /*pins=*/true, /*ends_early=*/true).races;
  };
  EXPECT_THAT(end_early({}), IsEmpty());
  LeftOut synchronize;
  synchronize.synchronize = true;
  EXPECT_THAT(end_early(synchronize), Contains(HasSubstr("the host writes what kUpload read")));
}

}  // namespace
}  // namespace rubato
