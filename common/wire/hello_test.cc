#include "common/wire/hello.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

absl::Status Answered(grpc::StatusCode code) {
  Caller caller(*JobKey::DrawSecret().Of(Role::kWorker));
  caller.Hello();
  return OnHelloAnswered(grpc::Status(code, "why"), proto::HelloReply(), &caller);
}

// A server that shuts down cancels its calls: the caller is to look for the next one.
TEST(HelloTest, AServerThatEndsMeanwhileIsUnavailable) {
  EXPECT_THAT(Answered(grpc::StatusCode::CANCELLED), IsError(Code::kUnavailable, _));
  EXPECT_THAT(Answered(grpc::StatusCode::UNAVAILABLE), IsError(Code::kUnavailable, _));
}

TEST(HelloTest, WhoDoesNotHoldTheKeyOrAsksForNoneIsSaid) {
  EXPECT_THAT(Answered(grpc::StatusCode::OK), IsError(Code::kUnauthenticated, _));
  EXPECT_THAT(Answered(grpc::StatusCode::UNIMPLEMENTED),
              IsError(Code::kUnauthenticated, HasSubstr("asks for no key")));
}

}  // namespace
}  // namespace rubato
