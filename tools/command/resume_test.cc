#include "tools/command/resume.h"

#include <filesystem>
#include <fstream>

#include "common/base/status_matchers.h"
#include "common/files/run_folder.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

// Lines that no run of ours has written are left out, or kept as they are.
TEST(CopyMetricsTest, KeepsTheLinesUpToTheCheckpointWhateverElseIsThere) {
  const std::string run = ::testing::TempDir() + "/run", to = ::testing::TempDir() + "/copied";
  fs::create_directories(run);
  const std::string before =
      "{\"kind\":\"train\",\"samples\":20}\n{\"kind\":3,\"samples\":\"x\"}\n";
  std::ofstream(RunFolder(run).MetricsFile())
      << before << "{\"kind\":\"train\",\"samples\":1e300}\n[1]\nnonsense\n"
      << "{\"kind\":\"test\",\"samples\":20}\n{\"kind\":\"train\",\"samples\":30}\n";
  Resume resume;
  resume.checkpoint = run + "/checkpoints/step-00000002";
  resume.manifest.set_mode(proto::Manifest::MODE_ASYNC);
  resume.manifest.set_samples(20);
  RUBATO_ASSERT_OK(CopyMetrics(resume, to));
  EXPECT_EQ(ReadSmallFile(to).value_or(""), before);
}

}  // namespace
}  // namespace rubato
