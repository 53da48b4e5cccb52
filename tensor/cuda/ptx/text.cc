#include "tensor/cuda/ptx/text.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace rubato::ptx {
namespace {

// Bytes of a value of a type, by its name: ".f32". 0 if it is none.
int BytesOfType(absl::string_view type) {
  if (type == ".pred") return 1;
  for (const auto& [bits, bytes] : {std::make_pair("8", 1), {"16", 2}, {"32", 4}, {"64", 8}}) {
    if (absl::EndsWith(type, bits) && type.size() == 2 + absl::string_view(bits).size()) {
      return bytes;
    }
  }
  return 0;
}

class Reader {
 public:
  explicit Reader(absl::string_view text) : rest_(text) {}

  absl::StatusOr<ModuleText> Read();

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("PTX line ", line_, ": ", what));
  }

  // Past blanks and comments. False at the end.
  bool Skip();
  // Up to one of `ends`, of which it stands at one then; blanks around it are left out.
  absl::string_view Until(absl::string_view ends);
  void Advance(size_t count);
  bool Take(char c);

  absl::Status ReadKernel();
  absl::Status ReadParameters(KernelText* kernel);
  absl::Status ReadBody(KernelText* kernel);
  // A statement, without its semicolon.
  absl::Status ReadStatement(absl::string_view text, int line, KernelText* kernel);
  absl::Status ReadRegisters(absl::string_view text, KernelText* kernel);
  // Names of inner scopes made their own.
  std::string Resolve(absl::string_view operand) const;

  absl::string_view rest_;
  int line_ = 1;
  ModuleText module_;
  std::vector<std::map<std::string, std::string>> scopes_;
  int scope_count_ = 0;
};

void Reader::Advance(size_t count) {
  for (char c : rest_.substr(0, count)) line_ += c == '\n';
  rest_.remove_prefix(count);
}

bool Reader::Skip() {
  while (!rest_.empty()) {
    if (absl::ascii_isspace(rest_[0]) || rest_[0] == '\0') {
      Advance(1);
    } else if (absl::StartsWith(rest_, "//")) {
      Advance(std::min(rest_.find('\n'), rest_.size()));
    } else if (absl::StartsWith(rest_, "/*")) {
      Advance(std::min(rest_.find("*/") + 2, rest_.size()));
    } else {
      return true;
    }
  }
  return false;
}

absl::string_view Reader::Until(absl::string_view ends) {
  const size_t end = std::min(rest_.find_first_of(ends), rest_.size());
  const absl::string_view text = absl::StripAsciiWhitespace(rest_.substr(0, end));
  Advance(end);
  return text;
}

bool Reader::Take(char c) {
  if (!Skip() || rest_[0] != c) return false;
  Advance(1);
  return true;
}

