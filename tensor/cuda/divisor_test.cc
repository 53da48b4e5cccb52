#include "tensor/cuda/divisor.h"

#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr int64_t kGreatest = std::numeric_limits<int64_t>::max();

TEST(DivisorTest, DividesAsTheProcessorDoes) {
  RandomStream stream(1);
  // Of every length in bits, so that small numbers are drawn as well.
  const auto draw = [&] {
    const int bits = static_cast<int>(stream.Below(62)) + 1;
    const uint64_t high = stream.Below(1u << 31), low = stream.Below(1u << 31);
    return static_cast<int64_t>((high << 31 | low) >> (62 - bits));
  };
  std::vector<int64_t> divisors = {1,
                                   2,
                                   3,
                                   7,
                                   641,
                                   int64_t{1} << 32,
                                   int64_t{1} << 62,
                                   (int64_t{1} << 62) + 1,
                                   kGreatest - 1,
                                   kGreatest};
  for (int i = 0; i < 2000; ++i) divisors.push_back(draw() | 1);
  for (const int64_t d : divisors) {
    const Divisor divisor(d);
    EXPECT_EQ(static_cast<int64_t>(divisor), d);
    std::vector<int64_t> numbers = {
        0, 1, d - 1, d, kGreatest, kGreatest / d * d, kGreatest / d * d - 1};
    for (int i = 0; i < 100; ++i) {
      const int64_t n = draw();
      numbers.push_back(n);
      numbers.push_back(n / d * d);  // where a quotient begins, and before
      numbers.push_back(n / d * d > 0 ? n / d * d - 1 : 0);
    }
    for (const int64_t n : numbers) {
      ASSERT_EQ(n / divisor, n / d) << n << " by " << d;
      ASSERT_EQ(n % divisor, n % d) << n << " by " << d;
    }
  }
}

}  // namespace
}  // namespace rubato
