// One instruction at a time, against the C++ compiler's arithmetic of wider types, against bits
// known from the formats, and against the processor's own directed rounding.
#include "tensor/cuda/ptx/operations.h"

#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato::ptx {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLeast = 0x1p-126f;  // the least normal one
const float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
T FromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// The instruction's result, as its bits, in an odd lane; the others hold something else.
template <typename... A>
uint64_t Compute(const char* opcode, A... operands) {
  const Operation* const operation = FindOperation(opcode);
  if (operation == nullptr) {
    ADD_FAILURE() << opcode << " is not known";
    return 0;
  }
  EXPECT_EQ(operation->widths.size(), 1 + sizeof...(A)) << opcode;
  EXPECT_EQ(std::vector<int>(operation->widths.begin() + 1, operation->widths.end()),
            (std::vector<int>{sizeof(A)...}))
      << opcode;
  constexpr int kLane = 13;
  char file[6 * 8 * kLanes];
  std::memset(file, 1, sizeof file);
  int32_t places[6] = {0};
  int i = 0;
  const auto put = [&](auto value) {
    ++i;
    places[i] = i * 8 * kLanes;
    Set(file, places[i], kLane, value);
  };
  (put(operands), ...);
  operation->run(file, places, uint32_t{1} << kLane);
  const int width = operation->widths[0];
  for (int b = 0; b < kLanes * width; ++b) {
    EXPECT_TRUE(file[b] == 1 || b / width == kLane) << opcode << " wrote another lane";
  }
  uint64_t bits = 0;
  std::memcpy(&bits, file + kLane * width, width);
  return bits;
}

template <typename R, typename... A>
R As(const char* opcode, A... operands) {
  return FromBits<R>(Compute(opcode, operands...));
}

TEST(OperationsTest, IntegersWrapAround) {
  EXPECT_EQ(As<uint32_t>("add.s32", ~0u, 2u), 1u);
  EXPECT_EQ(As<uint32_t>("sub.s32", 0u, 1u), ~0u);
  EXPECT_EQ(As<uint64_t>("add.s64", ~uint64_t{0}, uint64_t{2}), 1u);
  EXPECT_EQ(As<uint16_t>("add.s16", uint16_t{0xffff}, uint16_t{3}), 2u);
  EXPECT_EQ(As<int64_t>("neg.s64", int64_t{5}), -5);
  EXPECT_EQ(As<int64_t>("neg.s64", INT64_MIN), INT64_MIN);
  EXPECT_EQ(As<uint32_t>("mul.lo.s32", 0x10001u, 0x10001u), 0x20001u);
  EXPECT_EQ(As<uint16_t>("mul.lo.u16", uint16_t{0xffff}, uint16_t{0xffff}), 1u);
}

// (2^63 + 1)^2 = 2^126 + 2^64 + 1.
TEST(OperationsTest, ProductsHaveTwoHalves) {
  const uint64_t odd = (uint64_t{1} << 63) + 1;
  EXPECT_EQ(As<uint64_t>("mul.lo.s64", odd, odd), 1u);
  EXPECT_EQ(As<uint64_t>("mul.hi.u64", odd, odd), (uint64_t{1} << 62) + 1);
  EXPECT_EQ(As<int64_t>("mul.hi.s64", int64_t{-1}, int64_t{1}), -1);
  EXPECT_EQ(As<int64_t>("mul.wide.s32", -3, 1 << 30), -(int64_t{3} << 30));
  EXPECT_EQ(As<uint64_t>("mul.wide.u32", ~0u, ~0u), 0xfffffffe00000001u);
  EXPECT_EQ(As<int32_t>("mad.lo.s32", -7, 6, 50), 8);
}

