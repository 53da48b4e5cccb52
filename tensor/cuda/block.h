// How kernels are written so that the same source runs on a GPU and, slowly, on the CPU.
//
// A kernel is a plain struct of pointers and numbers with
//
//   template <typename Block> RUBATO_HOST_DEVICE void operator()(Block& block) const;
//
// which says what one block of threads does, as a whole. What each thread does stands in phases:
// block.ForEach(f) calls f(thread) for each, and none goes on before all have done so. Between
// phases nothing depends on the thread. On a GPU (cuda_queue.h) each thread runs the operator for
// itself; on the CPU (HostBlock) a phase is a loop over the threads. Sums over a block follow the
// same tree in both.
#ifndef RUBATO_TENSOR_CUDA_BLOCK_H_
#define RUBATO_TENSOR_CUDA_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/base/host_device.h"
#include "tensor/cuda/traffic.h"

namespace rubato {

constexpr int kWarp = 32;            // threads that sum without shared memory
constexpr int kMaxThreads = 1024;    // of a block
constexpr size_t kSharedBytes = 16;  // of memory that a block shares, usually, for each thread
constexpr int kUsualThreads = 256;
// Where work can be cut finer there are as many blocks: an H100's processors. One number for all
// GPUs, so that sums have one order.
constexpr int kProcessors = 132;

struct Plus {
  template <typename A>
  RUBATO_HOST_DEVICE A operator()(A a, A b) const {
    return a + b;
  }
};

// The greater, b if a is not a number.
struct Greater {
  template <typename A>
  RUBATO_HOST_DEVICE A operator()(A a, A b) const {
    return a > b ? a : b;
  }
};

struct Lesser {
  template <typename A>
  RUBATO_HOST_DEVICE A operator()(A a, A b) const {
    return a < b ? a : b;
  }
};

// Two sums at once.
template <typename A>
struct Pair {
  A first, second;
};
template <typename A>
RUBATO_HOST_DEVICE Pair<A> operator+(Pair<A> a, Pair<A> b) {
  return {a.first + b.first, a.second + b.second};
}

// A block whose threads the CPU runs one after the other, forwards or, since their order has no
// meaning, backwards.
class HostBlock {
 public:
  HostBlock(int64_t index, int threads, bool backwards)
      : index_(index), threads_(threads), backwards_(backwards) {}

  int64_t index() const { return index_; }
  int threads() const { return threads_; }  // a multiple of kWarp

  template <typename F>
  void ForEach(F f) {
    for (int i = 0; i < threads_; ++i) f(backwards_ ? threads_ - 1 - i : i);
  }

  // f(thread) of all threads, brought together by `op`: within each warp, then over the warps, by
  // halving. What is in Shared is lost.
  template <typename A, typename F, typename Op>
  A Reduce(A identity, F f, Op op) {
    std::memset(shared_, 0xff, kWarp * sizeof(A));  // where a GPU has its warps' sums
    A warps[kWarp], lanes[kWarp];
    for (int w = 0; w < kWarp; ++w) {
      warps[w] = identity;
      if (w * kWarp >= threads_) continue;
      for (int l = 0; l < kWarp; ++l) lanes[l] = f(w * kWarp + l);
      warps[w] = Halve(lanes, op);
    }
    return Halve(warps, op);
  }

  template <typename A, typename F>
  A Sum(A identity, F f) {
    return Reduce(identity, f, Plus());
  }

  // An array of the block's, of as many A as its threads have room for (SharedBytesOf); what was
  // there before is gone.
  template <typename A>
  A* Shared() {
    static_assert(sizeof(A) <= kSharedBytes, "");
    return reinterpret_cast<A*>(shared_);
  }

 private:
  template <typename A, typename Op>
  static A Halve(A* values, Op op) {
    for (int half = kWarp / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) values[l] = op(values[l], values[l + half]);
    }
    return values[0];
  }

  const int64_t index_;
  const int threads_;
  const bool backwards_;
  alignas(16) char shared_[kMaxThreads * kSharedBytes];
};

