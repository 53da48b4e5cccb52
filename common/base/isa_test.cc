#include "common/base/isa.h"

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

// Squares keep their identity under every level; what changes is the code that runs.
struct SumOfSquares {
  static RUBATO_ALWAYS_INLINE double Run(const double* x, int n) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i] * x[i];
    return sum;
  }
};

TEST(Isa, EveryLevelOfThisProcessorCanBeNamedAndRun) {
  const double x[] = {1, 2, 3, 4, 5};
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > DetectIsa()) continue;
    const absl::StatusOr<Isa> named = IsaFromName(IsaName(isa));
    RUBATO_ASSERT_OK(named);
    EXPECT_EQ(*named, isa);
    SetIsa(isa);
    EXPECT_EQ(CurrentIsa(), isa);
    EXPECT_EQ(Dispatch<SumOfSquares>(x, 5), 55);
  }
  SetIsa(DetectIsa());
}

TEST(Isa, AutoIsTheBestLevel) {
  RUBATO_ASSERT_OK(IsaFromName("auto"));
  EXPECT_EQ(*IsaFromName("auto"), DetectIsa());
}

TEST(Isa, ALevelThatTheProcessorLacksIsRefused) {
  if (DetectIsa() == Isa::kAvx512) GTEST_SKIP() << "this processor has every level";
  EXPECT_THAT(IsaFromName("avx512"),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("lacks avx512")));
}

TEST(Isa, AnUnknownNameIsRefused) {
  EXPECT_THAT(IsaFromName("sse9"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("'sse9'")));
}

}  // namespace
}  // namespace rubato
