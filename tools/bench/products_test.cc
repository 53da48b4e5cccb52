#include "tools/bench/products.h"

#include <cstdlib>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rubato {
namespace {

using ::testing::HasSubstr;

class BenchProductsTest : public testing::Test {
 protected:
  BenchProductsTest() { setenv("RUBATO_TEST_GPU", "emulated", 1); }
  ~BenchProductsTest() override { unsetenv("RUBATO_TEST_GPU"); }

  nlohmann::json Measure(const BenchSubject& subject) {
    const absl::StatusOr<std::string> text = BenchProducts(subject, /*json=*/true);
    RUBATO_EXPECT_OK(text);
    return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json();
  }
};

// A first linear layer has two products, as its input has no gradient; the second has three.
TEST_F(BenchProductsTest, ListsTheProductsOfAStep) {
  BenchSubject subject;
  subject.model = "{preset: mlp, hidden: [20]}";
  subject.shape = {5};
  subject.classes = 7;
  subject.batch = 2;
  subject.device = "cuda";
  const absl::StatusOr<BenchSetup> setup = MakeSetup(subject);
  RUBATO_ASSERT_OK(setup);
  const absl::StatusOr<std::vector<StepProduct>> products = ProductsOf(*setup, subject.batch);
  RUBATO_ASSERT_OK(products);
  ASSERT_EQ(products->size(), 5u);
  const int64_t sizes[5][3] = {{2, 20, 5}, {2, 7, 20}, {7, 20, 2}, {2, 20, 7}, {20, 5, 2}};
  for (int i = 0; i < 5; ++i) {
    const Product& product = (*products)[i].product;
    EXPECT_EQ((*products)[i].times, 1);
    EXPECT_EQ(product.m, sizes[i][0]) << i;
    EXPECT_EQ(product.n, sizes[i][1]) << i;
    EXPECT_EQ(product.k, sizes[i][2]) << i;
    EXPECT_EQ(product.bias != nullptr, i < 2) << i;
  }
}

// By pencil: a block has linear layers of 12 c^2 weights together, and attention two products of
// places^2 c; each again twice in backward.
TEST_F(BenchProductsTest, CountsAttentionAndTheSameProductsOfBlocksOnce) {
  BenchSubject subject;
  subject.model = "{preset: char_gpt, blocks: 3, heads: 2, channels: 128}";
  subject.shape = {8};
  subject.classes = 11;
  subject.batch = 3;
  subject.device = "cuda";
  for (const char* precision : {"bf16", "fp16", "tf32", "float32"}) {
    subject.precision = precision;
    const nlohmann::json object = Measure(subject);
    const double c = 128, places = 8, rows = 3 * places;
    const double forward =
        3 * (rows * 12 * c * c + 2 * rows * places * c) + rows * c * 11;  // multiplications
    EXPECT_NEAR(object["gflop"].get<double>() * 1e9, 2 * 3 * forward, 1e-9 * forward) << precision;
    // Of a block 4 linear layers, 3 each, and attention's 2 forward and 4 backward, a head at a
    // time here; each block's are like the others'. And the last layer's.
    int times = 0;
    for (const nlohmann::json& product : object["products"]) times += product["times"].get<int>();
    EXPECT_EQ(times, 3 * (4 * 3 + 2 * (2 + 4)) + 3);
    EXPECT_LE(object["products"].size(), times / 3 + 2);
    // The tensors' rounding, and some more of sums.
    EXPECT_LT(object["difference"].get<double>(), 0.01) << precision;
    EXPECT_GT(object["share_of_alone"].get<double>(), 0);
    // What tools/gpu_check reads.
    for (const char* name : {"gflop", "milliseconds", "share_of_alone", "difference"}) {
      EXPECT_TRUE(object[name].is_number()) << name;
    }
    EXPECT_GE(object["share_of_alone"], object["min_share_of_alone"]);
  }
}

TEST_F(BenchProductsTest, TakesConvolutions) {
  BenchSubject subject;
  subject.model = "lenet";
  subject.batch = 2;
  subject.device = "cuda";
  EXPECT_LT(Measure(subject)["difference"].get<double>(), 1e-5);
}

TEST_F(BenchProductsTest, SaysWhatItNeeds) {
  BenchSubject subject;
  EXPECT_THAT(BenchProducts(subject, false),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found --device cpu")));
  setenv("RUBATO_TEST_GPU", "none", 1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  subject.device = "cuda";
  EXPECT_THAT(BenchProducts(subject, false),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("device.type: found cuda")));
}

}  // namespace
}  // namespace rubato
