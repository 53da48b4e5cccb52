#include "common/base/finite.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/isa.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using Limits = std::numeric_limits<float>;

class FiniteTest : public testing::Test {
 protected:
  void TearDown() override { SetIsa(DetectIsa()); }

  // Every level that this processor has.
  static std::vector<Isa> Levels() {
    std::vector<Isa> levels;
    for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
      if (isa <= DetectIsa()) levels.push_back(isa);
    }
    return levels;
  }
};

TEST_F(FiniteTest, AgreesWithTheLibraryOnEveryExponentAndSign) {
  for (Isa isa : Levels()) {
    SetIsa(isa);
    RandomStream random(1);
    for (uint32_t top = 0; top < 512; ++top) {  // sign and exponent
      for (const uint32_t mantissa : {0u, 1u, 0x400000u, 0x7fffffu, random.Below(1u << 23)}) {
        const uint32_t bits = top << 23 | mantissa;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        EXPECT_EQ(FirstNonFinite({value}), std::isfinite(value) ? 1u : 0u)
            << IsaName(isa) << " " << bits;
      }
    }
  }
}

TEST_F(FiniteTest, TellsTheFirst) {
  for (Isa isa : Levels()) {
    SetIsa(isa);
    for (const size_t n : {0u, 1u, 15u, 16u, 17u, 1023u, 1024u, 1025u, 3000u}) {
      std::vector<float> values(n);
      for (size_t i = 0; i < n; ++i) values[i] = i % 2 == 0 ? Limits::max() : -Limits::denorm_min();
      EXPECT_EQ(FirstNonFinite(values), n);
      for (size_t at = 0; at < n; at += 1 + at / 7) {
        std::vector<float> bad = values;
        bad[at] = at % 3 == 0 ? Limits::infinity() : at % 3 == 1 ? -Limits::infinity() : NAN;
        bad[n - 1] = at == n - 1 ? bad[at] : NAN;
        EXPECT_EQ(FirstNonFinite(bad), at) << IsaName(isa) << " of " << n;
      }
    }
  }
}

TEST_F(FiniteTest, BytesMayLieAtAnyAddress) {
  const std::vector<float> values = {1, 2, NAN, 3, Limits::infinity()};
  for (size_t shift = 0; shift < 8; ++shift) {
    std::vector<char> bytes(shift + values.size() * sizeof(float));
    std::memcpy(&bytes[shift], values.data(), values.size() * sizeof(float));
    EXPECT_EQ(FirstNonFinite(&bytes[shift], values.size()), 2u);
    EXPECT_EQ(FirstNonFinite(&bytes[shift], 2), 2u);
  }
}

}  // namespace
}  // namespace rubato
