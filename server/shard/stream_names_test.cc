#include "server/shard/stream_names.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/view.pb.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

const auto kRefused = absl::StatusCode::kInvalidArgument;

TEST(StreamNamesTest, AStreamIsThatOfTheFirstWorkerThatItNames) {
  StreamNames names;
  RUBATO_EXPECT_OK(names.Check(7, {1, 0}, false));  // a pull of the next view
  RUBATO_EXPECT_OK(names.Check(7, {1, 3}, true));
  RUBATO_EXPECT_OK(names.Check(7, {1, 0}, false));
  EXPECT_THAT(names.Check(7, {2, 3}, true), IsError(kRefused, HasSubstr("that of worker 1")));
  EXPECT_THAT(names.Check(7, {1, 4}, true), IsError(kRefused, HasSubstr("(incarnation 3)")));
}

TEST(StreamNamesTest, AMemberHasOneStream) {
  StreamNames names;
  RUBATO_EXPECT_OK(names.Check(7, {1, 3}, true));
  EXPECT_THAT(names.Check(8, {1, 3}, true), IsError(kRefused, HasSubstr("another stream")));
  // Not that of its rank's next incarnation, though what was before may still come.
  RUBATO_EXPECT_OK(names.Check(9, {1, 4}, true));
  RUBATO_EXPECT_OK(names.Check(7, {1, 3}, false));
  names.Forget(7);
  EXPECT_THAT(names.Check(10, {1, 4}, true), IsError(kRefused, HasSubstr("another stream")));
  names.Forget(9);
  RUBATO_EXPECT_OK(names.Check(11, {1, 4}, true));
}

proto::View ViewOf(int rank, uint32_t incarnation, uint64_t attempt) {
  proto::View view;
  proto::Member* const member = view.add_members();
  member->set_rank(rank);
  member->set_incarnation(incarnation);
  member->set_attempt(attempt);
  return view;
}

// Before the member's own stream has said anything, too.
TEST(StreamNamesTest, AMembersStreamShowsItsAttempt) {
  StreamNames names;
  names.SetMembers(ViewOf(1, 3, 77));
  EXPECT_THAT(names.Check(8, {1, 3}, true), IsError(kRefused, HasSubstr("has not shown")));
  names.Show(9, 78);
  EXPECT_THAT(names.Check(9, {1, 3}, true), IsError(kRefused, HasSubstr("has not shown")));
  names.Show(9, 77);  // no second guess
  EXPECT_THAT(names.Check(9, {1, 3}, true), IsError(kRefused, HasSubstr("has not shown")));
  names.Show(7, 77);
  RUBATO_EXPECT_OK(names.Check(7, {1, 3}, true));
  names.SetMembers(ViewOf(1, 4, 99));
  names.Show(10, 99);
  RUBATO_EXPECT_OK(names.Check(10, {1, 4}, true));
  RUBATO_EXPECT_OK(names.Check(7, {1, 3}, false));  // late
}

// It takes nobody's place.
TEST(StreamNamesTest, WhoIsNoMemberHoldsNoName) {
  StreamNames names;
  RUBATO_EXPECT_OK(names.Check(8, {1, 3}, false));
  RUBATO_EXPECT_OK(names.Check(7, {1, 3}, true));
}

}  // namespace
}  // namespace rubato
