#include "tensor/cuda/product_contract.h"

#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

class ContractTest : public ::testing::Test {
 protected:
  // (6, 5) by (5, 4), twice.
  Product Good() const {
    Product p(Transpose::kNo, Transpose::kNo, 6, 4, 5);
    p.a = MatrixAt(memory_.data(), 5, 30);
    p.b = MatrixAt(memory_.data() + 100, 4, 20);
    p.c = MatrixAt(memory_.data() + 200, 4, 24);
    p.count = 2;
    return p;
  }
  static void ExpectRefused(const Product& product, const char* why) {
    EXPECT_THAT(CheckContract(product),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  }

  const std::vector<float> memory_ = std::vector<float>(400);
};

TEST_F(ContractTest, TakesWhatIsAllowed) {
  Product p = Good();
  RUBATO_EXPECT_OK(CheckContract(p));
  p.bias = memory_.data();
  RUBATO_EXPECT_OK(CheckContract(p));
  p.bias = nullptr;
  p.a.distance = 0;  // one for all products
  RUBATO_EXPECT_OK(CheckContract(p));
  p = Good();
  p.a.dtype = p.b.dtype = DType::kBFloat16;  // into float32
  RUBATO_EXPECT_OK(CheckContract(p));
}

TEST_F(ContractTest, TakesMatricesThatLieBesideOneAnother) {
  Product p = Good();
  p.c = MatrixAt(memory_.data() + 200, 8, 4);
  RUBATO_EXPECT_OK(CheckContract(p));
  p.c.distance = 3;
  ExpectRefused(p, "that overlap");
  p.c.distance = 5;
  ExpectRefused(p, "that overlap");
}

TEST_F(ContractTest, RefusesWhatIsNot) {
  Product p = Good();
  p.k = 0;
  ExpectRefused(p, "is empty");
  p = Good();
  p.count = int64_t{1} << 31;
  ExpectRefused(p, "2^31");
  p = Good();
  p.b.pitch = 3;
  ExpectRefused(p, "b of 5 x 4 has a pitch of 3");
  p = Good();
  p.transpose_a = Transpose::kYes;  // stored (5, 6)
  ExpectRefused(p, "a of 5 x 6 has a pitch of 5, expected 6");
  p = Good();
  p.c.distance = 23;
  ExpectRefused(p, "has results 23 values apart that overlap");
  p = Good();
  p.b.dtype = DType::kBFloat16;
  ExpectRefused(p, "factors of two types");
  p = Good();
  p.c.dtype = DType::kBFloat16;
  ExpectRefused(p, "ends in bfloat16");
  p = Good();
  p.a.values = reinterpret_cast<const char*>(p.a.values) + 2;
  ExpectRefused(p, "not aligned to its values of 4 bytes");
  p = Good();
  p.c.values = p.b.values;
  ExpectRefused(p, "writes on its factors");
}

// As a linear layer of one output asks for.
TEST_F(ContractTest, RefusesABiasWithASideOfOne) {
  for (int64_t Product::*side : {&Product::m, &Product::n, &Product::k}) {
    Product p = Good();
    p.bias = memory_.data();
    p.*side = 1;
    ExpectRefused(p, "sides of more than 1");
    p.bias = nullptr;
    RUBATO_EXPECT_OK(CheckContract(p));
  }
}

}  // namespace
}  // namespace rubato
