#include "common/base/kernels.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "common/base/isa.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// Every level that this processor has.
std::vector<Isa> Levels() {
  std::vector<Isa> levels;
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= DetectIsa()) levels.push_back(isa);
  }
  return levels;
}

std::vector<float> RandomFloats(uint64_t key, size_t n) {
  RandomStream stream(key);
  std::vector<float> values(n);
  for (float& value : values) {
    // Over many magnitudes, so that additions round in all ways.
    value = std::ldexp(stream.Uniform(-1, 1), static_cast<int>(stream.Below(40)) - 20);
  }
  return values;
}

class AddTest : public testing::Test {
 protected:
  void TearDown() override { SetIsa(DetectIsa()); }
};

TEST_F(AddTest, IsTheRoundedSumAtEveryLevelAndLength) {
  for (Isa isa : Levels()) {
    SetIsa(isa);
    for (size_t n = 0; n < 70; ++n) {
      const std::vector<float> a = RandomFloats(Key(1, n), n);
      const std::vector<float> b = RandomFloats(Key(2, n), n);
      std::vector<float> out(n + 1, 7);
      Add(a.data(), b.data(), out.data(), n);
      for (size_t i = 0; i < n; ++i) {
        // The sum of two floats, rounded to double and then to float, is rounded as if once.
        EXPECT_EQ(out[i], static_cast<float>(double{a[i]} + double{b[i]}))
            << IsaName(isa) << " n " << n << " i " << i;
      }
      EXPECT_EQ(out[n], 7) << "wrote past the end";
    }
  }
}

TEST_F(AddTest, OutMayBeEitherSummand) {
  for (Isa isa : Levels()) {
    SetIsa(isa);
    const std::vector<float> a = RandomFloats(3, 1001);
    const std::vector<float> b = RandomFloats(4, 1001);
    std::vector<float> sum(1001), into_a = a, into_b = b, doubled = a;
    Add(a.data(), b.data(), sum.data(), sum.size());
    Add(into_a.data(), b.data(), into_a.data(), sum.size());
    Add(a.data(), into_b.data(), into_b.data(), sum.size());
    Add(doubled.data(), doubled.data(), doubled.data(), sum.size());
    EXPECT_EQ(into_a, sum) << IsaName(isa);
    EXPECT_EQ(into_b, sum) << IsaName(isa);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(doubled[i], 2 * a[i]) << IsaName(isa);
  }
}

TEST_F(AddTest, BytesMayLieAtAnyAddress) {
  for (Isa isa : Levels()) {
    SetIsa(isa);
    for (size_t shift = 0; shift < 8; ++shift) {
      const std::vector<float> a = RandomFloats(5, 333);
      const std::vector<float> b = RandomFloats(6, 333);
      std::vector<char> bytes(shift + b.size() * sizeof(float));
      std::memcpy(&bytes[shift], b.data(), b.size() * sizeof(float));
      std::vector<float> sum(a.size()), in_place = a;
      Add(a.data(), b.data(), sum.data(), sum.size());
      Add(in_place.data(), &bytes[shift], in_place.data(), in_place.size());
      EXPECT_EQ(in_place, sum) << IsaName(isa) << " shift " << shift;
    }
  }
}

TEST_F(AddTest, KeepsDenormalsInfinitiesAndNonNumbers) {
  for (Isa isa : Levels()) {
    SetIsa(isa);
    const float infinity = HUGE_VALF;
    std::vector<float> a(64, 0), b(64, 0);
    a[3] = 0x1p-149f, b[3] = 0x1p-149f;
    a[5] = infinity, b[5] = 1;
    a[6] = infinity, b[6] = -infinity;
    a[63] = 0x1.fffffep127f, b[63] = 0x1.fffffep127f;
    std::vector<float> out(64);
    Add(a.data(), b.data(), out.data(), out.size());
    EXPECT_EQ(out[3], 0x1p-148f) << IsaName(isa);
    EXPECT_EQ(out[5], infinity) << IsaName(isa);
    EXPECT_TRUE(std::isnan(out[6])) << IsaName(isa);
    EXPECT_EQ(out[63], infinity) << IsaName(isa);
  }
}

}  // namespace
}  // namespace rubato
