#include "common/wire/received_values.h"

#include <cstring>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace rubato {
namespace {

// `values` as bytes behind `offset` others, cut at random into pieces that lie at any address.
struct Cut {
  Cut(const std::vector<float>& values, size_t offset, std::mt19937* random) {
    std::string bytes(offset, '?');
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    bytes += "more";
    for (size_t at = 0; at < bytes.size();) {
      size_t size = (*random)() % 3 == 0 ? (*random)() % 7 : (*random)() % 20000;
      if (pieces.empty()) size += offset;  // the first holds what is skipped
      storage.push_back(std::string((*random)() % 8, '!') + bytes.substr(at, size));
      lead.push_back(storage.back().size() - std::min(size, bytes.size() - at));
      at += size;
      pieces.emplace_back();
    }
    for (size_t i = 0; i < storage.size(); ++i) pieces[i] = Piece(storage[i]).subspan(lead[i]);
  }

  std::vector<std::string> storage;
  std::vector<size_t> lead;
  std::vector<Piece> pieces;
};

TEST(ReceivedValuesTest, SaysTheSameHoweverItIsCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<float> values(random() % 30000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random() % 1000);
    const size_t offset = random() % 100;
    const Cut cut(values, offset, &random);
    const ReceivedValues received(cut.pieces, offset, values.size());
    ASSERT_EQ(received.size(), values.size());

    std::vector<float> copy(values.size()), runs, scratch, sum(values.size(), 0.5f);
    received.CopyTo(absl::MakeSpan(copy));
    EXPECT_EQ(copy, values);
    received.ForEachRun([&](size_t begin, absl::Span<const float> run) {
      EXPECT_EQ(begin, runs.size());
      runs.insert(runs.end(), run.begin(), run.end());
    });
    EXPECT_EQ(runs, values);
    const absl::Span<const float> whole = received.Whole(&scratch);
    EXPECT_EQ(std::vector<float>(whole.begin(), whole.end()), values);
    received.AddTo(absl::MakeSpan(sum));
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(sum[i], values[i] + 0.5f);
  }
}

TEST(ReceivedValuesTest, BorrowsWhatLiesInOnePlace) {
  const std::vector<float> values = {1, 2, 3};
  const ReceivedValues received(absl::MakeConstSpan(values));
  std::vector<float> scratch;
  EXPECT_EQ(received.Whole(&scratch).data(), values.data());
  received.ForEachRun(
      [&](size_t, absl::Span<const float> run) { EXPECT_EQ(run.data(), values.data()); });
  EXPECT_TRUE(ReceivedValues().empty());
  ReceivedValues().CopyTo({});
}

}  // namespace
}  // namespace rubato
