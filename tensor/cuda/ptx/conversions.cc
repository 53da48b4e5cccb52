// From one type to another: cvt.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/half.h"
#include "tensor/cuda/ptx/operations.h"

namespace rubato::ptx {
namespace {

// Calls f(a zero of the type, its name) for each type of integers.
template <typename F>
void ForIntegers(F f) {
  f(int16_t{0}, ".s16");
  f(uint16_t{0}, ".u16");
  f(int32_t{0}, ".s32");
  f(uint32_t{0}, ".u32");
  f(int64_t{0}, ".s64");
  f(uint64_t{0}, ".u64");
}
template <typename F>
void ForFloats(F f) {
  f(float{0}, ".f32");
  f(double{0}, ".f64");
}

// Towards zero. What is beyond the type is its greatest or least; "NaN" is 0 where both types are
// of less than 64 bits, else the upper bit alone.
template <typename To, typename From>
To ToInteger(From value) {
  if (value != value) {
    return sizeof(From) < 8 && sizeof(To) < 8
               ? To{0}
               : static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1));
  }
  constexpr To kLeast = std::numeric_limits<To>::min(), kGreatest = std::numeric_limits<To>::max();
  if (value <= static_cast<From>(kLeast)) return kLeast;
  if (value >= static_cast<From>(kGreatest)) return kGreatest;
  return static_cast<To>(value);
}

}  // namespace

void AddConversions(Operations* table) {
  Operations& t = *table;
  ForIntegers([&](auto from, const std::string& from_name) {
    using From = decltype(from);
    // Cut, or made longer by the source's sign.
    ForIntegers([&](auto to, const std::string& to_name) {
      using To = decltype(to);
      t["cvt" + to_name + from_name] = ForEachLane([](From a) { return static_cast<To>(a); });
      if (sizeof(From) == sizeof(uint64_t)) return;
      // Of the lower part of a wider register.
      t[absl::StrCat("cvt", to_name, from_name, kOf64Bits)] =
          ForEachLane([](uint64_t a) { return static_cast<To>(static_cast<From>(a)); });
    });
    ForFloats([&](auto to, const std::string& to_name) {
      using To = decltype(to);
      t["cvt.rn" + to_name + from_name] = ForEachLane([](From a) { return static_cast<To>(a); });
      t["cvt.rzi" + from_name + to_name] = ForEachLane([](To a) { return ToInteger<From>(a); });
    });
  });
  t["cvt.f64.f32"] = ForEachLane([](float a) { return static_cast<double>(a); });
  t["cvt.rn.f32.f64"] = ForEachLane([](double a) { return static_cast<float>(a); });
  t["cvt.rzi.f32.f32"] = ForEachLane([](float a) { return std::trunc(a); });
  t["cvt.rzi.f64.f64"] = ForEachLane([](double a) { return std::trunc(a); });
  // Half floats, to nearest, ties to even; "NaN" is always the same one.
  t["cvt.rn.bf16.f32"] = ForEachLane([](float a) { return a != a ? uint16_t{0x7fff} : ToBf16(a); });
  t["cvt.rn.f16.f32"] = ForEachLane([](float a) { return a != a ? uint16_t{0x7fff} : ToFp16(a); });
  t["cvt.f32.f16"] = ForEachLane([](uint16_t a) { return FromFp16(a); });
  // Into [0, 1]; what is no number is 0.
  t["cvt.sat.f32.f32"] = ForEachLane([](float a) { return a > 0 ? std::min(a, 1.0f) : 0.0f; });
}

}  // namespace rubato::ptx
