#include "tensor/cuda/patience.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(PatienceTest, EndsWhenNothingHasMoved) {
  const absl::Time begin = absl::UnixEpoch();
  Patience patience(absl::Minutes(10), begin);
  RUBATO_EXPECT_OK(patience.Check(begin + absl::Minutes(9), "a step"));
  patience.OnMoved(begin + absl::Minutes(9));
  RUBATO_EXPECT_OK(patience.Check(begin + absl::Minutes(18), "a step"));
  EXPECT_THAT(patience.Check(begin + absl::Minutes(19), "a step"),
              IsError(absl::StatusCode::kDeadlineExceeded,
                      ::testing::HasSubstr("a step has not moved for 10m")));
}

}  // namespace
}  // namespace rubato
