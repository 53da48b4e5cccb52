// Matrices turned: their rows made columns.
#ifndef RUBATO_TENSOR_CUDA_TURNED_MATRICES_H_
#define RUBATO_TENSOR_CUDA_TURNED_MATRICES_H_

#include "tensor/cuda/block.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/pack.h"

namespace rubato {
namespace convolution {

// to (matrices, columns, rows) of from (matrices, rows, columns): a tile of one matrix a block, by
// way of shared memory, so that what a warp reads lies side by side, and so what it writes.
template <typename T>
struct TurnMatrices {
  static constexpr int kMostThreads = kUsualThreads;
  static constexpr int kTile = sizeof(T) > sizeof(float) ? 16 : 32;
  static constexpr int kAhead = kTile * kTile / kUsualThreads;
  struct Part {  // a thread's, of the tile
    T values[kAhead];
  };

  int64_t rows, columns;
  Divisor row_tiles, column_tiles;
  const T* from;
  T* to;

  // Each row is turned by its number: a column's values are in as many banks.
  RUBATO_HOST_DEVICE static int Place(int row, int column) {
    return row * kTile + (row + column) % kTile;
  }

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int64_t rest = block.index() / column_tiles, matrix = rest / row_tiles;
    const int64_t row = (rest - matrix * row_tiles) * kTile;
    const int64_t column = (block.index() - rest * column_tiles) * kTile;
    const T* const source = from + matrix * rows * columns;
    T* const target = to + matrix * rows * columns;
    T* const tile = block.template Shared<Part>()->values;
    block.ForEach([&](int thread) {
      InTurn<kAhead>(
          thread, kTile * kTile, block.threads(),
          [&](int64_t i) {
            const int64_t r = row + i / kTile, c = column + i % kTile;
            return r < rows && c < columns ? source[r * columns + c] : T(0.0f);
          },
          [&](int64_t i, T value) {
            tile[Place(static_cast<int>(i) / kTile, static_cast<int>(i) % kTile)] = value;
          });
    });
    block.ForEach([&](int thread) {
      for (int i = thread; i < kTile * kTile; i += block.threads()) {
        const int r = i % kTile, c = i / kTile;
        if (row + r >= rows || column + c >= columns) continue;
        target[(column + c) * rows + row + r] = tile[Place(r, c)];
      }
    });
  }

  Traffic Moves(int64_t blocks) const {
    const int64_t bytes = blocks / (row_tiles * column_tiles) * rows * columns * SizeInBytes<T>();
    return {bytes, bytes, SizeInBytes<T>()};
  }
};

// Likewise of few rows, as a filter's 9 places: a block takes all rows of a matrix and some
// columns, so that what it writes lies in one piece. Each thread reads and writes as many values as
// a pack has. Columns are whole packs, and packs may lie at `to`.
template <typename T>
struct TurnFewRows {
  static constexpr int kWidth = PackWidth<T>();
  static constexpr int kMostRows = 16;
  static constexpr int kMostThreads = 320;  // for 9 rows 288 are used
  // Between rows in shared memory, so that columns' values are in different banks.
  static constexpr int kApart = 2;
  static constexpr size_t kSharedBytes = 2 * kPackBytes;

  int64_t columns;
  Divisor rows, tiles;  // of a matrix
  int shift;            // 2^shift threads read a row
  const T* from;
  T* to;

  template <typename Block>
  RUBATO_HOST_DEVICE void operator()(Block& block) const {
    const int64_t matrix = block.index() / tiles, size = rows * columns;
    const int64_t first = (block.index() - matrix * tiles) * (kWidth << shift);
    const T* const source = from + matrix * size + first;
    T* const target = to + matrix * size + first * rows;
    const int tile_columns = kWidth << shift, step = tile_columns + kApart;
    const int64_t left = columns - first;
    const int width = left < tile_columns ? static_cast<int>(left) : tile_columns;
    T* const tile = block.template Shared<T>();
    block.ForEach([&](int thread) {
      const int row = thread >> shift, column = thread - (row << shift);
      if (row >= rows) return;
      InTurn<kWidth>(
          column, width, 1 << shift, [&](int64_t c) { return source[row * columns + c]; },
          [&](int64_t c, T value) { tile[row * step + c] = value; });
    });
    block.ForEach([&](int thread) {
      if (thread * kWidth >= width * rows) return;
      int column = static_cast<int>(int64_t{thread} * kWidth / rows);
      int row = thread * kWidth - column * static_cast<int>(rows);
      Pack<T, kWidth> pack;
      RUBATO_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        pack.values[k] = tile[row * step + column];
        if (++row == rows) {
          row = 0;
          ++column;
        }
      }
      StorePack<kWidth>(pack, target + thread * kWidth);
    });
  }

  Traffic Moves(int64_t blocks) const {
    const int64_t bytes = blocks / tiles * rows * columns * SizeInBytes<T>();
    return {bytes, bytes, SizeInBytes<T>()};
  }
};

// to (matrices, columns, rows) of from (matrices, rows, columns).
template <typename T, typename Queue>
void LaunchTurn(Queue& queue, int64_t matrices, int64_t rows, int64_t columns, const T* from,
                T* to) {
  using Few = TurnFewRows<T>;
  if (rows <= Few::kMostRows && columns % Few::kWidth == 0 && MayHavePacks(to)) {
    int shift = 0;
    while ((Few::kWidth << shift) < columns && rows << (shift + 1) <= Few::kMostThreads) ++shift;
    const int64_t tile = Few::kWidth << shift, tiles = (columns + tile - 1) / tile;
    const int64_t threads = ((rows << shift) + kWarp - 1) / kWarp * kWarp;
    queue.Launch(matrices * tiles, static_cast<int>(threads),
                 Few{columns, rows, tiles, shift, from, to});
    return;
  }
  using All = TurnMatrices<T>;
  const int64_t row_tiles = (rows + All::kTile - 1) / All::kTile;
  const int64_t column_tiles = (columns + All::kTile - 1) / All::kTile;
  queue.Launch(matrices * row_tiles * column_tiles, kUsualThreads,
               All{rows, columns, row_tiles, column_tiles, from, to});
}

}  // namespace convolution
}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_TURNED_MATRICES_H_
