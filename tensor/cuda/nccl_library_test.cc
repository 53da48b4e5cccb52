// The NCCL that is installed, which needs no GPU to be opened.
#include "tensor/cuda/nccl_library.h"

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::MatchesRegex;

TEST(NcclLibrary, HasItsFunctionsAndRefusesInASentenceWithoutAGpu) {
  const absl::StatusOr<std::shared_ptr<const Nccl>> nccl = Nccl::Open();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status().message();
  EXPECT_THAT((*nccl)->version, MatchesRegex("2\\.[0-9]+\\.[0-9]+"));
  int version = 0;
  ASSERT_EQ((*nccl)->GetVersion(&version), ncclSuccess);
  EXPECT_EQ((*nccl)->AlltoAll != nullptr, version >= 22800);
  EXPECT_EQ((*nccl)->GroupStart(), ncclSuccess);
  EXPECT_EQ((*nccl)->GroupEnd(), ncclSuccess);
  // So that it is refused where there are GPUs, too.
  const int nowhere[] = {1000, 1001};
  ncclComm_t communicators[2];
  EXPECT_THAT((*nccl)->StatusOf((*nccl)->CommInitAll(communicators, 2, nowhere), "it"),
              IsError(absl::StatusCode::kInternal, MatchesRegex("it failed: .* \\(NCCL\\)")));
}

}  // namespace
}  // namespace rubato
