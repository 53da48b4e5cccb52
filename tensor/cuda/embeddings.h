// Embeddings: rows of a table, by numbers, and the gradient by the table.
//
// Forward each value finds its own row. Backward a first kernel writes the list of places of each
// index, and a second one adds up the rows of dy at these, in ascending order as the CPU does: so
// that there are no atomics, and no search for each index. The list is made of as many places, for
// as many indices, as there is memory for at a time.
#ifndef RUBATO_TENSOR_CUDA_EMBEDDINGS_H_
#define RUBATO_TENSOR_CUDA_EMBEDDINGS_H_

#include <algorithm>
#include <cmath>

#include "tensor/cuda/block.h"
#include "tensor/cuda/column_sums.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/pack.h"
#include "tensor/tensor.h"

namespace rubato {
namespace embeddings {

// y[i] = the row of `weight` that x[i] says; of an index that there is not, no numbers.
template <typename T>
struct Embed {
  static constexpr int kAhead = 4;

  int64_t count;
  Divisor channels;
  const Wide<T>* x;
  const Wide<T>* weight;
  T* y;

  RUBATO_HOST_DEVICE Wide<T> Load(int64_t i) const {
    const int64_t row = i / channels, index = static_cast<int64_t>(x[row]);
    return index >= 0 && index < count ? weight[(index - row) * channels + i]
                                       : static_cast<Wide<T>>(NAN);
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, Wide<T> value) const { y[i] = static_cast<T>(value); }
  Traffic Moves(int64_t n) const {
    const int64_t rows = n / channels, used = rows < count ? rows : count;
    return {(rows + used * channels) * SizeInBytes<Wide<T>>(), n * SizeInBytes<T>(),
            SizeInBytes<Wide<T>>()};
  }
};

// Where each index is found: of index i, at places[starts[i]] and on to places[starts[i + 1] - 1],
// in ascending order. A block has `each` indices behind one another, and looks through all of x.
template <typename A, int kWidth>
struct ListPlaces {
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kAhead = 8;
  static constexpr int kPlaceBits = 24;  // of an entry; what is left says which of the block's

  int64_t rows, span;          // of x; of these a thread has `span`, a multiple of kWidth
  int64_t first, count, each;  // indices from `first` on; a block has at most kUsualThreads
  const A* x;
  uint32_t* entries;  // (rows), for the block's own use: by place alone
  int32_t* starts;    // (count + 1)
  int32_t* places;    // (rows)

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int64_t begin = block.index() * each;
    const int64_t end = begin + each < count ? begin + each : count;
    const A from = static_cast<A>(first), low = static_cast<A>(first + begin),
            high = static_cast<A>(first + end);
    // Of a thread: how many places have a lesser index, and how many one of the block's.
    Pair<int>* sums = block.template Shared<Pair<int>>();
    block.ForEach([&](int thread) {
      Pair<int> sum = {0, 0};
      Look(thread, [&](int64_t, A value) {
        if (value >= from && value < low) ++sum.first;
        if (value >= low && value < high) ++sum.second;
      });
      sums[thread] = sum;
    });
    sums = AddBefore(block, sums);
    const Pair<int> all = sums[block.threads() - 1];
    uint32_t* const mine = entries + all.first;
    block.ForEach([&](int thread) {
      int at = thread == 0 ? 0 : sums[thread - 1].second;
      if (at == sums[thread].second) return;
      Look(thread, [&](int64_t place, A value) {
        if (value < low || !(value < high)) return;
        mine[at++] =
            static_cast<uint32_t>(value - low) << kPlaceBits | static_cast<uint32_t>(place);
      });
    });
    // From here on a thread has an index.
    sums = block.template Shared<Pair<int>>();
    const auto entry = [&](int64_t i) { return mine[i]; };
    block.ForEach([&](int thread) {
      int found = 0;
      InTurn<kAhead>(0, begin + thread < end ? all.second : 0, 1, entry, [&](int64_t, uint32_t e) {
        found += e >> kPlaceBits == static_cast<uint32_t>(thread) ? 1 : 0;
      });
      sums[thread] = {0, found};
    });
    sums = AddBefore(block, sums);
    block.ForEach([&](int thread) {
      int at = all.first + (thread == 0 ? 0 : sums[thread - 1].second);
      if (begin + thread > end || thread > each) return;
      if (begin + thread < end || end == count) starts[begin + thread] = at;
      if (begin + thread == end || at == all.first + sums[thread].second) return;
      InTurn<kAhead>(0, all.second, 1, entry, [&](int64_t, uint32_t e) {
        if (e >> kPlaceBits != static_cast<uint32_t>(thread)) return;
        places[at++] = static_cast<int32_t>(e & ((1u << kPlaceBits) - 1));
      });
    });
  }

  Traffic Moves(int64_t) const {
    return {rows * SizeInBytes<A>(), (2 * rows + count + 1) * SizeInBytes<int32_t>(),
            kWidth * SizeInBytes<A>()};
  }

 private:
  // use(place, value) of a thread's part of x, in turn.
  template <typename Use>
  RUBATO_HOST_DEVICE void Look(int thread, Use use) const {
    const int64_t begin = thread * span, end = begin + span < rows ? begin + span : rows;
    InTurn<kAhead>(
        begin / kWidth, end / kWidth, 1,
        [&](int64_t i) { return LoadPack<kWidth>(x + i * kWidth); },
        [&](int64_t i, const Pack<A, kWidth>& pack) {
          RUBATO_UNROLL
          for (int k = 0; k < kWidth; ++k) use(i * kWidth + k, pack.values[k]);
        });
  }

