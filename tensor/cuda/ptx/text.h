// PTX as text, taken apart: kernels, their parameters, registers, labels and instructions. What an
// instruction means is decode.h's.
#ifndef RUBATO_TENSOR_CUDA_PTX_TEXT_H_
#define RUBATO_TENSOR_CUDA_PTX_TEXT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato::ptx {

// "@!%p1 setp.lt.s32 %p2, %r1, 5;": guard "!%p1", opcode "setp.lt.s32", three operands.
struct InstructionText {
  int line;
  std::string guard, opcode;
  std::vector<std::string> operands;  // "{%f1,%f2}" and "[%rd1+8]" are one each
};

// A register's width: 1 (a predicate, which is a byte here), 2, 4 or 8 bytes.
using Registers = std::map<std::string, int>;

struct ParameterText {
  std::string name;
  int64_t offset, size, alignment;
};

struct KernelText {
  std::string name;
  int line;
  int64_t most_threads = 0;  // of a block; 0: it does not say
  std::vector<ParameterText> parameters;
  int64_t parameter_bytes = 0;
  Registers registers;  // "%r1"; one of an inner scope has its number behind: "%temp#2"
  std::map<std::string, int> labels;  // what follows them, as a place among the instructions
  std::vector<InstructionText> instructions;
};

struct ModuleText {
  std::vector<std::string> shared;  // names of the memory that a launch gives to each block
  std::vector<KernelText> kernels;
};

// InvalidArgument, with the line, for what is not known.
absl::StatusOr<ModuleText> ReadModule(absl::string_view text);

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_TEXT_H_
