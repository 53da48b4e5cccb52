// The instructions that only compute, by their opcodes. Where a section or an instruction is named,
// it is one of NVIDIA's "Parallel Thread Execution ISA", version 9.0.
#ifndef RUBATO_TENSOR_CUDA_PTX_OPERATIONS_H_
#define RUBATO_TENSOR_CUDA_PTX_OPERATIONS_H_

#include <string>
#include <unordered_map>

#include "tensor/cuda/ptx/lanes.h"

namespace rubato::ptx {

// "add.s32" and what it does.
using Operations = std::unordered_map<std::string, Operation>;

// Behind the opcode of a conversion whose source is a register of 64 bits, wider than its type.
constexpr char kOf64Bits[] = " of 64 bits";

// All there are; null for one that is not known.
const Operation* FindOperation(const std::string& opcode);

// The parts of the table, each in a file of its own.
void AddIntegerOperations(Operations* table);
void AddFloatOperations(Operations* table);
void AddConversions(Operations* table);

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_OPERATIONS_H_
