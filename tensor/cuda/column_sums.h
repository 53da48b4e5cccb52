// Sums over the rows of a matrix, of one order whatever GPU adds.
//
// Rows are added in groups of so many behind one another: in a group, lane l of L adds the rows l,
// l + L, ... in turn, and the lanes' sums are added by halving. If there are several groups, their
// sums are the rows of another matrix, which is added likewise by a second kernel. Groups and lanes
// follow from the numbers of rows and columns alone.
#ifndef RUBATO_TENSOR_CUDA_COLUMN_SUMS_H_
#define RUBATO_TENSOR_CUDA_COLUMN_SUMS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/cuda/block.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/pack.h"

namespace rubato {

// The most sums of groups at a time, and rows of a group, at least: groups enough for two blocks on
// each of kProcessors at all widths of char_gpt's, and less memory than a GPU's cache has.
constexpr int64_t kPartialSums = int64_t{1} << 17;
constexpr int64_t kRowsOfGroup = 256;

template <typename A>
RUBATO_HOST_DEVICE A PartOf(A sum, int) {
  return sum;
}
template <typename A>
RUBATO_HOST_DEVICE A PartOf(Pair<A> sum, int part) {
  return part == 0 ? sum.first : sum.second;
}

struct RowGroups {
  int64_t count, rows;  // the last may have less rows
};
inline RowGroups RowGroupsOf(int64_t rows, int64_t sums) {
  const int64_t most = std::max<int64_t>(1, std::min(rows / kRowsOfGroup, kPartialSums / sums));
  const int64_t each = (rows + most - 1) / most;
  return {(rows + each - 1) / each, each};
}

inline int LanesOf(int64_t columns) {
  int lanes = 128;
  while (512 / lanes < columns && lanes > 16) lanes /= 2;
  return lanes;
}

// Where sums go: `columns` to the first place, the others to the second.
template <typename Sum>
struct SumsTo {
  Sum* first;
  Sum* second;
  int64_t columns;

  RUBATO_HOST_DEVICE void Store(int64_t i, Sum sum) const {
    (i < columns ? first[i] : second[i - columns]) = sum;
  }
};

// What a thread uses to load and add its kWidth columns from `column` on: f or, if it has that,
// f.Of<kWidth>(column), with what the rows have in common.
template <int kWidth, typename F, typename = void>
struct OfColumns {
  static RUBATO_HOST_DEVICE const F& Get(const F& f, int64_t) { return f; }
};
template <int kWidth, typename F>
struct OfColumns<kWidth, F, std::void_t<decltype(std::declval<F>().template Of<kWidth>(0))>> {
  static RUBATO_HOST_DEVICE auto Get(const F& f, int64_t column) {
    return f.template Of<kWidth>(column);
  }
};

// The sums over the rows of f.Value(f.Load<kWidth>(row, column), k), for the kWidth columns from
// `column` on: a number, or a Pair. f.Zero() is the sum of nothing, and F::kAhead of a thread's
// packs are read at a time. Of each group of rows the sums of all columns are stored, of pairs
// first all of one, then all of the other. Threads lie in `tile` side by side.
template <typename F, int kWidth>
struct SumColumns {
  using A = decltype(F().Zero());
  using Sum = decltype(PartOf(A(), 0));
  static constexpr int kMostThreads = kWidth == 1 ? 512 : 256;
  static constexpr int kAhead = kWidth == 1 ? 2 * F::kAhead : F::kAhead;
  static constexpr int kParts = sizeof(A) / sizeof(Sum);
  static constexpr size_t kSharedBytes = kWidth * sizeof(A);

  int64_t rows, columns;
  RowGroups groups;
  int tile;       // divides the threads
  Divisor tiles;  // of a group
  F f;
  SumsTo<Sum> to;