absl::StatusOr<ModuleText> Reader::Read() {
  while (Skip()) {
    const absl::string_view word = Until(" \t\n;(");
    if (word == ".version" || word == ".target" || word == ".address_size") {
      Until("\n");
    } else if (word == ".visible" || word == ".weak") {
      continue;
    } else if (word == ".entry") {
      RUBATO_RETURN_IF_ERROR(ReadKernel());
    } else if (word == ".extern") {
      // .extern .shared .align 16 .b8 NAME[]
      const std::vector<absl::string_view> words =
          absl::StrSplit(Until(";"), absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
      absl::string_view name = words.empty() ? "" : words.back();
      if (words.size() < 3 || words[0] != ".shared" || !absl::ConsumeSuffix(&name, "[]")) {
        return Error("something external that is no shared memory");
      }
      module_.shared.emplace_back(name);
      Take(';');
    } else {
      return Error(absl::StrCat("`", word, "` is not known"));
    }
  }
  return std::move(module_);
}

absl::Status Reader::ReadKernel() {
  KernelText kernel;
  Skip();
  kernel.line = line_;
  kernel.name = std::string(Until("( \t\n"));
  if (Take('(')) RUBATO_RETURN_IF_ERROR(ReadParameters(&kernel));
  while (Skip() && rest_[0] != '{') {
    const absl::string_view word = Until(" \t\n"), value = Until("\n{");
    if (word == ".maxntid") {
      // Three sides, of which ours use one.
      const std::vector<absl::string_view> sides = absl::StrSplit(value, ',');
      if (!absl::SimpleAtoi(sides[0], &kernel.most_threads)) return Error("`.maxntid`");
    } else if (word != ".minnctapersm") {  // tells ptxas how many registers it may use
      return Error(absl::StrCat("`", word, "` is not known"));
    }
  }
  if (!Take('{')) return Error(absl::StrCat("kernel ", kernel.name, " has no body"));
  scopes_.emplace_back();
  RUBATO_RETURN_IF_ERROR(ReadBody(&kernel));
  module_.kernels.push_back(std::move(kernel));
  return absl::OkStatus();
}

// .param .align 8 .b8 NAME[160], or .param .u64 NAME
absl::Status Reader::ReadParameters(KernelText* kernel) {
  for (;;) {
    std::vector<absl::string_view> words =
        absl::StrSplit(Until(",)"), absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
    if (words.empty()) break;
    ParameterText parameter = {"", 0, 0, 0};
    for (size_t i = 1; i + 1 < words.size(); ++i) {
      if (words[i] == ".align") {
        if (!absl::SimpleAtoi(words[++i], &parameter.alignment)) return Error("`.align`");
      } else {
        parameter.size = BytesOfType(words[i]);
      }
    }
    const std::vector<absl::string_view> name = absl::StrSplit(words.back(), absl::ByAnyChar("[]"));
    int64_t count = 1;
    if (name.size() > 1 && !absl::SimpleAtoi(name[1], &count)) return Error("a parameter's size");
    if (words[0] != ".param" || parameter.size == 0) return Error("a parameter's form");
    parameter.name = std::string(name[0]);
    if (parameter.alignment == 0) parameter.alignment = parameter.size;
    parameter.size *= count;
    const int64_t a = parameter.alignment;
    parameter.offset = (kernel->parameter_bytes + a - 1) / a * a;
    kernel->parameter_bytes = parameter.offset + parameter.size;
    kernel->parameters.push_back(std::move(parameter));
    if (!Take(',')) break;
  }
  return Take(')') ? absl::OkStatus() : Error("parameters do not end");
}

absl::Status Reader::ReadBody(KernelText* kernel) {
  while (Skip()) {
    if (Take('{')) {
      scopes_.emplace_back();
      ++scope_count_;
    } else if (Take('}')) {
      scopes_.pop_back();
      if (scopes_.empty()) return absl::OkStatus();
    } else {
      const int line = line_;
      const absl::string_view text = Until(";:");
      if (Take(':')) {
        if (!kernel->labels.emplace(text, kernel->instructions.size()).second) {
          return Error(absl::StrCat("a second label `", text, "`"));
        }
        continue;
      }
      if (!Take(';')) break;
      RUBATO_RETURN_IF_ERROR(ReadStatement(text, line, kernel));
    }
  }
  return Error(absl::StrCat("kernel ", kernel->name, " does not end"));
}

absl::Status Reader::ReadStatement(absl::string_view text, int line, KernelText* kernel) {
  if (absl::StartsWith(text, ".reg")) return ReadRegisters(text, kernel);
  if (absl::StartsWith(text, ".pragma")) return absl::OkStatus();  // for the optimizer
  if (absl::StartsWith(text, ".")) return Error(absl::StrCat("`", text, "` is not known"));
  InstructionText instruction = {line, "", "", {}};
  const auto word = [&text] {
    const absl::string_view first = text.substr(0, text.find_first_of(" \t\n"));
    text = absl::StripAsciiWhitespace(text.substr(first.size()));
    return first;
  };
  if (absl::StartsWith(text, "@")) instruction.guard = Resolve(word().substr(1));
  instruction.opcode = std::string(word());
  // Split at commas that are in no braces.
  std::string operand;
  bool in_braces = false;
  for (char c : text) {
    if (c == '{') in_braces = true;
    if (c == '}') in_braces = false;
    if (c == ',' && !in_braces) {
      instruction.operands.push_back(Resolve(operand));
      operand.clear();
    } else if (!absl::ascii_isspace(c)) {
      operand += c;
    }
  }
  if (!operand.empty()) instruction.operands.push_back(Resolve(operand));
  kernel->instructions.push_back(std::move(instruction));
  return absl::OkStatus();
}

// .reg .b32 %r<15>, or .reg .b32 %temp
absl::Status Reader::ReadRegisters(absl::string_view text, KernelText* kernel) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t\n,"), absl::SkipEmpty());
  const int bytes = words.size() < 3 ? 0 : BytesOfType(words[1]);
  if (bytes == 0) return Error("registers of this form are not known");
  for (size_t i = 2; i < words.size(); ++i) {
    const std::vector<absl::string_view> parts = absl::StrSplit(words[i], absl::ByAnyChar("<>"));
    if (parts.size() == 1) {
      std::string name(words[i]);
      if (scopes_.size() > 1) {
        name = absl::StrCat(words[i], "#", scope_count_);
        scopes_.back()[std::string(words[i])] = name;
      }
      kernel->registers[name] = bytes;
      continue;
    }
    int count = 0;
    if (!absl::SimpleAtoi(parts[1], &count) || scopes_.size() > 1) return Error("`.reg`");
    for (int n = 0; n < count; ++n) kernel->registers[absl::StrCat(parts[0], n)] = bytes;
  }
  return absl::OkStatus();
}

std::string Reader::Resolve(absl::string_view operand) const {
  std::string resolved, name;
  const auto flush = [&] {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found == scope->end()) continue;
      name = found->second;
      break;
    }
    resolved += name;
    name.clear();
  };
  for (char c : operand) {
    if (absl::ascii_isalnum(c) || c == '_' || c == '$' || c == '%' || c == '.') {
      name += c;
    } else {
      flush();
      resolved += c;
    }
  }
  flush();
  return resolved;
}

}  // namespace

absl::StatusOr<ModuleText> ReadModule(absl::string_view text) { return Reader(text).Read(); }

}  // namespace rubato::ptx