  // To each thread's pair those of all before it are added, by doubling: in one half of what is
  // shared, from the other. Where they are then.
  template <typename Block>
  RUBATO_HOST_DEVICE static Pair<int>* AddBefore(Block& block, Pair<int>* sums) {
    Pair<int>* others = sums + block.threads();
    for (int step = 1; step < block.threads(); step *= 2) {
      block.ForEach([&](int thread) {
        others[thread] = thread < step ? sums[thread] : sums[thread] + sums[thread - step];
      });
      Pair<int>* const last = sums;
      sums = others;
      others = last;
    }
    return sums;
  }
};

// dweight = or += the sums of the rows of dy at each index's places, kWidth values of an index for
// each i.
template <typename T, int kWidth>
struct EmbedBackward {
  using A = Wide<T>;
  static constexpr int kAhead = kWidth == 1 ? 1 : 4;
  static constexpr int kRowsAhead = kWidth == 1 ? 16 : 4;
  static constexpr int kPack = kWidth == 1 ? 1 : PackWidth<A>();  // of dweight

  bool adds;
  int64_t rows, channels;
  Divisor parts;  // of an index
  const int32_t* starts;
  const int32_t* places;
  const T* dy;
  A* dweight;

  struct Places {
    int32_t begin, end;
  };
  RUBATO_HOST_DEVICE Places Load(int64_t i) const {
    const int64_t index = i / parts;
    return {starts[index], starts[index + 1]};
  }
  RUBATO_HOST_DEVICE void Store(int64_t i, const Places& list) const {
    const int64_t index = i / parts, column = (i - index * parts) * kWidth;
    A* const to = dweight + index * channels + column;
    Pack<A, kPack> sums[kWidth / kPack];
    RUBATO_UNROLL
    for (int p = 0; p < kWidth / kPack; ++p) {
      if (adds) {
        sums[p] = LoadPack<kPack>(to + p * kPack);
      } else {
        for (int k = 0; k < kPack; ++k) sums[p].values[k] = 0;
      }
    }
    InTurn<kRowsAhead>(
        list.begin, list.end, 1,
        [&](int64_t k) { return LoadPack<kWidth>(dy + places[k] * channels + column); },
        [&](int64_t, const Pack<T, kWidth>& row) {
          RUBATO_UNROLL
          for (int k = 0; k < kWidth; ++k)
            sums[k / kPack].values[k % kPack] += Widen(row.values[k]);
        });
    RUBATO_UNROLL
    for (int p = 0; p < kWidth / kPack; ++p) StorePack<kPack>(sums[p], to + p * kPack);
  }

  Traffic Moves(int64_t n) const {
    const int64_t indices = n / parts, sums = indices * channels * SizeInBytes<A>();
    return {(rows + indices + 1) * SizeInBytes<int32_t>() + rows * channels * SizeInBytes<T>() +
                (adds ? sums : 0),
            sums, kWidth * SizeInBytes<T>()};
  }
};

// What the list is made of at a time, at most.
constexpr int64_t kMostRows = 3 * (kPartialSums / 8), kMostIndices = kPartialSums / 4 - 1;
static_assert(kMostRows <= int64_t{1} << 24, "an entry has a place");

// dweight of `count` indices from `first` on and rows of dy from `begin` on.
template <typename T, typename Queue>
void LaunchBackwardOfSome(Queue& queue, int64_t begin, int64_t rows, int64_t first, int64_t count,
                          int64_t channels, const Wide<T>* x, const T* dy, Wide<T>* dweight) {
  using A = Wide<T>;
  void* const memory = queue.Partials((2 * rows + count + 1) * SizeInBytes<int32_t>());
  uint32_t* const entries = static_cast<uint32_t*>(memory);
  int32_t* const places = static_cast<int32_t*>(memory) + rows;
  int32_t* const starts = places + rows;
  constexpr int64_t kBlocks = 256;  // indices for many processors, or as many as a block can have
  const int64_t each = std::min<int64_t>((count + kBlocks - 1) / kBlocks, kUsualThreads - 1);
  constexpr int kOfX = PackWidth<A>();
  const int64_t span = (rows + kUsualThreads * kOfX - 1) / (kUsualThreads * kOfX) * kOfX;
  ByWidth<A>(rows, MayHavePacks(x + begin), [&](auto width) {
    queue.Launch(
        (count + each - 1) / each, kUsualThreads,
        ListPlaces<A, width()>{rows, span, first, count, each, x + begin, entries, starts, places});
  });
  const T* const from = dy + begin * channels;
  A* const to = dweight + first * channels;
  // Many rows of one index take long one after the other: then each thread has a single column, so
  // that many loads are under way.
  const bool has_packs = rows < 8 * count && MayHavePacks(from) && MayHavePacks(to);
  ByWidth<T>(channels, has_packs, [&](auto width) {
    const int64_t parts = channels / width();
    LaunchForEach(
        queue, count * parts,
        EmbedBackward<T, width()>{begin > 0, rows, channels, parts, starts, places, from, to});
  });
}

// As KernelSet::EmbedBackward.
template <typename T, typename Queue>
void LaunchBackward(Queue& queue, const ConstTensorRef& x, const ConstTensorRef& dy,
                    const TensorRef& dweight) {
  const int64_t rows = x.size(), indices = dweight.dim(0);
  for (int64_t first = 0; first < indices; first += kMostIndices) {
    for (int64_t begin = 0; begin < rows; begin += kMostRows) {
      LaunchBackwardOfSome<T>(queue, begin, std::min(kMostRows, rows - begin), first,
                              std::min(kMostIndices, indices - first), dweight.dim(1),
                              Pointer<Wide<T>>(x), Pointer<T>(dy), Pointer<Wide<T>>(dweight));
    }
  }
}

}  // namespace embeddings
}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_EMBEDDINGS_H_
