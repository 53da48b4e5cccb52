#include "common/pace/quantity.h"

#include <limits>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

TEST(QuantityTest, TimesHaveUnits) {
  for (const auto& [text, expected] :
       {std::pair("100us", int64_t{100000}), std::pair("2.5ms", int64_t{2500000}),
        std::pair("1 s", int64_t{1000000000}), std::pair("80ns", int64_t{80}),
        std::pair("0", int64_t{0}), std::pair("1h", int64_t{3600} * 1000000000)}) {
    const absl::StatusOr<int64_t> time = ParseTime("--latency", text);
    RUBATO_ASSERT_OK(time);
    EXPECT_EQ(*time, expected) << text;
  }
  for (const char* text : {"", "100", "us", "-1s", "1 parsec", "1e3s", "1.2.3s", "9999999999h"}) {
    EXPECT_THAT(ParseTime("--latency", text),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("--latency: found")));
  }
  EXPECT_EQ(*ParseTime("--compute", "10000h"), kLongestNanos);
  for (const char* text : {"10001h", "1000000h", "99999999999999999999s"}) {
    EXPECT_THAT(ParseTime("--compute", text), IsError(absl::StatusCode::kInvalidArgument,
                                                      HasSubstr("expected not more than 10000h")));
  }
}

TEST(QuantityTest, BandwidthIsInBytesASecond) {
  for (const auto& [text, expected] :
       {std::pair("10Gbit", 1.25e9), std::pair("8kbit", 1e3), std::pair("1.5GB", 1.5e9),
        std::pair("200MB", 2e8), std::pair("unlimited", std::numeric_limits<double>::infinity())}) {
    const absl::StatusOr<double> rate = ParseBandwidth("--bandwidth", text);
    RUBATO_ASSERT_OK(rate);
    EXPECT_DOUBLE_EQ(*rate, expected) << text;
  }
  for (const char* text : {"", "10", "0Gbit", "10gbit", "fast"}) {
    EXPECT_THAT(ParseBandwidth("--bandwidth", text),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("--bandwidth: found")));
  }
}

}  // namespace
}  // namespace rubato
