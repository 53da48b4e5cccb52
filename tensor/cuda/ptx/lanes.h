// Registers of a warp, and how an operation goes over its 32 lanes.
//
// The registers of a warp are one piece of memory, the file. A register is a place in it where the
// lanes' values lie side by side, of 1, 2, 4 or 8 bytes each; constants are registers that nothing
// writes. An operation reads whole registers, computes for all lanes, and writes those of a mask.
#ifndef RUBATO_TENSOR_CUDA_PTX_LANES_H_
#define RUBATO_TENSOR_CUDA_PTX_LANES_H_

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace rubato::ptx {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = ~0u;

template <typename T>
T Get(const char* file, int32_t place, int lane) {
  T value;
  std::memcpy(&value, file + place + lane * sizeof(T), sizeof value);
  return value;
}
template <typename T>
void Set(char* file, int32_t place, int lane, T value) {
  std::memcpy(file + place + lane * sizeof(T), &value, sizeof value);
}

// What an instruction without memory does: places[0] = f(places[1], ...).
struct Operation {
  void (*run)(char* file, const int32_t* places, uint32_t mask) = nullptr;
  std::vector<int> widths;  // of the operands, in bytes
};

namespace lanes {

template <typename T>
struct Values {
  T of[kLanes];
};

template <typename T>
Values<T> Load(const char* file, int32_t place) {
  Values<T> values;
  std::memcpy(values.of, file + place, sizeof values.of);
  return values;
}

// Of a predicate's byte the lowest bit counts: nothing may have written it yet.
template <>
inline Values<bool> Load(const char* file, int32_t place) {
  Values<bool> values;
  for (int lane = 0; lane < kLanes; ++lane) values.of[lane] = (file[place + lane] & 1) != 0;
  return values;
}

template <typename F, typename R, typename... A, size_t... I>
void Run(const F& f, char* file, const int32_t* places, uint32_t mask, std::index_sequence<I...>) {
  const auto body = [&](const Values<A>&... from) {
    Values<R> to;
    for (int lane = 0; lane < kLanes; ++lane) to.of[lane] = f(from.of[lane]...);
    if (mask == kAllLanes) {
      std::memcpy(file + places[0], to.of, sizeof to.of);
      return;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      if (mask >> lane & 1) Set(file, places[0], lane, to.of[lane]);
    }
  };
  body(Load<A>(file, places[I + 1])...);
}

template <typename F, typename R, typename... A>
Operation Make(F f, R (F::*)(A...) const) {
  static const F kept = f;  // a lambda without captures: one for each type
  return {[](char* file, const int32_t* places, uint32_t mask) {
            Run<F, R, A...>(kept, file, places, mask, std::index_sequence_for<A...>());
          },
          {static_cast<int>(sizeof(R)), static_cast<int>(sizeof(A))...}};
}

}  // namespace lanes

// f, a lambda without captures of one lane's operands, for all lanes. Lanes outside of the mask are
// computed, too, on whatever their registers hold.
template <typename F>
Operation ForEachLane(F f) {
  return lanes::Make(f, &F::operator());
}

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_LANES_H_
