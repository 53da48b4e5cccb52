// A kernel's text made ready to be run: opcodes looked up, names of registers turned into places.
#ifndef RUBATO_TENSOR_CUDA_PTX_DECODE_H_
#define RUBATO_TENSOR_CUDA_PTX_DECODE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/cuda/ptx/operations.h"
#include "tensor/cuda/ptx/text.h"

namespace rubato::ptx {

enum class Kind : uint8_t { kCompute, kBranch, kExit, kBarrier, kShuffle, kLoad, kStore };
enum class Space : uint8_t { kGlobal, kShared, kParameter };
enum class ShuffleMode : uint8_t { kUp, kDown, kButterfly, kIndex };

// Where a block's shared memory lies in its own space: not at 0, so that a null is no address of
// it.
constexpr uint64_t kSharedBegin = 1024;

constexpr int32_t kNone = -1;

struct Instruction {
  Kind kind = Kind::kCompute;
  bool if_not = false;    // its guard, turned around
  int32_t guard = kNone;  // runs in lanes where this predicate holds
  int32_t line = 0;
  void (*run)(char* file, const int32_t* places, uint32_t mask) = nullptr;

  // Places of registers and constants. kCompute: to, and from; kLoad: up to four values; kStore:
  // likewise; kShuffle: to, its predicate or kNone, from, lanes, clamp, members.
  std::array<int32_t, 6> places = {};
  int32_t target = 0;  // of a branch

  // Of kLoad and kStore.
  Space space = Space::kGlobal;
  bool has_sign = false;   // whether a short value is made longer by its sign
  uint8_t count = 0;       // of values
  uint8_t bytes = 0;       // of each, in memory
  uint8_t width = 0;       // of each, in its register
  uint8_t base_width = 0;  // of the address's register
  int32_t base = kNone;    // which may be a constant
  int64_t offset = 0;

  ShuffleMode mode = ShuffleMode::kUp;
};

// A constant of a register file, the same in each lane.
struct Constant {
  int32_t place, width;
  uint64_t value;
};

struct Kernel {
  std::string name;
  int64_t most_threads = 0;
  std::vector<ParameterText> parameters;
  int64_t parameter_bytes = 0;
  std::vector<Instruction> instructions;
  std::vector<std::string> texts;  // of each, for messages

  int64_t file_bytes = 0;
  std::vector<Constant> constants;
  // %tid.x, %ntid.x, %ctaid.x, %nctaid.x, %laneid: of 4 bytes each.
  std::array<int32_t, 5> specials = {};
};

// InvalidArgument, with the line, for an instruction that is not known.
absl::StatusOr<Kernel> Decode(const KernelText& text, const std::vector<std::string>& shared);

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_DECODE_H_
