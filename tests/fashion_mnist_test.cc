// Fashion-MNIST by configs/fashion_mnist.yaml: PyTorch reaches 87.2 to 88.3 % test accuracy with
// these settings over three seeds; the median of three seeds must reach 87.2 % in both modes.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

class FashionMnistTest : public ClusterTest, public testing::WithParamInterface<std::string> {};

TEST_P(FashionMnistTest, TwoWorkersReachWhatOneProcessReaches) {
  const char* data = std::getenv("RUBATO_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "RUBATO_TEST_DATA is not set";
  const std::string& mode = GetParam();
  std::vector<double> accuracies;
  for (const std::string seed : {"1", "2", "3"}) {
    const std::string run = "run" + seed;
    // As long as it takes: the test's own limit ends it.
    Process& train = Start({"tools/rubato", "train", fs::absolute("configs/fashion_mnist.yaml"),
                            "--run-dir", run, "--set", "seed=" + seed, "--set",
                            "consistency.mode=" + mode, "--set", "cluster.address=127.0.0.1:0",
                            "--set", absl::StrCat("data.path=", data, "/fashion-mnist")});
    const Process::Result result = train.Wait(absl::InfiniteDuration());
    ASSERT_EQ(result.code, 0) << result.err;
    const nlohmann::json summary = Summary(run);
    accuracies.push_back(summary["test_accuracy"]);
    std::cout << mode << ", seed " << seed << ": test accuracy " << accuracies.back() << ", "
              << summary["seconds"] << " s" << std::endl;
  }
  std::sort(accuracies.begin(), accuracies.end());
  EXPECT_GE(accuracies[1], 0.872);
}

INSTANTIATE_TEST_SUITE_P(, FashionMnistTest, testing::Values("sync", "async"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rubato