  Traffic Moves(int64_t) const {
    Traffic traffic = f.Moves(rows, columns);
    traffic.load *= kWidth;
    traffic.written = groups.count * kParts * columns * static_cast<int64_t>(sizeof(Sum));
    return traffic;
  }

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    A* const shared = block.template Shared<A>();  // (kWidth, lanes, tile)
    const int threads = block.threads(), lanes = threads / tile;
    const int64_t group = block.index() / tiles;
    const int64_t first = (block.index() - group * tiles) * tile * kWidth;
    const int64_t begin = group * groups.rows;
    const int64_t end = begin + groups.rows < rows ? begin + groups.rows : rows;
    block.ForEach([&](int thread) {
      const int64_t column = first + thread % tile * kWidth;
      A sums[kWidth];
      RUBATO_UNROLL
      for (int k = 0; k < kWidth; ++k) sums[k] = f.Zero();
      if (column < columns) {
        const auto& of = OfColumns<kWidth, F>::Get(f, column);
        InTurn<kAhead>(
            begin + thread / tile, end, lanes,
            [&](int64_t row) { return of.template Load<kWidth>(row, column); },
            [&](int64_t, const auto& loaded) {
              RUBATO_UNROLL
              for (int k = 0; k < kWidth; ++k) sums[k] = sums[k] + of.Value(loaded, k);
            });
      }
      RUBATO_UNROLL
      for (int k = 0; k < kWidth; ++k) shared[k * threads + thread] = sums[k];
    });
    for (int half = lanes / 2; half > 0; half /= 2) {
      block.ForEach([&](int thread) {
        if (thread >= half * tile) return;
        RUBATO_UNROLL
        for (int k = 0; k < kWidth; ++k) {
          A* const sum = shared + k * threads + thread;
          *sum = *sum + sum[half * tile];
        }
      });
    }
    block.ForEach([&](int thread) {
      const int64_t column = first + thread;
      if (thread >= tile * kWidth || column >= columns) return;
      const A sum = shared[thread % kWidth * threads + thread / kWidth];
      for (int part = 0; part < kParts; ++part) {
        to.Store((group * kParts + part) * columns + column, PartOf(sum, part));
      }
    });
  }
};

// The sums of groups, which lie as the rows of a matrix.
template <typename Sum>
struct PartialSums {
  static constexpr int kAhead = 8;

  const Sum* partials;
  int64_t columns;

  RUBATO_HOST_DEVICE Sum Zero() const { return 0; }
  template <int kWidth>
  RUBATO_HOST_DEVICE Sum Load(int64_t row, int64_t column) const {
    return partials[row * columns + column];
  }
  RUBATO_HOST_DEVICE Sum Value(Sum loaded, int) const { return loaded; }
  Traffic Moves(int64_t rows, int64_t) const {
    return {rows * columns * static_cast<int64_t>(sizeof(Sum)), 0, sizeof(Sum)};
  }
};

template <int kWidth, typename Queue, typename F, typename Sum>
void LaunchSumGroups(Queue& queue, int64_t rows, int64_t columns, const RowGroups& groups,
                     const F& f, const SumsTo<Sum>& to) {
  using Kernel = SumColumns<F, kWidth>;
  // Down to two packs, or eight values, side by side: there are more blocks so, which is no matter
  // to the order of additions.
  constexpr int kLeastTile = kWidth == 1 ? 8 : 2;
  const int lanes = LanesOf(columns);
  const auto tiles_of = [&](int tile) { return (columns + tile * kWidth - 1) / (tile * kWidth); };
  int tile = 1;
  while (tile * kWidth < columns && tile * lanes < Kernel::kMostThreads) tile *= 2;
  while (tile > kLeastTile && groups.count * tiles_of(tile) < 2 * kProcessors) tile /= 2;
  const int64_t tiles = tiles_of(tile);
  queue.Launch(groups.count * tiles, tile * lanes,
               Kernel{rows, columns, groups, tile, tiles, f, to});
}

// By packs, if `has_packs`: if packs of T may lie where the matrix begins.
template <typename T, typename Queue, typename F, typename Sum>
void LaunchSumColumns(Queue& queue, int64_t rows, int64_t columns, bool has_packs, const F& f,
                      const SumsTo<Sum>& to) {
  constexpr int kWidth = PackWidth<T>();
  const int64_t sums = SumColumns<F, 1>::kParts * columns;
  const RowGroups groups = RowGroupsOf(rows, sums);
  const int64_t count = groups.count * sums;
  SumsTo<Sum> groups_to = to;
  if (groups.count > 1) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(Sum));
    groups_to = {static_cast<Sum*>(queue.Partials(bytes)), nullptr, count};
  }
  if (has_packs && columns % kWidth == 0) {
    LaunchSumGroups<kWidth>(queue, rows, columns, groups, f, groups_to);
  } else {
    LaunchSumGroups<1>(queue, rows, columns, groups, f, groups_to);
  }
  if (groups.count == 1) return;
  LaunchSumGroups<1>(queue, groups.count, sums, {1, groups.count},
                     PartialSums<Sum>{groups_to.first, sums}, to);
}

// Part of a queue whose work is done at once, on the host. Else: `bytes` of the device's memory, at
// most kPartialSums sums, for kernels of the queue until it is asked for again.
class PartialsOnHost {
 public:
  void* Partials(int64_t bytes) {
    memory_.resize(std::max(memory_.size(), static_cast<size_t>(bytes) / sizeof(double) + 1));
    return memory_.data();
  }

 private:
  std::vector<double> memory_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_COLUMN_SUMS_H_
