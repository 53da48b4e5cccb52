#include "tensor/cuda/ptx/decode.h"

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace rubato::ptx {
namespace {

constexpr const char* kSpecials[] = {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x", "%laneid"};

struct Place {
  int32_t at;
  int width;
};

class Decoder {
 public:
  Decoder(const KernelText& text, const std::vector<std::string>& shared)
      : text_(text), shared_(shared) {}

  absl::StatusOr<Kernel> Decode();

 private:
  absl::Status Error(const InstructionText& from, absl::string_view what) const;

  absl::Status DecodeOne(const InstructionText& from);
  absl::Status DecodeCompute(const InstructionText& from, Instruction* to);
  absl::Status DecodeBranch(const InstructionText& from, Instruction* to);
  absl::Status DecodeShuffle(const InstructionText& from, Instruction* to);
  absl::Status DecodeAccess(const InstructionText& from, Instruction* to);
  // mov.b64 %rd1, {%r1, %r2} and back.
  absl::Status DecodePacking(const InstructionText& from, const Instruction& guarded);
  absl::Status DecodeAddress(const InstructionText& from, absl::string_view operand,
                             Instruction* to);

  // Of a register that is written, or of a value that is read: a register, a constant or a symbol.
  absl::StatusOr<Place> Register(const InstructionText& from, const std::string& name) const;
  absl::StatusOr<Place> Value(const InstructionText& from, const std::string& name, int width);
  bool IsNumber(absl::string_view name, uint64_t* value) const;

  int32_t Take(int width);
  int32_t ConstantAt(uint64_t value, int width);
  void Append(const Instruction& instruction, const InstructionText& from);

  const KernelText& text_;
  const std::vector<std::string>& shared_;
  Kernel kernel_;
  std::map<std::string, Place> places_;
  std::map<std::pair<uint64_t, int>, int32_t> constants_;
  // Instructions of the text may become several.
  std::vector<int32_t> begins_;
};

absl::Status Decoder::Error(const InstructionText& from, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("kernel ", text_.name, ", PTX line ", from.line,
                                                 ": `", from.opcode, " ",
                                                 absl::StrJoin(from.operands, ", "), "`: ", what));
}

int32_t Decoder::Take(int width) {
  const int64_t place = kernel_.file_bytes;
  kernel_.file_bytes += width * kLanes;
  return static_cast<int32_t>(place);
}

int32_t Decoder::ConstantAt(uint64_t value, int width) {
  if (width < 8) value &= (uint64_t{1} << (8 * width)) - 1;
  const auto [found, is_new] = constants_.try_emplace({value, width}, 0);
  if (is_new) {
    found->second = Take(width);
    kernel_.constants.push_back({found->second, width, value});
  }
  return found->second;
}

// 5, -5, 0x1F, 0x1FU, 0f3F800000 (the bits of a float32), 0d3FF0000000000000, a parameter or shared
// memory.
bool Decoder::IsNumber(absl::string_view name, uint64_t* value) const {
  int64_t number;
  if (absl::StartsWith(name, "0f") || absl::StartsWith(name, "0F") ||
      absl::StartsWith(name, "0d") || absl::StartsWith(name, "0D")) {
    return absl::SimpleHexAtoi(name.substr(2), value);
  }
  if (absl::StartsWith(name, "0x")) {
    return absl::SimpleHexAtoi(absl::StripSuffix(name.substr(2), "U"), value);
  }
  if (absl::SimpleAtoi(name, &number)) {
    *value = static_cast<uint64_t>(number);
    return true;
  }
  if (absl::SimpleAtoi(name, value)) return true;
  for (const std::string& symbol : shared_) {
    if (name == symbol) return *value = kSharedBegin, true;
  }
  for (const ParameterText& parameter : text_.parameters) {
    if (name == parameter.name) return *value = parameter.offset, true;
  }
  return false;
}

absl::StatusOr<Place> Decoder::Register(const InstructionText& from,
                                        const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return Error(from, absl::StrCat("`", name, "` is not known"));
  return found->second;
}

absl::StatusOr<Place> Decoder::Value(const InstructionText& from, const std::string& name,
                                     int width) {
  uint64_t number;
  if (IsNumber(name, &number)) return Place{ConstantAt(number, width), width};
  return Register(from, name);
}

void Decoder::Append(const Instruction& instruction, const InstructionText& from) {
  kernel_.instructions.push_back(instruction);
  kernel_.texts.push_back(absl::StrCat(from.opcode, " ", absl::StrJoin(from.operands, ", ")));
}

absl::StatusOr<Kernel> Decoder::Decode() {
  kernel_.name = text_.name;
  kernel_.most_threads = text_.most_threads;
  kernel_.parameters = text_.parameters;
  kernel_.parameter_bytes = text_.parameter_bytes;
  for (const auto& [name, width] : text_.registers) places_[name] = {Take(width), width};
  for (size_t i = 0; i < kernel_.specials.size(); ++i) {
    kernel_.specials[i] = Take(4);
    places_[kSpecials[i]] = {kernel_.specials[i], 4};
  }
  for (const InstructionText& instruction : text_.instructions) {
    begins_.push_back(static_cast<int32_t>(kernel_.instructions.size()));
    RUBATO_RETURN_IF_ERROR(DecodeOne(instruction));
  }
  begins_.push_back(static_cast<int32_t>(kernel_.instructions.size()));
  for (Instruction& instruction : kernel_.instructions) {
    if (instruction.kind == Kind::kBranch) instruction.target = begins_[instruction.target];
  }
  // What runs over the end has left.
  Instruction end;
  end.kind = Kind::kExit;
  kernel_.instructions.push_back(end);
  kernel_.texts.push_back("the end");
  return std::move(kernel_);
}

absl::Status Decoder::DecodeOne(const InstructionText& from) {
  Instruction to;
  to.line = from.line;
  if (!from.guard.empty()) {
    to.if_not = from.guard[0] == '!';
    RUBATO_ASSIGN_OR_RETURN(const Place guard,
                            Register(from, from.guard.substr(to.if_not ? 1 : 0)));
    to.guard = guard.at;
  }
  const std::string& opcode = from.opcode;
  if (opcode == "ret" || opcode == "exit") {
    to.kind = Kind::kExit;
  } else if (opcode == "bar.sync" || opcode == "barrier.sync") {
    // Of all threads, by the one barrier that __syncthreads has.
    if (from.operands != std::vector<std::string>{"0"}) return Error(from, "is not known");
    to.kind = Kind::kBarrier;
  } else if (opcode == "bra" || opcode == "bra.uni") {
    RUBATO_RETURN_IF_ERROR(DecodeBranch(from, &to));
  } else if (absl::StartsWith(opcode, "shfl.sync.")) {
    RUBATO_RETURN_IF_ERROR(DecodeShuffle(from, &to));
  } else if (absl::StartsWith(opcode, "ld.") || absl::StartsWith(opcode, "st.")) {
    RUBATO_RETURN_IF_ERROR(DecodeAccess(from, &to));
  } else if (absl::StartsWith(opcode, "mov.b") && from.operands.size() == 2 &&
             (from.operands[0][0] == '{' || from.operands[1][0] == '{')) {
    return DecodePacking(from, to);
  } else {
    RUBATO_RETURN_IF_ERROR(DecodeCompute(from, &to));
  }
  if (to.guard != kNone && (to.kind == Kind::kBarrier || to.kind == Kind::kShuffle)) {
    return Error(from, "under a guard it is not known");
  }
  Append(to, from);
  return absl::OkStatus();
}

absl::Status Decoder::DecodeBranch(const InstructionText& from, Instruction* to) {
  to->kind = Kind::kBranch;
  const auto label = text_.labels.find(from.operands.empty() ? "" : from.operands[0]);
  if (label == text_.labels.end()) return Error(from, "goes nowhere");
  to->target = label->second;
  return absl::OkStatus();
}

absl::Status Decoder::DecodeCompute(const InstructionText& from, Instruction* to) {
  const Operation* operation = FindOperation(from.opcode);
  if (operation == nullptr) return Error(from, "the instruction is not known");
  // A conversion's source may be wider than its type (PTX ISA, "Operand Size Exceeding
  // Instruction-Type Size").
  if (absl::StartsWith(from.opcode, "cvt.") && from.operands.size() == 2 &&
      from.operands[1][0] == '%') {
    RUBATO_ASSIGN_OR_RETURN(const Place source, Register(from, from.operands[1]));
    const Operation* const wider = FindOperation(absl::StrCat(from.opcode, kOf64Bits));
    if (source.width == sizeof(uint64_t) && wider != nullptr) operation = wider;
  }
  if (operation->widths.size() != from.operands.size()) return Error(from, "the operands");
  to->run = operation->run;
  for (size_t i = 0; i < from.operands.size(); ++i) {
    const int width = operation->widths[i];
    RUBATO_ASSIGN_OR_RETURN(const Place place, i == 0 ? Register(from, from.operands[0])
                                                      : Value(from, from.operands[i], width));
    if (place.width != width) {
      return Error(from, absl::StrCat("operand ", i, " has ", place.width, " bytes"));
    }
    to->places[i] = place.at;
  }
  return absl::OkStatus();
}

// shfl.sync.mode.b32 d|p, a, b, c, membermask.
absl::Status Decoder::DecodeShuffle(const InstructionText& from, Instruction* to) {
  static const auto* const modes =
      new std::map<std::string, ShuffleMode>{{"shfl.sync.up.b32", ShuffleMode::kUp},
                                             {"shfl.sync.down.b32", ShuffleMode::kDown},
                                             {"shfl.sync.bfly.b32", ShuffleMode::kButterfly},
                                             {"shfl.sync.idx.b32", ShuffleMode::kIndex}};
  const auto mode = modes->find(from.opcode);
  if (mode == modes->end() || from.operands.size() != 5) return Error(from, "is not known");
  to->kind = Kind::kShuffle;
  to->mode = mode->second;
  const std::vector<std::string> results = absl::StrSplit(from.operands[0], '|');
  RUBATO_ASSIGN_OR_RETURN(const Place result, Register(from, results[0]));
  to->places[0] = result.at;
  to->places[1] = kNone;
  if (results.size() > 1) {
    RUBATO_ASSIGN_OR_RETURN(const Place predicate, Register(from, results[1]));
    to->places[1] = predicate.at;
    if (predicate.width != 1) return Error(from, "its predicate is none");
  }
  for (int i = 1; i < 5; ++i) {
    RUBATO_ASSIGN_OR_RETURN(const Place value, Value(from, from.operands[i], 4));
    to->places[i + 1] = value.at;
    if (value.width != 4 || result.width != 4) return Error(from, "operands have 4 bytes each");
  }
  return absl::OkStatus();
}

// ld.global.v2.f32 {a, b}, [c+8]. A register may be wider than what is loaded or stored (PTX ISA,
// "Operand Size Exceeding Instruction-Type Size").
absl::Status Decoder::DecodeAccess(const InstructionText& from, Instruction* to) {
  const std::vector<std::string> parts = absl::StrSplit(from.opcode, '.');
  const bool loads = parts[0] == "ld";
  to->kind = loads ? Kind::kLoad : Kind::kStore;
  static const auto* const spaces = new std::map<std::string, Space>{
      {"global", Space::kGlobal}, {"shared", Space::kShared}, {"param", Space::kParameter}};
  const auto space = spaces->find(parts[1]);
  if (space == spaces->end() || from.operands.size() != 2) return Error(from, "is not known");
  to->space = space->second;
  if (to->space == Space::kParameter && !loads) return Error(from, "is not known");
  size_t next = 2;
  if (loads && parts[next] == "nc") ++next;  // of what nobody writes meanwhile: by another cache
  to->count = parts[next] == "v2" ? 2 : parts[next] == "v4" ? 4 : 1;
  if (to->count > 1) ++next;
  int bits = 0;
  if (parts.size() != next + 1 || !absl::SimpleAtoi(parts[next].substr(1), &bits) ||
      !absl::StrContains("busf", parts[next][0])) {
    return Error(from, "is not known");
  }
  to->bytes = static_cast<uint8_t>(bits / 8);
  to->has_sign = parts[next][0] == 's';
  absl::string_view list = from.operands[loads ? 0 : 1];
  const bool is_list = absl::ConsumePrefix(&list, "{") && absl::ConsumeSuffix(&list, "}");
  const std::vector<std::string> values = absl::StrSplit(list, ',');
  if (values.size() != to->count || is_list != (to->count > 1)) return Error(from, "its values");
  for (size_t i = 0; i < values.size(); ++i) {
    RUBATO_ASSIGN_OR_RETURN(const Place place,
                            loads ? Register(from, values[i]) : Value(from, values[i], to->bytes));
    if (place.width < to->bytes || (i > 0 && place.width != to->width)) {
      return Error(from, "its registers are too short, or differ");
    }
    to->width = static_cast<uint8_t>(place.width);
    to->places[i] = place.at;
  }
  return DecodeAddress(from, from.operands[loads ? 1 : 0], to);
}

// [%rd1], [%rd1+8], [%rd1+-8], [name], [name+8]
absl::Status Decoder::DecodeAddress(const InstructionText& from, absl::string_view operand,
                                    Instruction* to) {
  if (!absl::ConsumePrefix(&operand, "[") || !absl::ConsumeSuffix(&operand, "]")) {
    return Error(from, "its address");
  }
  const std::vector<std::string> parts = absl::StrSplit(operand, absl::MaxSplits('+', 1));
  if (parts.size() > 1 && !absl::SimpleAtoi(parts[1], &to->offset))
    return Error(from, "its offset");
  RUBATO_ASSIGN_OR_RETURN(const Place base, Value(from, parts[0], 8));
  to->base = base.at;
  to->base_width = static_cast<uint8_t>(base.width);
  if (base.width < 4) return Error(from, "its address");
  return absl::OkStatus();
}

// The first of a list has the lowest bits (PTX ISA, mov).
absl::Status Decoder::DecodePacking(const InstructionText& from, const Instruction& guarded) {
  const bool packs = from.operands[1][0] == '{';
  const absl::string_view braces = from.operands[packs ? 1 : 0];
  const std::vector<std::string> parts = absl::StrSplit(braces.substr(1, braces.size() - 2), ',');
  RUBATO_ASSIGN_OR_RETURN(const Place whole, Register(from, from.operands[packs ? 0 : 1]));
  if (parts.size() != 2 || (whole.width != 4 && whole.width != 8)) {
    return Error(from, "is not known");
  }
  const int half = whole.width / 2;
  Place halves[2];
  for (int i = 0; i < 2; ++i) {
    RUBATO_ASSIGN_OR_RETURN(halves[i],
                            packs ? Value(from, parts[i], half) : Register(from, parts[i]));
    if (halves[i].width != half) return Error(from, "its parts are no halves");
  }
  static const Operation pack8 = ForEachLane(
      [](uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; });
  static const Operation pack4 = ForEachLane(
      [](uint16_t low, uint16_t high) { return static_cast<uint32_t>(high) << 16 | low; });
  static const Operation low8 = ForEachLane([](uint64_t a) { return static_cast<uint32_t>(a); });
  static const Operation high8 =
      ForEachLane([](uint64_t a) { return static_cast<uint32_t>(a >> 32); });
  static const Operation low4 = ForEachLane([](uint32_t a) { return static_cast<uint16_t>(a); });
  static const Operation high4 =
      ForEachLane([](uint32_t a) { return static_cast<uint16_t>(a >> 16); });
  Instruction to = guarded;
  if (packs) {
    to.run = half == 4 ? pack8.run : pack4.run;
    to.places = {whole.at, halves[0].at, halves[1].at};
    Append(to, from);
    return absl::OkStatus();
  }
  to.run = half == 4 ? low8.run : low4.run;
  to.places = {halves[0].at, whole.at};
  Append(to, from);
  to.run = half == 4 ? high8.run : high4.run;
  to.places = {halves[1].at, whole.at};
  Append(to, from);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Kernel> Decode(const KernelText& text, const std::vector<std::string>& shared) {
  return Decoder(text, shared).Decode();
}

}  // namespace rubato::ptx
