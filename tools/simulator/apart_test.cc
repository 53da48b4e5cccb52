#include "tools/simulator/apart.h"

#include <cstdlib>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(ApartTest, TellsWhatIsWrong) {
  RUBATO_EXPECT_OK(RunApart([] { return absl::OkStatus(); }));
  const std::string text(100000, 'x');  // more than a pipe holds
  EXPECT_THAT(RunApart([&] { return absl::InternalError(text); }),
              IsError(absl::StatusCode::kInternal, text));
}

TEST(ApartTest, OutlivesWhatAbortsOrHasNoEnd) {
  EXPECT_THAT(RunApart([]() -> absl::Status { std::abort(); }),
              IsError(absl::StatusCode::kAborted, "a core aborted"));
  EXPECT_THAT(RunApart(
                  []() -> absl::Status {
                    for (volatile int turns = 0;;) turns = turns + 1;
                  },
                  /*most_seconds=*/1),
              IsError(absl::StatusCode::kAborted, "a core aborted"));
}

TEST(ApartTest, KeepsNothingOfIt) {
  int runs = 0;
  RUBATO_EXPECT_OK(RunApart([&] {
    ++runs;
    return absl::OkStatus();
  }));
  EXPECT_EQ(runs, 0);
}

}  // namespace
}  // namespace rubato
