// Values that lie side by side and are loaded and stored at once.
#ifndef RUBATO_TENSOR_CUDA_PACK_H_
#define RUBATO_TENSOR_CUDA_PACK_H_

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "common/base/host_device.h"

namespace rubato {

constexpr int kPackBytes = 16;  // the most that a GPU's thread loads or stores at once

template <typename T>
constexpr int PackWidth() {
  return kPackBytes / static_cast<int>(sizeof(T));
}

template <typename T, int kWidth>
struct Pack {
  T values[kWidth];
};

// Whether packs may lie there: a multiple of 16 bytes, or null.
RUBATO_HOST_DEVICE bool MayHavePacks(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kPackBytes == 0;
}

namespace pack_internal {

#ifdef __CUDA_ARCH__
constexpr bool kAtOnce = true;
#else
constexpr bool kAtOnce = false;  // so that tests see each value that is touched
#endif

struct alignas(kPackBytes) Bits {
  uint32_t words[4];
};

}  // namespace pack_internal

// The kWidth values from `from` on: one or, aligned to 16 bytes, a whole pack.
template <int kWidth, typename T>
RUBATO_HOST_DEVICE Pack<T, kWidth> LoadPack(const T* from) {
  static_assert(kWidth == 1 || kWidth * sizeof(T) == kPackBytes, "");
  Pack<T, kWidth> pack;
  if constexpr (pack_internal::kAtOnce && kWidth > 1) {
    const pack_internal::Bits bits = *reinterpret_cast<const pack_internal::Bits*>(from);
    memcpy(&pack, &bits, sizeof pack);
  } else {
    for (int k = 0; k < kWidth; ++k) pack.values[k] = from[k];
  }
  return pack;
}

template <int kWidth, typename T>
RUBATO_HOST_DEVICE void StorePack(const Pack<T, kWidth>& pack, T* to) {
  static_assert(kWidth == 1 || kWidth * sizeof(T) == kPackBytes, "");
  if constexpr (pack_internal::kAtOnce && kWidth > 1) {
    pack_internal::Bits bits;
    memcpy(&bits, &pack, sizeof bits);
    *reinterpret_cast<pack_internal::Bits*>(to) = bits;
  } else {
    for (int k = 0; k < kWidth; ++k) to[k] = pack.values[k];
  }
}

// Of a row, the kWidth values from `from` on, of which there are `left`; beyond them, `rest`. Packs
// may lie there, and none is cut, if kWhole.
template <int kWidth, bool kWhole, typename T>
RUBATO_HOST_DEVICE Pack<T, kWidth> LoadOfRow(const T* from, int64_t left, T rest) {
  if constexpr (kWhole) {
    return LoadPack<kWidth>(from);
  } else {
    Pack<T, kWidth> pack;
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) pack.values[k] = k < left ? from[k] : rest;
    return pack;
  }
}

template <int kWidth, bool kWhole, typename T>
RUBATO_HOST_DEVICE void StoreOfRow(const Pack<T, kWidth>& pack, T* to, int64_t left) {
  if constexpr (kWhole) {
    StorePack<kWidth>(pack, to);
  } else {
    RUBATO_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      if (k < left) to[k] = pack.values[k];
    }
  }
}

// kWidth values from `from` on, one or as many as whole packs have: by packs, if they may lie
// there.
template <int kWidth, typename T>
RUBATO_HOST_DEVICE void LoadValues(const T* from, T* to) {
  constexpr int kPack = kPackBytes / static_cast<int>(sizeof(T));
  if (kWidth % kPack == 0 && MayHavePacks(from)) {
    RUBATO_UNROLL
    for (int first = 0; first + kPack <= kWidth; first += kPack) {
      const Pack<T, kPack> pack = LoadPack<kPack>(from + first);
      RUBATO_UNROLL
      for (int k = 0; k < kPack; ++k) to[first + k] = pack.values[k];
    }
    return;
  }
  RUBATO_UNROLL
  for (int k = 0; k < kWidth; ++k) to[k] = from[k];
}

// use(width) with the values of a pack or, where no packs may lie, 1.
template <typename T, typename Use>
void ByWidth(int64_t columns, bool has_packs, Use use) {
  constexpr int kWidth = PackWidth<T>();
  if (has_packs && columns % kWidth == 0) {
    use(std::integral_constant<int, kWidth>());
  } else {
    use(std::integral_constant<int, 1>());
  }
}

// use(true_type()) if packs may lie in all rows from these addresses on, else use(false_type()).
template <typename T, typename Use>
void ByWholeness(int64_t columns, std::initializer_list<const void*> addresses, Use use) {
  bool is_whole = columns % PackWidth<T>() == 0;
  for (const void* const address : addresses) is_whole = is_whole && MayHavePacks(address);
  is_whole ? use(std::true_type()) : use(std::false_type());
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PACK_H_
