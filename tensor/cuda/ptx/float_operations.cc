// Floats: "Floating Point Instructions". What is rounded to nearest is IEEE 754's, to the bit. Of
// what is approximate (.approx) the exact value is taken, rounded once; a GPU's may differ by as
// much as the instruction's description says: rcp.approx by 1 ulp, ex2.approx by 2 (2^-22).
//
// An operation without .rn may be fused with its neighbour by ptxas: "add.f32 d, a, b" and a "mul"
// may become one fma there. Here it is not.
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/cuda/ptx/operations.h"

namespace rubato::ptx {
namespace {

template <typename To, typename From>
To Bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "");
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Results of float32 that are no number are 0x7fffffff ("Floating Point Instructions"); those of
// float64 keep their payload.
float Result(float value) { return value == value ? value : Bits<float>(0x7fffffffu); }
double Result(double value) { return value; }

// .ftz: numbers below the least normal one are zeros of their sign.
float Flush(float value) {
  return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}

// a * b + c rounded down. The product is exact in float64; of the sum there both the value and its
// error are known (Knuth, "The Art of Computer Programming" 2, 4.2.2, theorem B).
float FmaDown(float a, float b, float c) {
  const double p = static_cast<double>(a) * b, sum = p + c;
  const float nearest = static_cast<float>(sum);
  if (!std::isfinite(sum)) return Result(nearest);
  const double of_c = sum - p, error = (p - (sum - of_c)) + (c - of_c);
  // An exact zero is -0 in this direction, but for 0 + 0 (IEEE 754, 6.3).
  if (sum == 0 && error == 0)
    return p == 0 && c == 0 && !std::signbit(p) && !std::signbit(c) ? 0.0f : -0.0f;
  if (nearest > sum || (nearest == sum && error < 0)) {
    return std::nextafter(nearest, -std::numeric_limits<float>::infinity());
  }
  return nearest;
}

// rcp.approx.ftz.f64: of the operand and of the result only the upper half counts.
double ReciprocalOfUpperHalf(double a) {
  constexpr uint64_t kUpper = 0xffffffff00000000u;
  const double upper = Bits<double>(Bits<uint64_t>(a) & kUpper);
  constexpr double kLeast = std::numeric_limits<double>::min();
  const double flushed = std::abs(upper) < kLeast ? std::copysign(0.0, upper) : upper;
  const double result = 1 / flushed;
  if (std::abs(result) < kLeast) return std::copysign(0.0, result);
  return Bits<double>(Bits<uint64_t>(result) & kUpper);
}

template <typename T>
void AddArithmetic(const std::string& type, Operations* table) {
  Operations& t = *table;
  const Operation add = ForEachLane([](T a, T b) { return Result(a + b); });
  const Operation sub = ForEachLane([](T a, T b) { return Result(a - b); });
  const Operation mul = ForEachLane([](T a, T b) { return Result(a * b); });
  t["add" + type] = t["add.rn" + type] = add;
  t["sub" + type] = t["sub.rn" + type] = sub;
  t["mul" + type] = t["mul.rn" + type] = mul;
  t["fma.rn" + type] = ForEachLane([](T a, T b, T c) { return Result(std::fma(a, b, c)); });
  t["div.rn" + type] = ForEachLane([](T a, T b) { return Result(a / b); });
  t["rcp.rn" + type] = ForEachLane([](T a) { return Result(1 / a); });
  t["sqrt.rn" + type] = ForEachLane([](T a) { return Result(std::sqrt(a)); });
  t["neg" + type] = ForEachLane([](T a) { return -a; });
  t["abs" + type] = ForEachLane([](T a) { return std::abs(a); });
  // The sign of the first, the value of the second.
  t["copysign" + type] = ForEachLane([](T a, T b) { return std::copysign(b, a); });
  // One that is no number gives way to one that is; -0 is less than +0.
  t["min" + type] = ForEachLane([](T a, T b) {
    if (!(a == a) || !(b == b)) return Result(a == a ? a : b);
    return a < b || (a == b && std::signbit(a)) ? a : b;
  });
  t["max" + type] = ForEachLane([](T a, T b) {
    if (!(a == a) || !(b == b)) return Result(a == a ? a : b);
    return a < b || (a == b && std::signbit(a)) ? b : a;
  });
}

// setp: those that end in u are true of what is no number.
template <typename T>
void AddComparisons(const std::string& type, Operations* table) {
  Operations& t = *table;
  t["setp.eq" + type] = ForEachLane([](T a, T b) { return a == b; });
  t["setp.ne" + type] = ForEachLane([](T a, T b) { return a < b || a > b; });
  t["setp.lt" + type] = ForEachLane([](T a, T b) { return a < b; });
  t["setp.le" + type] = ForEachLane([](T a, T b) { return a <= b; });
  t["setp.gt" + type] = ForEachLane([](T a, T b) { return a > b; });
  t["setp.ge" + type] = ForEachLane([](T a, T b) { return a >= b; });
  t["setp.equ" + type] = ForEachLane([](T a, T b) { return !(a < b || a > b); });
  t["setp.neu" + type] = ForEachLane([](T a, T b) { return a != b; });
  t["setp.ltu" + type] = ForEachLane([](T a, T b) { return !(a >= b); });
  t["setp.leu" + type] = ForEachLane([](T a, T b) { return !(a > b); });
  t["setp.gtu" + type] = ForEachLane([](T a, T b) { return !(a <= b); });
  t["setp.geu" + type] = ForEachLane([](T a, T b) { return !(a < b); });
  t["setp.num" + type] = ForEachLane([](T a, T b) { return a == a && b == b; });
  t["setp.nan" + type] = ForEachLane([](T a, T b) { return a != a || b != b; });
}

}  // namespace

void AddFloatOperations(Operations* table) {
  Operations& t = *table;
  AddArithmetic<float>(".f32", table);
  AddArithmetic<double>(".f64", table);
  AddComparisons<float>(".f32", table);
  AddComparisons<double>(".f64", table);
  t["fma.rm.f32"] = ForEachLane([](float a, float b, float c) { return FmaDown(a, b, c); });
  t["ex2.approx.ftz.f32"] = ForEachLane([](float a) {
    return Result(Flush(static_cast<float>(std::exp2(static_cast<double>(Flush(a))))));
  });
  t["rcp.approx.ftz.f32"] = ForEachLane([](float a) { return Result(Flush(1 / Flush(a))); });
  t["rcp.approx.ftz.f64"] = ForEachLane([](double a) { return ReciprocalOfUpperHalf(a); });
}

}  // namespace rubato::ptx
