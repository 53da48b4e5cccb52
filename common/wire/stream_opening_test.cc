#include "common/wire/stream_opening.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

TEST(StreamOpeningTest, AServerTakesCallsOfItsOwnJob) {
  const StreamScope own{"digest"};
  RUBATO_EXPECT_OK(CheckOpening(kDataMethod, "digest", std::nullopt, own));
  EXPECT_THAT(CheckOpening(kDataMethod, "other", std::nullopt, own),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("another job")));
  EXPECT_THAT(CheckOpening(kDataMethod, std::nullopt, std::nullopt, {""}),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("another job")));
  EXPECT_THAT(CheckOpening("/other", "digest", std::nullopt, own),
              IsError(absl::StatusCode::kUnimplemented, HasSubstr("no method /other")));
}

TEST(StreamOpeningTest, AServerTakesCallsOfItsOwnTerm) {
  RUBATO_EXPECT_OK(CheckOpening(kDataMethod, "digest", "7", {"digest", 7}));
  // Who is behind may come again; so may who is ahead of a server without a view.
  for (const auto& [found, own] : {std::pair("6", 7u), {"8", 7u}, {"7", 0u}}) {
    EXPECT_THAT(CheckOpening(kDataMethod, "digest", found, {"digest", own}),
                IsError(absl::StatusCode::kUnavailable, HasSubstr("of term")));
  }
  EXPECT_THAT(CheckOpening(kDataMethod, "digest", std::nullopt, {"digest", 7}),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("of term 0")));
  for (const char* nonsense : {"", "x", "-1", "4294967296"}) {
    EXPECT_THAT(CheckOpening(kDataMethod, "digest", nonsense, {"digest", 7}),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("not a number")));
  }
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
