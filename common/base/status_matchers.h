// Matchers for absl::Status in tests: EXPECT_THAT(f(), IsOk()), EXPECT_THAT(f(), IsError(code,
// HasSubstr("..."))).
#ifndef RUBATO_COMMON_BASE_STATUS_MATCHERS_H_
#define RUBATO_COMMON_BASE_STATUS_MATCHERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {

inline const absl::Status& ToStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& ToStatus(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, "") {
  *result_listener << ToStatus(arg).ToString();
  return ToStatus(arg).ok();
}

MATCHER_P2(IsError, code, message, "") {
  *result_listener << ToStatus(arg).ToString();
  return ToStatus(arg).code() == code && ::testing::Matches(::testing::Matcher<std::string>(
                                             message))(std::string(ToStatus(arg).message()));
}

}  // namespace rubato

#define RUBATO_ASSERT_OK(expression) ASSERT_THAT(expression, ::rubato::IsOk())
#define RUBATO_EXPECT_OK(expression) EXPECT_THAT(expression, ::rubato::IsOk())

#endif  // RUBATO_COMMON_BASE_STATUS_MATCHERS_H_
