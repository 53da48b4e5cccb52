#include "tools/bench/convergence/verify.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/convergence/report.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<KeptLine> Lines(int count) {
  std::vector<KeptLine> lines(count);
  for (int i = 0; i < count; ++i) lines[i].cell.cell.seed = i;
  return lines;
}

std::vector<int> Seeds(const std::vector<KeptLine>& lines) {
  std::vector<int> seeds;
  for (const KeptLine& line : lines) seeds.push_back(line.cell.cell.seed);
  return seeds;
}

TEST(DrawTest, EachLineIsAsLikelyAsAnyOther) {
  std::map<int, int> times;
  constexpr int kDraws = 6000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<int> seeds = Seeds(Draw(Lines(6), 2, seed));
    ASSERT_THAT(seeds, SizeIs(2));
    ASSERT_LT(seeds[0], seeds[1]);
    for (const int line : seeds) ++times[line];
  }
  // Of a third of the draws each; the standard deviation is sqrt(6000 * 1/3 * 2/3) = 37.
  ASSERT_THAT(times, SizeIs(6));
  for (const auto& [line, count] : times) EXPECT_NEAR(count, kDraws / 3, 4 * 37) << line;
}

TEST(DrawTest, TheSeedDecides) {
  EXPECT_EQ(Seeds(Draw(Lines(40), 5, 3)), Seeds(Draw(Lines(40), 5, 3)));
  EXPECT_NE(Seeds(Draw(Lines(40), 5, 3)), Seeds(Draw(Lines(40), 5, 4)));
}

TEST(DrawTest, AllIfTheyAreFewerAndNoneThatFailed) {
  std::vector<KeptLine> lines = Lines(4);
  lines[1].cell.result.error = "no room";
  EXPECT_EQ(Seeds(Draw(lines, 9, 0)), (std::vector<int>{0, 2, 3}));
}

TEST(LinesOfTest, AreFoundByWhatIdentifiesTheirCell) {
  Study study;
  study.modes = {"sync", "async"};
  std::vector<DoneCell> done(4);
  std::vector<Cell> cells;
  for (int i = 0; i < 4; ++i) {
    done[i].cell.mode = i % 2;
    done[i].cell.workers = 2;
    done[i].cell.seed = i / 2 * 10 + 1;  // 1 and 11: neither is taken for the other
    done[i].cell.name = absl::StrCat("cell-", i);
    done[i].result.updates = i;
    cells.push_back(done[i].cell);
  }
  const std::string text = ResultsJsonl(study, {done[2], done[0], done[3]});
  const absl::StatusOr<std::vector<KeptLine>> lines = LinesOf(study, cells, text);
  RUBATO_ASSERT_OK(lines);
  ASSERT_THAT(*lines, SizeIs(3));
  EXPECT_EQ((*lines)[0].cell.result.updates, 0);
  EXPECT_EQ((*lines)[1].cell.result.updates, 2);
  EXPECT_EQ((*lines)[2].text + "\n", ResultsJsonl(study, {done[3]}));
  EXPECT_THAT(LinesOf(study, cells, ResultLineBegin(study, cells[0]) + "\"seconds\":"),
              IsError(absl::StatusCode::kDataLoss, HasSubstr("cell-0: ")));
}

}  // namespace
}  // namespace rubato
