#include "server/shard/update_threads.h"

#include <cstring>
#include <mutex>
#include <numeric>
#include <vector>

#include "common/base/random.h"
#include "common/job/completion.h"
#include "common/job/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/optimizers/optimizer.h"

namespace rubato {
namespace {

TEST(UpdateThreadsTest, PartsMakeUpTheWhole) {
  for (const int threads : {1, 2, 3, 8}) {
    UpdateThreads update(threads);
    for (const int64_t n : {0, 1, 1000, 16384, 16385, 65536, 100003}) {
      std::vector<int> visits(n);
      std::mutex mutex;
      int parts = 0;
      update.Run(n, [&](Range values) {
        for (int64_t i = values.begin; i < values.end; ++i) ++visits[i];
        const std::lock_guard<std::mutex> lock(mutex);
        ++parts;
      });
      EXPECT_THAT(visits, testing::Each(1)) << n << " values, " << threads << " threads";
      EXPECT_EQ(parts, n < 16384 ? 1 : threads);
    }
  }
}

TEST(UpdateThreadsTest, ManyRoundsSeeEachOthersValues) {
  UpdateThreads update(4);
  std::vector<int64_t> values(20000);
  for (int round = 0; round < 3000; ++round) {
    update.Run(static_cast<int64_t>(values.size()), [&](Range range) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        // Of another thread's part in the round before.
        values[i] = std::max(values[i], int64_t{0}) + 1;
      }
    });
    std::rotate(values.begin(), values.begin() + 7001, values.end());
  }
  EXPECT_THAT(values, testing::Each(3000));
}

// Adam has the most slots, and its bits are those of one thread.
TEST(UpdateThreadsTest, AdamHasTheBitsOfOneThread) {
  proto::Optimizer settings;
  settings.set_name(proto::Optimizer::NAME_ADAM);
  settings.set_learning_rate(0.01);
  settings.set_amsgrad(true);
  Report report;
  Complete(&settings, &report);
  const Optimizer optimizer = *Optimizer::Create(settings);
  const int64_t n = 70001;
  std::vector<std::vector<float>> expected;
  for (const int threads : {1, 2, 5}) {
    UpdateThreads update(threads);
    std::vector<std::vector<float>> arrays(5, std::vector<float>(n));  // w, g, m, v, the greatest v
    RandomStream stream(1);
    for (int step = 0; step < 3; ++step) {
      for (float& g : arrays[1]) g = stream.Uniform(-1, 1);
      update.Run(n, [&](Range range) {
        const auto part = [&](int array) {
          return absl::MakeSpan(arrays[array]).subspan(range.begin, range.size());
        };
        const absl::Span<float> slots[] = {part(2), part(3), part(4)};
        optimizer.Apply({0.01f, 0.5f, step}, {part(0), part(1), slots, part(0)});
      });
    }
    if (threads == 1) expected = arrays;
    for (size_t array = 0; array < arrays.size(); ++array) {
      EXPECT_EQ(std::memcmp(arrays[array].data(), expected[array].data(), n * sizeof(float)), 0)
          << "array " << array << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace rubato
