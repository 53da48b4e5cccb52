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
#include "worker/model/model.h"
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
// `sums` of them are added on the device.
Found Train(const LeftOut& left_out, DType dtype, int steps, int sums = 1) {
  Found found;
  const proto::Model layers = ParseModel(
      "layers { conv2d { out_channels: 2 kernel_size: 2 } } layers { batch_norm {} } "
      "layers { relu {} } layers { flatten {} } layers { dropout { p: 0.5 } } "
      "layers { linear { out_features: 3 } }");
  const std::vector<int64_t> shape = {1, 4, 3};
  auto model = Model::Create(layers, shape, {3}, kBatch, dtype, Purpose::kTraining,
                             MakeClockedDevice(left_out, &found.races, &found.orders),
                             Keeping{sums - 1});
  RUBATO_EXPECT_OK(model);
  const std::vector<float> features(kBatch * SizeOf(shape)),
      parameters((*model)->parameter_count(), 0.5f);
  const std::vector<int32_t> labels(kBatch);
  std::vector<float> gradient(parameters.size());
  for (int i = 0; i < steps; ++i) {
    (*model)->OnNewParameters();
    for (int k = 0; k < sums; ++k) {
      Summing summing;
      summing.leaves = k == sums - 1;
      summing.adds = summing.leaves ? sums - 1 : 0;
      (*model)->GradientOnDevice(
          parameters, features, {labels, {}}, /*key=*/i, TensorRef(gradient), summing,
          [](int64_t) {}, AllHaveArrived);
    }
    (*model)->Evaluate(parameters, features, {labels, {}});
  }
  model->reset();
  return found;
}

// The second step is recorded, later ones are that recording.
TEST(HappensBefore, HoldsForAllOfAStep) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const int sums : {1, 3}) {
      const Found found = Train({}, dtype, 4, sums);
      EXPECT_THAT(found.races, IsEmpty());
      EXPECT_THAT(found.orders, Contains("kDownload after kCompute").Times(4));
    }
  }
}

// Of the first step, and of the recording in the third.
TEST(HappensBefore, NoticesEachOrderThatIsMissing) {
  const Found whole = Train({}, DType::kFloat32, 3);
  ASSERT_EQ(whole.orders.size(), 9u);
  for (size_t i = 0; i < whole.orders.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "order " << i << ", " << whole.orders[i]);
    LeftOut left_out;
    left_out.order = static_cast<int>(i);
    const Found found = Train(left_out, DType::kFloat32, 3);
    if (whole.orders[i] == "kCompute after kDownload") {
      // The host waits for both. CUDA wants it at a recording's end: cuda_device_test.
      EXPECT_THAT(found.races, IsEmpty());
      continue;
    }
    const bool uploads = whole.orders[i] == "kCompute after kUpload";
    EXPECT_THAT(found.races, Contains(HasSubstr(uploads ? " reads what kUpload wrote"
                                                        : " reads what kCompute")));
  }
}

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
