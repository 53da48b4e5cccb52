#include "common/wire/stream_opening.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

TEST(StreamOpeningTest, AServerTakesCallsOfItsOwnJob) {
  RUBATO_EXPECT_OK(CheckOpening(kDataMethod, "digest", "digest"));
  EXPECT_THAT(CheckOpening(kDataMethod, "other", "digest"),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("another job")));
  EXPECT_THAT(CheckOpening(kDataMethod, std::nullopt, ""),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("another job")));
  EXPECT_THAT(CheckOpening("/other", "digest", "digest"),
              IsError(absl::StatusCode::kUnimplemented, HasSubstr("no method /other")));
}

TEST(StreamOpeningTest, AWorkerReadsWhatAServerAnswers) {
  RUBATO_EXPECT_OK(ReadAnswer(AnswerToOffer(absl::OkStatus())));
  EXPECT_THAT(ReadAnswer(AnswerToOffer(absl::InternalError("no room"))),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("no room")));
  EXPECT_THAT(ReadAnswer(std::nullopt),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("not answered")));
}

}  // namespace
}  // namespace rubato
