#include "common/job/mixed_order.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(MixedOrderTest, AnotherSeedWithinAnEpochMixesItsOrders) {
  proto::Manifest checkpoint;
  checkpoint.set_samples_per_epoch(100);
  checkpoint.set_seed(3);
  proto::Job job;
  for (const int samples : {0, 64, 100, 164}) {
    checkpoint.set_samples(samples);
    job.set_seed(3);
    EXPECT_THAT(MixedOrder(checkpoint, job), IsEmpty());
    job.set_seed(7);
    if (samples % 100 == 0) {
      EXPECT_THAT(MixedOrder(checkpoint, job), IsEmpty());
    } else {
      EXPECT_THAT(MixedOrder(checkpoint, job),
                  HasSubstr("drawn from seed 3, and the rest of it is drawn from seed 7: of this "
                            "epoch some samples come twice and others not at all"));
      job.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
      EXPECT_THAT(MixedOrder(checkpoint, job), HasSubstr("unless the script orders them itself"));
      job.clear_model();
    }
  }
}

}  // namespace
}  // namespace rubato
