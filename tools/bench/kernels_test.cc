#include "tools/bench/kernels.h"

#include <map>
#include <set>
#include <string>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/bench/median.h"
#include "tools/bench/yardsticks.h"

namespace rubato {
namespace {

TEST(BenchKernels, TellsTrafficBesideTheYardsticks) {
  KernelBench bench;
  bench.values = 70000;  // a whole block and a part of one
  bench.rounds = 1;
  const absl::StatusOr<std::string> text = BenchKernels(bench, /*json=*/true);
  RUBATO_ASSERT_OK(text);
  const nlohmann::json object = nlohmann::json::parse(*text);
  const double triad = object["yardsticks"]["triad_gbps"];
  EXPECT_GT(triad, 0);
  EXPECT_GT(object["yardsticks"]["memcpy_gbps"].get<double>(), 0);
  // An optimizer reads w, the gradient and the slots, and writes the next w and the slots.
  const std::map<std::string, double> kArrays = {
      {"sgd", 3}, {"sgd momentum", 5}, {"adam", 7}, {"adam amsgrad", 9}, {"bf16 encode", 1.5}};
  std::set<std::string> names;
  for (const auto& result : object["results"]) {
    const std::string name = result["kernel"];
    names.insert(name);
    const double traffic = result["traffic_gbps"], floats = result["float_gbps"];
    EXPECT_NEAR(result["share_of_triad"].get<double>(), traffic / triad, 1e-9) << name;
    if (const auto arrays = kArrays.find(name); arrays != kArrays.end()) {
      EXPECT_NEAR(traffic / floats, arrays->second, 1e-9) << name;
    }
  }
  EXPECT_EQ(names.size(), 16u);
  RUBATO_EXPECT_OK(BenchKernels(bench, /*json=*/false));
}

TEST(Median, IsTheMiddleOne) {
  EXPECT_EQ(Median({5}), 5);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median({2, 1}), 1.5);
}

}  // namespace
}  // namespace rubato
