#include "tools/command/processor_shares.h"

#include <sched.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Processor> Alike(int count) {
  std::vector<Processor> processors;
  for (int i = 0; i < count; ++i) processors.push_back({i, 0, i, 0});
  return processors;
}

TEST(ProcessorSharesTest, AllProcessorsAreSharedOut) {
  EXPECT_THAT(ProcessorShares(Alike(2), 2, 1), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(ProcessorShares(Alike(6), 2, 2),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5)));
}

// Each worker's threads have a processor each.
TEST(ProcessorSharesTest, AShareHasRoomForTheThreads) {
  for (int processors = 2; processors <= 40; ++processors) {
    for (int workers = 2; workers <= processors; ++workers) {
      const int threads = processors / workers;
      for (const std::vector<int>& share : ProcessorShares(Alike(processors), workers, threads)) {
        EXPECT_GE(static_cast<int>(share.size()), threads) << processors << " " << workers;
      }
    }
  }
}

TEST(ProcessorSharesTest, SeveralWorkersHaveAProcessor) {
  EXPECT_THAT(ProcessorShares(Alike(2), 4, 1),
              ElementsAre(ElementsAre(0), ElementsAre(0), ElementsAre(1), ElementsAre(1)));
}

TEST(ProcessorSharesTest, SlowProcessorsFallToNobodyAlone) {
  std::vector<Processor> processors = Alike(4);
  for (Processor& processor : processors) processor.speed = 5000 + 50 * processor.number;
  EXPECT_EQ(ProcessorShares(processors, 2, 2).size(), 2u);
  processors[3].speed = 4000;
  EXPECT_THAT(ProcessorShares(processors, 2, 2), IsEmpty());
}

TEST(ProcessorSharesTest, NobodyIsBoundWhereThatDoesNotHelp) {
  EXPECT_THAT(ProcessorShares(Alike(2), 1, 2), IsEmpty());   // the only one
  EXPECT_THAT(ProcessorShares(Alike(2), 3, 1), IsEmpty());   // uneven
  EXPECT_THAT(ProcessorShares(Alike(2), 2, 2), IsEmpty());   // two threads of a worker on one
  EXPECT_THAT(ProcessorShares(Alike(16), 2, 4), IsEmpty());  // half of them are idle
  EXPECT_THAT(ProcessorShares(Alike(4), 3, 1), IsEmpty());   // one would have two
  EXPECT_EQ(ProcessorShares(Alike(16), 2, 5).size(), 2u);
  EXPECT_THAT(ProcessorShares({}, 2, 1), IsEmpty());  // the system does not tell
}

// Of two chips with two cores of two processors, as Linux numbers them: the second of each core
// come last.
TEST(ProcessorSharesTest, NeitherCoresNorChipsAreDivided) {
  std::vector<Processor> processors;
  for (int i = 0; i < 8; ++i) processors.push_back({i, i % 4 / 2, i % 2, 0});
  EXPECT_THAT(ProcessorShares(processors, 2, 3),
              ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
  EXPECT_THAT(ProcessorShares(processors, 4, 2), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5),
                                                             ElementsAre(2, 6), ElementsAre(3, 7)));
}

TEST(ProcessorSharesTest, ReadsWhatThisProcessMayUse) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const std::string sys = ::testing::TempDir() + "/cpu";
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    const std::string topology = absl::StrCat(sys, "/cpu", i, "/topology");
    if (!CPU_ISSET(i, &allowed)) continue;
    std::filesystem::create_directories(topology);
    std::ofstream(topology + "/physical_package_id") << 3 << "\n";
    std::ofstream(topology + "/core_id") << 100 + i << "\n";
    std::ofstream(absl::StrCat(sys, "/cpu", i, "/cpu_capacity")) << 1024 << "\n";
  }
  const std::vector<Processor> found = AllowedProcessors(sys);
  EXPECT_EQ(static_cast<int>(found.size()), CPU_COUNT(&allowed));
  for (const Processor& processor : found) {
    EXPECT_TRUE(CPU_ISSET(processor.number, &allowed));
    EXPECT_EQ(processor.package, 3);
    EXPECT_EQ(processor.core, 100 + processor.number);
    EXPECT_EQ(processor.speed, 1024);
  }
  EXPECT_EQ(AllowedProcessors("/nowhere").size(), found.size());
}

}  // namespace
}  // namespace rubato
