// Integers, bits, predicates and choices: "Integer Arithmetic Instructions", "Comparison and
// Selection Instructions", "Logic and Shift Instructions", and the plain moves.
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensor/cuda/ptx/operations.h"

namespace rubato::ptx {
namespace {

template <typename T>
struct WiderOf;
template <>
struct WiderOf<int16_t> {
  using Type = int32_t;
};
template <>
struct WiderOf<uint16_t> {
  using Type = uint32_t;
};
template <>
struct WiderOf<int32_t> {
  using Type = int64_t;
};
template <>
struct WiderOf<uint32_t> {
  using Type = uint64_t;
};
template <>
struct WiderOf<int64_t> {
  using Type = __int128;
};
template <>
struct WiderOf<uint64_t> {
  using Type = unsigned __int128;
};

// Sums and the like wrap around, so they are computed without a sign. Short ones are computed as
// int, which is wide enough for them.
template <typename T>
void AddArithmetic(const std::string& type, Operations* table) {
  using U = std::make_unsigned_t<T>;
  using Wider = typename WiderOf<T>::Type;
  Operations& t = *table;
  t["add" + type] = ForEachLane([](U a, U b) { return static_cast<U>(a + b); });
  t["sub" + type] = ForEachLane([](U a, U b) { return static_cast<U>(a - b); });
  t["mul.lo" + type] = ForEachLane(
      [](T a, T b) { return static_cast<U>(static_cast<Wider>(a) * static_cast<Wider>(b)); });
  t["mul.hi" + type] = ForEachLane([](T a, T b) {
    return static_cast<U>(static_cast<Wider>(a) * static_cast<Wider>(b) >> 8 * sizeof(T));
  });
  t["mad.lo" + type] = ForEachLane([](T a, T b, U c) {
    return static_cast<U>(static_cast<U>(static_cast<Wider>(a) * static_cast<Wider>(b)) + c);
  });
  t["min" + type] = ForEachLane([](T a, T b) { return a < b ? a : b; });
  t["max" + type] = ForEachLane([](T a, T b) { return a < b ? b : a; });
  t["neg" + type] = ForEachLane([](U a) { return static_cast<U>(0 - a); });
  // "Division by zero yields an unspecified, machine-specific value": all ones here. Rounded
  // towards zero; the least number by -1 is itself.
  t["div" + type] = ForEachLane([](T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::numeric_limits<T>::is_signed && b == static_cast<T>(-1))
      return static_cast<T>(U(0) - static_cast<U>(a));
    return static_cast<T>(a / b);
  });
  t["rem" + type] = ForEachLane([](T a, T b) {
    if (b == 0) return a;
    if (std::numeric_limits<T>::is_signed && b == static_cast<T>(-1)) return T{0};
    return static_cast<T>(a % b);
  });
}

template <typename T>
void AddWideProducts(const std::string& type, Operations* table) {
  using Wider = typename WiderOf<T>::Type;
  Operations& t = *table;
  t["mul.wide" + type] =
      ForEachLane([](T a, T b) { return static_cast<Wider>(a) * static_cast<Wider>(b); });
  t["mad.wide" + type] = ForEachLane([](T a, T b, Wider c) {
    using U = std::make_unsigned_t<Wider>;
    return static_cast<Wider>(static_cast<U>(static_cast<Wider>(a) * static_cast<Wider>(b)) +
                              static_cast<U>(c));
  });
}

template <typename T>
void AddComparisons(const std::string& type, Operations* table) {
  Operations& t = *table;
  t["setp.eq" + type] = ForEachLane([](T a, T b) { return a == b; });
  t["setp.ne" + type] = ForEachLane([](T a, T b) { return a != b; });
  t["setp.lt" + type] = ForEachLane([](T a, T b) { return a < b; });
  t["setp.le" + type] = ForEachLane([](T a, T b) { return a <= b; });
  t["setp.gt" + type] = ForEachLane([](T a, T b) { return a > b; });
  t["setp.ge" + type] = ForEachLane([](T a, T b) { return a >= b; });
}

// Of a width, whatever the type's kind: ".b32", ".s32", ".f32".
template <typename T>
void AddMoves(const std::string& type, Operations* table) {
  Operations& t = *table;
  t["mov" + type] = ForEachLane([](T a) { return a; });
  t["selp" + type] = ForEachLane([](T a, T b, bool first) { return first ? a : b; });
}

template <typename T>
void AddBits(const std::string& bits, Operations* table) {
  Operations& t = *table;
  const std::string b = ".b" + bits;
  t["and" + b] = ForEachLane([](T a, T c) { return static_cast<T>(a & c); });
  t["or" + b] = ForEachLane([](T a, T c) { return static_cast<T>(a | c); });
  t["xor" + b] = ForEachLane([](T a, T c) { return static_cast<T>(a ^ c); });
  t["not" + b] = ForEachLane([](T a) { return static_cast<T>(~a); });
  // shl, shr: distances beyond the width are taken for the width.
  constexpr uint32_t kBits = 8 * sizeof(T);
  t["shl" + b] = ForEachLane([](T a, uint32_t n) {
    return static_cast<T>(n < kBits ? static_cast<uint64_t>(a) << n : 0);
  });
  const auto right = ForEachLane([](T a, uint32_t n) {
    return static_cast<T>(n < kBits ? static_cast<uint64_t>(a) >> n : 0);
  });
  t["shr" + b] = right;
  t["shr.u" + bits] = right;
  using S = std::make_signed_t<T>;
  t["shr.s" + bits] =
      ForEachLane([](S a, uint32_t n) { return static_cast<S>(a >> (n < kBits ? n : kBits - 1)); });
  for (const char* kind : {".b", ".u", ".s"}) AddMoves<T>(kind + bits, table);
  t["setp.eq" + b] = ForEachLane([](T a, T c) { return a == c; });
  t["setp.ne" + b] = ForEachLane([](T a, T c) { return a != c; });
}

// bfe: `length` bits from `position` on, above them the last of these if there is a sign. Both are
// counts of up to 255.
template <typename T>
T Extract(T value, uint32_t position, uint32_t length) {
  constexpr int kBits = 8 * sizeof(T);
  const int from = position & 255, count = length & 255;
  const bool has_sign = std::numeric_limits<T>::is_signed && count > 0;
  const int last = from + count - 1 < kBits ? from + count - 1 : kBits - 1;
  uint64_t bits = 0;
  for (int i = 0; i < kBits; ++i) {
    const int at = i < count && from + i < kBits ? from + i : has_sign ? last : -1;
    if (at >= 0) bits |= static_cast<uint64_t>(value >> at & 1) << i;
  }
  return static_cast<T>(bits);
}

template <typename T>
void AddExtraction(const std::string& type, Operations* table) {
  (*table)["bfe" + type] =
      ForEachLane([](T a, uint32_t b, uint32_t c) { return Extract(a, b, c); });
}

// prmt: four bytes of the eight of a and, above them, b, each named by four bits of c; with the
// fourth bit that byte's sign in all its places.
uint32_t Permute(uint32_t a, uint32_t b, uint32_t c) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t name = c >> 4 * i & 15;
    const uint32_t byte = bytes >> 8 * (name & 7) & 255;
    result |= (name < 8 ? byte : byte < 128 ? 0u : 255u) << 8 * i;
  }
  return result;
}

}  // namespace