// use(i, load(i)) for i = first, first + step, ... below n, in this order. Loads go before uses, so
// that kAhead of them are under way at a time: a compiler does not move a load before a store that
// it may see. What use(i, ...) stores no load but that of i may read.
template <int kAhead, typename Load, typename Use>
RUBATO_HOST_DEVICE void InTurn(int64_t first, int64_t n, int64_t step, Load load, Use use) {
  using Value = decltype(load(first));
  int64_t i = first;
  for (; i + (kAhead - 1) * step < n; i += kAhead * step) {
    Value values[kAhead];
    RUBATO_UNROLL
    for (int k = 0; k < kAhead; ++k) values[k] = load(i + k * step);
    RUBATO_UNROLL
    for (int k = 0; k < kAhead; ++k) use(i + k * step, values[k]);
  }
  if (i < n) {
    Value values[kAhead];
    RUBATO_UNROLL
    for (int k = 0; k < kAhead; ++k) values[k] = i + k * step < n ? load(i + k * step) : Value();
    RUBATO_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (i + k * step < n) use(i + k * step, values[k]);
    }
  }
}

// The most threads with which a kernel is launched: its own kMostThreads, if it says so. With fewer
// a thread may have more registers.
template <typename Kernel, typename = void>
struct MostThreadsOf {
  static constexpr int kValue = kMaxThreads;
};
template <typename Kernel>
struct MostThreadsOf<Kernel, std::void_t<decltype(Kernel::kMostThreads)>> {
  static constexpr int kValue = Kernel::kMostThreads;
};

// Bytes of shared memory for each thread: its own kSharedBytes, if it says so.
template <typename Kernel, typename = void>
struct SharedBytesOf {
  static constexpr size_t kValue = kSharedBytes;
};
template <typename Kernel>
struct SharedBytesOf<Kernel, std::void_t<decltype(Kernel::kSharedBytes)>> {
  static constexpr size_t kValue = Kernel::kSharedBytes;
  static_assert(kValue * MostThreadsOf<Kernel>::kValue <= kMaxThreads * rubato::kSharedBytes, "");
};

// How many of its loads an f of ForEachIndex wants under way: 0 if it does not say what it loads.
template <typename F, typename = void>
struct AheadOf {
  static constexpr int kValue = 0;
};
template <typename F>
struct AheadOf<F, std::void_t<decltype(F::kAhead)>> {
  static constexpr int kValue = F::kAhead;
};

// f(i) for each i below n or, for an f that has kAhead, f.Store(i, f.Load(i)).
template <typename F>
struct ForEachIndex {
  static constexpr int kAhead = AheadOf<F>::kValue;
  static constexpr int kEach = kAhead > 0 ? kAhead : 4;  // values of a thread
  static constexpr int kMostThreads = kUsualThreads;

  int64_t n;
  F f;

  Traffic Moves(int64_t) const { return f.Moves(n); }

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    block.ForEach([&](int thread) {
      const int64_t first = block.index() * kEach * block.threads() + thread;
      const int64_t end = (block.index() + 1) * kEach * block.threads();
      if constexpr (kAhead > 0) {
        InTurn<kAhead>(
            first, n < end ? n : end, block.threads(), [&](int64_t i) { return f.Load(i); },
            [&](int64_t i, const auto& loaded) { f.Store(i, loaded); });
      } else {
        for (int64_t i = first; i < end && i < n; i += block.threads()) f(i);
      }
    });
  }
};

template <typename Queue, typename F>
void LaunchForEach(Queue& queue, int64_t n, const F& f) {
  constexpr int64_t kPerBlock = int64_t{ForEachIndex<F>::kEach} * kUsualThreads;
  if (n == 0) return;
  queue.Launch((n + kPerBlock - 1) / kPerBlock, kUsualThreads, ForEachIndex<F>{n, f});
}

// Threads for a row of n values: as many, in whole warps, up to `most`.
inline int ThreadsFor(int64_t n, int most = kUsualThreads) {
  int threads = kWarp;
  while (threads < n && threads < most) threads *= 2;
  return threads;
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_BLOCK_H_
