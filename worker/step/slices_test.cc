#include "worker/step/slices.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(SlicesTest, EveryValueIsInOneSliceOfAChunk) {
  for (const int64_t values : {1, 63, 64, 65, 1000, 4096, 5001}) {
    for (const int gpus : {1, 2, 3, 8}) {
      for (const int64_t most : {64, 128, 1 << 18}) {
        const Slices slices(values, gpus, most);
        int64_t next = 0;
        for (int64_t chunk = 0; chunk < slices.chunks(); ++chunk) {
          EXPECT_EQ(slices.Chunk(chunk).begin, next);
          for (int gpu = 0; gpu < gpus; ++gpu) {
            const Range slice = slices.Slice(chunk, gpu);
            EXPECT_EQ(slice.begin, next);
            EXPECT_LE(slice.size(), slices.Length(chunk));
            next = slice.end;
          }
          EXPECT_EQ(slices.Chunk(chunk).end, next);
        }
        EXPECT_EQ(next, values);
      }
    }
  }
}

TEST(SlicesTest, OfAChunkAllAreAsLongAndAligned) {
  for (const int64_t values : {1, 63, 64, 65, 1000, 4096, 5001}) {
    for (const int gpus : {1, 2, 3, 8}) {
      for (const int64_t most : {64, 128, 1 << 18}) {
        const Slices slices(values, gpus, most);
        for (int64_t chunk = 0; chunk < slices.chunks(); ++chunk) {
          EXPECT_EQ(slices.Length(chunk) % Slices::kAlignment, 0);
          EXPECT_EQ(slices.Chunk(chunk).begin % Slices::kAlignment, 0);
          EXPECT_LE(slices.Length(chunk), most);
          EXPECT_GE(gpus * slices.Length(chunk), slices.Chunk(chunk).size());
          EXPECT_LE(slices.Chunk(chunk).begin + gpus * slices.Length(chunk),
                    slices.padded_values());
          EXPECT_LE(slices.Place(chunk) + slices.Length(chunk), slices.values_of_each());
        }
        EXPECT_LE(slices.padded_values() - values, Slices::Spare(gpus));
      }
    }
  }
}

}  // namespace
}  // namespace rubato
