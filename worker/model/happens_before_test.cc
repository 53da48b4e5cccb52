// That all that a model's steps do on a device, and the host with what crosses, is ordered by what
// CUDA orders (tensor/cuda/clocked_device.h), and that each order is needed.
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
// parameters.
Found Train(const LeftOut& left_out, DType dtype, int steps, int sums = 1,
            int64_t segment_values = 1000) {
  Found found;
  const proto::Model layers = ParseModel(
      "layers { conv2d { out_channels: 2 kernel_size: 2 } } layers { batch_norm {} } "
      "layers { relu {} } layers { flatten {} } layers { dropout { p: 0.5 } } "
      "layers { linear { out_features: 3 } }");
  const std::vector<int64_t> shape = {1, 4, 3};
  auto graph = BuildGraph(layers, shape, /*classes=*/3);
  RUBATO_EXPECT_OK(graph);
  auto step = DeviceStep::Create(
      *std::move(graph), {3}, kBatch, dtype, Purpose::kTraining, Keeping{sums - 1},
      MakeClockedDevice(left_out, &found.races, &found.orders), segment_values);
  RUBATO_EXPECT_OK(step);
  const std::vector<float> features(kBatch * SizeOf(shape)),
      parameters((*step)->graph().size, 0.5f);
  const std::vector<int32_t> labels(kBatch);
  std::vector<float> gradient(parameters.size());
  for (int i = 0; i < steps; ++i) {
    (*step)->OnNewParameters();
    for (int k = 0; k < sums; ++k) {
      Summing summing;
      summing.leaves = k == sums - 1;
      summing.adds = summing.leaves ? sums - 1 : 0;
      (*step)->Gradient(
          parameters, features, {labels, {}}, /*key=*/i, TensorRef(gradient), [](int64_t) {},
          AllHaveArrived, summing);
    }
    (*step)->Evaluate(parameters, features, {labels, {}});
  }
  step->reset();
  return found;
}

// The second step is recorded, later ones are that recording.
TEST(HappensBefore, HoldsForAllOfAStep) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const int sums : {1, 3}) {
      for (const int64_t segment_values : {1000, 1}) {
        const Found found = Train({}, dtype, 4, sums, segment_values);
        EXPECT_THAT(found.races, IsEmpty());
        EXPECT_THAT(found.orders, Contains("kDownload after kCompute").Times(4));
        EXPECT_THAT(found.orders,
                    Contains("kCompute after kUpload").Times(segment_values == 1 ? 12 : 4));
      }
    }
  }
}

// Of the first step, and of the recording in the third.
void ExpectNoticed(int64_t segment_values, size_t orders, size_t before) {
  const Found whole = Train({}, DType::kFloat32, 3, /*sums=*/1, segment_values);
  ASSERT_EQ(whole.orders.size(), orders);
  for (size_t i = 0; i < whole.orders.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "order " << i << ", " << whole.orders[i]);
    LeftOut left_out;
    left_out.order = static_cast<int>(i);
    const Found found = Train(left_out, DType::kFloat32, 3, /*sums=*/1, segment_values);
    if (whole.orders[i] == "kCompute after kDownload" || i == before) {
      // The host waits for both, or a recording comes after the one before. CUDA wants these for
      // the stream to be part of the recording: cuda_device_test.
      EXPECT_THAT(found.races, IsEmpty());
      continue;
    }
    const bool uploads = whole.orders[i] == "kCompute after kUpload";
    EXPECT_THAT(found.races, Contains(HasSubstr(uploads ? " reads what kUpload wrote"
                                                        : " reads what kCompute")));
  }
}

TEST(HappensBefore, NoticesEachOrderThatIsMissing) { ExpectNoticed(1000, 9, /*before=*/9); }

// What the batch measures is written in a recording before the last one, with which it leaves.
TEST(HappensBefore, NoticesEachOrderOfSegmentsThatIsMissing) { ExpectNoticed(1, 15, /*before=*/9); }

TEST(HappensBefore, NoticesWaitsThatAreMissing) {
  LeftOut signals;
  signals.signals = true;
  EXPECT_THAT(Train(signals, DType::kFloat32, 1).races,
              Contains(HasSubstr("the host reads what kDownload wrote")));
  EXPECT_THAT(Train(signals, DType::kFloat32, 3).races,
              Contains(HasSubstr("the host reads what kDownload in a recording wrote")));
  LeftOut synchronize;
  synchronize.synchronize = true;
  // The loss; and the next batch over one that may not have gone yet.
  EXPECT_THAT(Train(synchronize, DType::kFloat32, 1).races,
              Contains(HasSubstr("the host reads what kCompute wrote")));
  EXPECT_THAT(Train(synchronize, DType::kFloat32, 2).races,
              Contains(HasSubstr("the host writes what kCompute read")));
}

}  // namespace
}  // namespace rubato