TEST(OperationsTest, DivisionsRoundTowardsZero) {
  EXPECT_EQ(As<int32_t>("div.s32", -7, 2), -3);
  EXPECT_EQ(As<int32_t>("rem.s32", -7, 2), -1);
  EXPECT_EQ(As<uint32_t>("div.u32", 0xfffffff9u, 2u), 0x7ffffffcu);
  EXPECT_EQ(As<uint64_t>("div.u64", ~uint64_t{0}, uint64_t{10}), 1844674407370955161u);
  // What has no result stops nobody.
  EXPECT_EQ(As<int32_t>("div.s32", INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(As<int32_t>("rem.s32", INT32_MIN, -1), 0);
  Compute("div.u64", uint64_t{1}, uint64_t{0});
}

TEST(OperationsTest, ComparisonsKnowSigns) {
  EXPECT_EQ(As<bool>("setp.lt.s64", int64_t{-1}, int64_t{0}), true);
  EXPECT_EQ(As<bool>("setp.lt.u64", ~uint64_t{0}, uint64_t{0}), false);
  EXPECT_EQ(As<bool>("setp.gt.u16", uint16_t{0x8000}, uint16_t{1}), true);
  EXPECT_EQ(As<bool>("setp.ge.s32", 3, 3), true);
  EXPECT_EQ(As<bool>("setp.gt.s32", 3, 3), false);
  EXPECT_EQ(As<bool>("setp.le.s32", 3, 3), true);
  EXPECT_EQ(As<bool>("setp.eq.b64", uint64_t{3}, uint64_t{3} << 32), false);
  EXPECT_EQ(As<bool>("setp.ne.s64", int64_t{3}, int64_t{3} << 32), true);
  EXPECT_EQ(As<int64_t>("min.s64", int64_t{-4}, int64_t{4}), -4);
  EXPECT_EQ(As<int64_t>("max.s64", int64_t{-4}, int64_t{4}), 4);
}

TEST(OperationsTest, BitsAndShifts) {
  EXPECT_EQ(As<uint32_t>("and.b32", 12u, 10u), 8u);
  EXPECT_EQ(As<uint32_t>("or.b32", 12u, 10u), 14u);
  EXPECT_EQ(As<uint64_t>("xor.b64", uint64_t{12}, uint64_t{10}), 6u);
  EXPECT_EQ(As<uint64_t>("not.b64", uint64_t{0}), ~uint64_t{0});
  EXPECT_EQ(As<uint16_t>("and.b16", uint16_t{12}, uint16_t{10}), 8u);
  EXPECT_EQ(As<uint32_t>("shl.b32", 3u, 31u), 1u << 31);
  EXPECT_EQ(As<uint32_t>("shl.b32", 3u, 32u), 0u);
  EXPECT_EQ(As<uint64_t>("shl.b64", uint64_t{3}, 33u), uint64_t{3} << 33);
  EXPECT_EQ(As<uint32_t>("shr.u32", ~0u, 28u), 15u);
  EXPECT_EQ(As<uint64_t>("shr.u64", ~uint64_t{0}, 64u), 0u);
  EXPECT_EQ(As<int32_t>("shr.s32", -16, 2u), -4);
  EXPECT_EQ(As<int32_t>("shr.s32", -16, 99u), -1);
  for (const bool a : {false, true}) {
    EXPECT_EQ(As<bool>("not.pred", a), !a);
    EXPECT_EQ(As<float>("selp.f32", 1.5f, 2.5f, a), a ? 1.5f : 2.5f);
    EXPECT_EQ(As<uint16_t>("selp.b16", uint16_t{3}, uint16_t{4}, a), a ? 3 : 4);
    for (const bool b : {false, true}) {
      EXPECT_EQ(As<bool>("and.pred", a, b), a && b);
      EXPECT_EQ(As<bool>("or.pred", a, b), a || b);
      EXPECT_EQ(As<bool>("xor.pred", a, b), a != b);
    }
  }
}

TEST(OperationsTest, ExtractsBits) {
  EXPECT_EQ(As<uint32_t>("bfe.u32", 0x12345678u, 8u, 12u), 0x456u);
  EXPECT_EQ(As<int32_t>("bfe.s32", 0x12345678, 12u, 8u), 0x45);
  EXPECT_EQ(As<int32_t>("bfe.s32", 0x12345678, 8u, 11u), 0x456 - 0x800);
  EXPECT_EQ(As<uint32_t>("bfe.u32", 0xf0000000u, 28u, 12u), 0xfu) << "no more than there are";
  EXPECT_EQ(As<int64_t>("bfe.s64", INT64_MIN, 60u, 99u), -8);
  EXPECT_EQ(As<uint64_t>("bfe.u64", uint64_t{0xabcd} << 40, 256u + 44u, 8u), 0xbcu);
  EXPECT_EQ(As<int32_t>("bfe.s32", -1, 3u, 0u), 0);
}

TEST(OperationsTest, PermutesBytes) {
  EXPECT_EQ(As<uint32_t>("prmt.b32", 0x44332211u, 0x88776655u, 0x5410u), 0x66552211u);
  EXPECT_EQ(As<uint32_t>("prmt.b32", 0x44332211u, 0x88776655u, 0x7632u), 0x88774433u);
  EXPECT_EQ(As<uint32_t>("prmt.b32", 0x44332211u, 0x88776655u, 0xf80fu), 0xff0011ffu) << "signs";
}

TEST(OperationsTest, FloatsRoundToNearest) {
  EXPECT_EQ(As<float>("add.f32", 1.0f, 0x1p-24f), 1.0f);
  EXPECT_EQ(As<float>("add.f32", 1 + 0x1p-23f, 0x1p-24f), 1 + 0x1p-22f);
  EXPECT_EQ(As<float>("sub.f32", 1.0f, 0x1p-25f), 1.0f);
  EXPECT_EQ(As<float>("mul.f32", 1 + 0x1p-12f, 1 + 0x1p-12f), 1 + 0x1p-11f);
  EXPECT_EQ(As<float>("fma.rn.f32", 1 + 0x1p-12f, 1 + 0x1p-12f, -1 - 0x1p-11f), 0x1p-24f);
  EXPECT_EQ(As<double>("fma.rn.f64", 1 + 0x1p-30, 1 + 0x1p-30, -1 - 0x1p-29), 0x1p-60);
  EXPECT_EQ(As<float>("div.rn.f32", 1.0f, 3.0f), 1.0f / 3);
  EXPECT_EQ(As<float>("rcp.rn.f32", 3.0f), 1.0f / 3);
  EXPECT_EQ(As<float>("sqrt.rn.f32", 2.0f), FromBits<float>(0x3fb504f3));
  EXPECT_EQ(As<double>("div.rn.f64", 1.0, 3.0), FromBits<double>(0x3fd5555555555555));
  // Subnormal ones are numbers like others.
  EXPECT_EQ(As<float>("mul.f32", kLeast, 0.25f), 0x1p-128f);
  EXPECT_EQ(As<float>("add.f32", 0x1p-149f, 0x1p-149f), 0x1p-148f);
  EXPECT_EQ(Compute("add.f32", kInfinity, -kInfinity), 0x7fffffffu) << "what is no number, on GPUs";
  EXPECT_EQ(Compute("mul.f32", 0.0f, kInfinity), 0x7fffffffu);
}

TEST(OperationsTest, SignsOfFloats) {
  EXPECT_EQ(Compute("neg.f32", 0.0f), 0x80000000u);
  EXPECT_EQ(Compute("abs.f32", -0.0f), 0u);
  EXPECT_EQ(As<float>("copysign.f32", -1.0f, 5.0f), -5.0f) << "the sign is the first's";
  EXPECT_EQ(As<float>("min.f32", kNan, 5.0f), 5.0f);
  EXPECT_EQ(Compute("min.f32", 0.0f, -0.0f), 0x80000000u);
  EXPECT_EQ(Compute("max.f32", -0.0f, 0.0f), 0u);
}

TEST(OperationsTest, ComparisonsOfWhatIsNoNumber) {
  for (const char* ordered : {"eq", "ne", "lt", "le", "gt", "ge", "num"}) {
    EXPECT_FALSE(As<bool>((std::string("setp.") + ordered + ".f32").c_str(), kNan, 1.0f));
  }
  for (const char* unordered : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"}) {
    EXPECT_TRUE(As<bool>((std::string("setp.") + unordered + ".f32").c_str(), 1.0f, kNan));
  }
  EXPECT_TRUE(As<bool>("setp.gtu.f32", 2.0f, 1.0f));
  EXPECT_FALSE(As<bool>("setp.gtu.f32", 1.0f, 1.0f));
  EXPECT_TRUE(As<bool>("setp.leu.f32", 1.0f, 1.0f));
  EXPECT_FALSE(As<bool>("setp.leu.f32", 2.0f, 1.0f));
  EXPECT_FALSE(As<bool>("setp.nan.f32", 2.0f, 1.0f));
  EXPECT_TRUE(As<bool>("setp.num.f32", 2.0f, 1.0f));
  EXPECT_TRUE(As<bool>("setp.eq.f32", 0.0f, -0.0f));
}

// The processor's own rounding down, for operands whose products cancel, overflow and underflow.
TEST(OperationsTest, RoundsDownAsTheProcessorDoes) {
  RandomStream stream(1);
  const auto draw = [&] {
    const int exponent = static_cast<int>(stream.Below(254)) - 126;
    return std::ldexp(stream.Uniform(-1, 1), exponent / static_cast<int>(stream.Below(3) + 1));
  };
  for (int i = 0; i < 20000; ++i) {
    const float a = draw(), b = draw();
    const float product = a * b;
    const float c = i % 3 == 0 ? -product : i % 3 == 1 ? std::nextafter(-product, 0.0f) : draw();
    std::fesetround(FE_DOWNWARD);
    volatile float x = a, y = b, z = c;
    const float expected = std::fma(x, y, z);
    std::fesetround(FE_TONEAREST);
    ASSERT_EQ(Compute("fma.rm.f32", a, b, c), BitsOf(expected)) << a << " * " << b << " + " << c;
  }
  EXPECT_EQ(Compute("fma.rm.f32", 1.0f, 1.0f, -1.0f), 0x80000000u);
  EXPECT_EQ(Compute("fma.rm.f32", 0.0f, 1.0f, 0.0f), 0u);
  EXPECT_EQ(Compute("fma.rm.f32", kInfinity, 0.0f, 1.0f), 0x7fffffffu);
}

TEST(OperationsTest, ApproximationsFlushSubnormalsAndAreExactHere) {
  for (int e = -126; e < 128; ++e) {
    EXPECT_EQ(As<float>("ex2.approx.ftz.f32", static_cast<float>(e)), std::ldexp(1.0f, e));
    EXPECT_EQ(As<float>("rcp.approx.ftz.f32", std::ldexp(1.0f, e)),
              e > 126 ? 0.0f : std::ldexp(1.0f, -e));
  }
  EXPECT_EQ(As<float>("ex2.approx.ftz.f32", 0.5f), FromBits<float>(0x3fb504f3));  // sqrt(2)
  EXPECT_EQ(As<float>("ex2.approx.ftz.f32", -127.0f), 0.0f) << "below the least normal one";
  EXPECT_EQ(As<float>("ex2.approx.ftz.f32", 128.0f), kInfinity);
  EXPECT_EQ(As<float>("ex2.approx.ftz.f32", -kInfinity), 0.0f);
  EXPECT_EQ(Compute("rcp.approx.ftz.f32", -0x1p-127f), BitsOf(-kInfinity)) << "of a zero, then";
  EXPECT_EQ(As<float>("rcp.approx.ftz.f32", kInfinity), 0.0f);
  // Of float64: upper halves alone.
  EXPECT_EQ(Compute("rcp.approx.ftz.f64", 3.0), 0x3fd5555500000000u);
  EXPECT_EQ(Compute("rcp.approx.ftz.f64", FromBits<double>(0x3ff00000ffffffff)),
            0x3ff0000000000000u);
  EXPECT_EQ(Compute("rcp.approx.ftz.f64", 0x1p-1030), 0x7ff0000000000000u);
}

TEST(OperationsTest, ConversionsOfIntegers) {
  EXPECT_EQ(As<uint32_t>("cvt.u32.u16", uint16_t{0xffff}), 0xffffu);
  EXPECT_EQ(As<uint32_t>("cvt.u32.u64", uint64_t{0x123456789}), 0x23456789u);
  EXPECT_EQ(As<int64_t>("cvt.s64.s32", -2), -2);
  EXPECT_EQ(As<uint64_t>("cvt.u64.u32", ~0u), 0xffffffffu);
  EXPECT_EQ(As<float>("cvt.rn.f32.u16", uint16_t{0xffff}), 65535.0f);
  EXPECT_EQ(As<float>("cvt.rn.f32.s64", (int64_t{1} << 24) + 1), 0x1p24f);
  EXPECT_EQ(As<float>("cvt.rn.f32.u32", ~0u), 0x1p32f);
  EXPECT_EQ(As<double>("cvt.rn.f64.s64", int64_t{-3}), -3.0);
}

TEST(OperationsTest, ConversionsOfFloats) {
  EXPECT_EQ(As<double>("cvt.f64.f32", 0.1f), static_cast<double>(0.1f));
  EXPECT_EQ(As<float>("cvt.rn.f32.f64", 1 + 0x3p-25), 1 + 0x1p-23f);
  EXPECT_EQ(As<float>("cvt.rzi.f32.f32", -2.75f), -2.0f);
  EXPECT_EQ(As<int64_t>("cvt.rzi.s64.f32", -2.75f), -2);
  EXPECT_EQ(As<int64_t>("cvt.rzi.s64.f32", 1e30f), INT64_MAX);
  EXPECT_EQ(As<int64_t>("cvt.rzi.s64.f32", -1e30f), INT64_MIN);
  EXPECT_EQ(As<int64_t>("cvt.rzi.s64.f32", kNan), INT64_MIN);
  EXPECT_EQ(As<int32_t>("cvt.rzi.s32.f32", kNan), 0);
  EXPECT_EQ(As<float>("cvt.sat.f32.f32", 1.5f), 1.0f);
  EXPECT_EQ(As<float>("cvt.sat.f32.f32", -1.5f), 0.0f);
  EXPECT_EQ(As<float>("cvt.sat.f32.f32", 0.75f), 0.75f);
  EXPECT_EQ(As<float>("cvt.sat.f32.f32", kNan), 0.0f);
}

TEST(OperationsTest, ConversionsOfHalfFloats) {
  EXPECT_EQ(As<uint16_t>("cvt.rn.bf16.f32", 1 + 0x1p-8f), 0x3f80);  // ties to even
  EXPECT_EQ(As<uint16_t>("cvt.rn.bf16.f32", 1 + 0x3p-8f), 0x3f82);
  EXPECT_EQ(As<uint16_t>("cvt.rn.bf16.f32", -0x1p-133f), 0x8001);
  EXPECT_EQ(As<uint16_t>("cvt.rn.bf16.f32", 0x1.ffp127f), 0x7f80);
  EXPECT_EQ(As<uint16_t>("cvt.rn.bf16.f32", -kNan), 0x7fff);
  EXPECT_EQ(As<uint16_t>("cvt.rn.f16.f32", 1 + 0x1p-11f), 0x3c00);
  EXPECT_EQ(As<uint16_t>("cvt.rn.f16.f32", 1 + 0x3p-11f), 0x3c02);
  EXPECT_EQ(As<uint16_t>("cvt.rn.f16.f32", -0x1p-24f), 0x8001);
  EXPECT_EQ(As<uint16_t>("cvt.rn.f16.f32", 65519.0f), 0x7bff);
  EXPECT_EQ(As<uint16_t>("cvt.rn.f16.f32", 65520.0f), 0x7c00);
  EXPECT_EQ(As<uint16_t>("cvt.rn.f16.f32", kNan), 0x7fff);
  EXPECT_EQ(As<float>("cvt.f32.f16", uint16_t{0x3c01}), 1 + 0x1p-10f);
  EXPECT_EQ(As<float>("cvt.f32.f16", uint16_t{0x8001}), -0x1p-24f);
  EXPECT_EQ(As<float>("cvt.f32.f16", uint16_t{0x7c00}), kInfinity);
}

TEST(OperationsTest, KnowsNoOthers) {
  EXPECT_EQ(FindOperation("add.f16"), nullptr);
  EXPECT_EQ(FindOperation("add.rz.f32"), nullptr);
  EXPECT_EQ(FindOperation(""), nullptr);
}

}  // namespace
}  // namespace rubato::ptx
