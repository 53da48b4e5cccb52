// Single values of a matrix's columns, with what a column's values have in common.
#ifndef RUBATO_TENSOR_CUDA_MAP_COLUMNS_H_
#define RUBATO_TENSOR_CUDA_MAP_COLUMNS_H_

#include <cstdint>

#include "tensor/cuda/block.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/pack.h"

namespace rubato {

// f.Store(row, column, f.Load(row, column)) for the kWidth columns from `column` on of each row,
// where f is F's Of<kWidth>(column), with what the rows have in common. Threads lie in `tile` side
// by side, and each has up to `each` rows.
template <typename F, int kWidth>
struct MapColumns {
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kAhead = 4, kMostRows = 8;

  int64_t rows, columns;
  int tile;  // divides the threads
  int each;
  Divisor tiles;  // of a row
  F f;

  Traffic Moves(int64_t) const {
    Traffic traffic = f.Moves(rows, columns);
    traffic.load *= kWidth;
    return traffic;
  }

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int lanes = block.threads() / tile;
    const int64_t group = block.index() / tiles;
    const int64_t first = (block.index() - group * tiles) * tile * kWidth;
    const int64_t begin = group * lanes * each;
    const int64_t end = begin + lanes * each < rows ? begin + lanes * each : rows;
    block.ForEach([&](int thread) {
      const int64_t column = first + thread % tile * kWidth;
      if (column >= columns || begin + thread / tile >= end) return;
      const auto of = f.template Of<kWidth>(column);
      InTurn<kAhead>(
          begin + thread / tile, end, lanes, [&](int64_t row) { return of.Load(row, column); },
          [&](int64_t row, const auto& loaded) { of.Store(row, column, loaded); });
    });
  }
};

template <int kWidth, typename Queue, typename F>
void LaunchMapColumns(Queue& queue, int64_t rows, int64_t columns, const F& f) {
  using Kernel = MapColumns<F, kWidth>;
  int tile = 1;
  while (tile * kWidth < columns && tile < kWarp) tile *= 2;
  const int64_t tiles = (columns + tile * kWidth - 1) / (tile * kWidth);
  const auto blocks_of = [&](int each) {
    const int64_t group = int64_t{kUsualThreads / tile} * each;
    return (rows + group - 1) / group * tiles;
  };
  int each = Kernel::kMostRows;
  while (each > 1 && blocks_of(each) < kProcessors) each /= 2;
  queue.Launch(blocks_of(each), kUsualThreads, Kernel{rows, columns, tile, each, tiles, f});
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_MAP_COLUMNS_H_