void AddIntegerOperations(Operations* table) {
  Operations& t = *table;
  AddArithmetic<int16_t>(".s16", table);
  AddArithmetic<uint16_t>(".u16", table);
  AddArithmetic<int32_t>(".s32", table);
  AddArithmetic<uint32_t>(".u32", table);
  AddArithmetic<int64_t>(".s64", table);
  AddArithmetic<uint64_t>(".u64", table);
  AddWideProducts<int16_t>(".s16", table);
  AddWideProducts<uint16_t>(".u16", table);
  AddWideProducts<int32_t>(".s32", table);
  AddWideProducts<uint32_t>(".u32", table);
  AddComparisons<int16_t>(".s16", table);
  AddComparisons<uint16_t>(".u16", table);
  AddComparisons<int32_t>(".s32", table);
  AddComparisons<uint32_t>(".u32", table);
  AddComparisons<int64_t>(".s64", table);
  AddComparisons<uint64_t>(".u64", table);
  AddExtraction<int32_t>(".s32", table);
  AddExtraction<uint32_t>(".u32", table);
  AddExtraction<int64_t>(".s64", table);
  AddExtraction<uint64_t>(".u64", table);
  t["prmt.b32"] = ForEachLane([](uint32_t a, uint32_t b, uint32_t c) { return Permute(a, b, c); });
  AddBits<uint16_t>("16", table);
  AddBits<uint32_t>("32", table);
  AddBits<uint64_t>("64", table);
  AddMoves<uint32_t>(".f32", table);
  AddMoves<uint64_t>(".f64", table);
  // cvta: of addresses in the GPU's memory the generic ones are the same.
  t["cvta.to.global.u64"] = t["cvta.global.u64"] = t["mov.u64"];
  t["and.pred"] = ForEachLane([](bool a, bool b) { return a && b; });
  t["or.pred"] = ForEachLane([](bool a, bool b) { return a || b; });
  t["xor.pred"] = ForEachLane([](bool a, bool b) { return a != b; });
  t["not.pred"] = ForEachLane([](bool a) { return !a; });
  t["mov.pred"] = ForEachLane([](bool a) { return a; });
}

const Operation* FindOperation(const std::string& opcode) {
  static const auto* const table = [] {
    auto* const made = new Operations;
    AddIntegerOperations(made);
    AddFloatOperations(made);
    AddConversions(made);
    return made;
  }();
  const auto found = table->find(opcode);
  return found == table->end() ? nullptr : &found->second;
}

}  // namespace rubato::ptx
