// Exchanges by NCCL, over a CUDA and an NCCL of the tests' own: what is asked of NCCL, by its
// documents, and what becomes of its failures.
#include "tensor/cuda/nccl_exchange.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/fake_nccl.h"
#include "tensor/cuda/nccl_gpu.h"
#include "tensor/cuda/nccl_library.h"
#include "tensor/cuda/run_apart.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr int64_t kCount = 5;

void Begin(int gpus = 8) {
  TheFakeCuda() = FakeCuda();
  TheFakeCuda().devices = gpus;
  ResetFakeCublas();
  ResetFakeNccl();
}

absl::StatusOr<std::unique_ptr<Exchange>> Open(int gpus) {
  std::vector<int> indices(gpus);
  std::iota(indices.begin(), indices.end(), 0);
  return OpenNcclExchange(indices, absl::Milliseconds(200));
}

// Of each GPU: so many values, the GPU's number times 1000 and on.
std::vector<float*> Fill(Exchange* exchange, int64_t values) {
  std::vector<float*> filled;
  for (int i = 0; i < exchange->gpus(); ++i) {
    filled.push_back(static_cast<float*>(*exchange->gpu(i).Allocate(values * sizeof(float))));
    std::iota(filled[i], filled[i] + values, 1000.0f * i);
  }
  return filled;
}

class NcclExchangeTest : public ::testing::TestWithParam<int> {
 protected:
  NcclExchangeTest() { Begin(); }
};

TEST_P(NcclExchangeTest, ValuesGoWhereTheyBelongAndAllIsGivenBack) {
  const int n = GetParam();
  for (const bool has_all_to_all : {true, false}) {
    Begin();
    TheFakeNccl().has_all_to_all = has_all_to_all;
    {
      const auto exchange = Open(n);
      RUBATO_ASSERT_OK(exchange);
      EXPECT_EQ((*exchange)->gpus(), n);
      EXPECT_EQ((*exchange)->description(), has_all_to_all ? "NCCL 2.28.9" : "NCCL 2.27.3");
      const std::vector<float*> from = Fill(exchange->get(), n * kCount);
      const std::vector<float*> to = Fill(exchange->get(), n * kCount);
      (*exchange)->AllToAll(std::vector<const float*>(from.begin(), from.end()), to, kCount);
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
          for (int64_t k = 0; k < kCount; ++k) {
            EXPECT_EQ(to[j][i * kCount + k], static_cast<float>(1000 * i + j * kCount + k));
          }
        }
      }
      (*exchange)->AllGather(from, kCount);
      for (int j = 0; j < n; ++j) {
        for (int i = 0; i < n; ++i) {
          EXPECT_EQ(from[j][i * kCount], static_cast<float>(1000 * i + i * kCount));
        }
      }
      for (int i = 0; i < n; ++i) (*exchange)->gpu(i).Synchronize();
    }
    EXPECT_THAT(TheFakeNccl().violations, IsEmpty());
    EXPECT_EQ(std::count(TheFakeNccl().calls.begin(), TheFakeNccl().calls.end(), "ncclAlltoAll"),
              has_all_to_all ? 2 * n : 0);
    EXPECT_THAT(TheFakeNccl().calls, Not(Contains("ncclCommAbort")));
    EXPECT_EQ(TheFakeNccl().live, 0);
    EXPECT_EQ(TheFakeCuda().live, 0);
    EXPECT_EQ(TheFakeCublas().live, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, NcclExchangeTest, ::testing::Values(2, 4, 8));

void ExpectNothingLeft() {
  EXPECT_THAT(TheFakeNccl().violations, IsEmpty());
  EXPECT_EQ(TheFakeNccl().live, 0);
  EXPECT_EQ(TheFakeCuda().live, 0);
  RUBATO_EXPECT_OK(OpenGpu(0, ProductPrecision::kFloat32));
}

TEST(OpenNcclExchange, RefusesWithASentenceWhateverFailsAndLeavesTheGpus) {
  for (const bool has_all_to_all : {true, false}) {
    Begin();
    TheFakeNccl().has_all_to_all = has_all_to_all;
    int64_t calls = 0;
    {
      RUBATO_ASSERT_OK(Open(2));
      calls = static_cast<int64_t>(TheFakeNccl().calls.size()) - 4;  // without its end's
    }
    EXPECT_GT(calls, 8);
    for (int64_t call = 0; call < calls; ++call) {
      for (int error = 1; error < ncclNumResults; ++error) {
        if (error == ncclInProgress) continue;
        Begin();
        TheFakeNccl().has_all_to_all = has_all_to_all;
        TheFakeNccl().fails_at = call;
        TheFakeNccl().error = static_cast<ncclResult_t>(error);
        EXPECT_THAT(Open(2),
                    IsError(absl::StatusCode::kInternal,
                            MatchesRegex("(the opening of |GPU [01]'s part of |)an exchange among "
                                         "GPUs 0, 1 failed: a failure of the test's, more of it "
                                         ".NCCL.")))
            << "call " << call;
        ExpectNothingLeft();
      }
    }
  }
}

TEST(OpenNcclExchange, RefusesIfThereIsNoNccl) {
  Begin();
  TheFakeNccl().is_there = false;
  EXPECT_THAT(Open(2), IsError(absl::StatusCode::kFailedPrecondition, "there is no NCCL"));
  ExpectNothingLeft();
}

TEST(OpenNcclExchange, RefusesIfOtherValuesArrive) {
  Begin();
  TheFakeNccl().garbles = true;
  EXPECT_THAT(Open(4), IsError(absl::StatusCode::kInternal, HasSubstr("GPU 0 received other")));
  ExpectNothingLeft();
}

TEST(OpenNcclExchange, RefusesIfAFirstExchangeDoesNotEndAndEndsIt) {
  Begin();
  TheFakeNccl().hangs = true;
  EXPECT_THAT(Open(2), IsError(absl::StatusCode::kDeadlineExceeded,
                               "a first exchange by NCCL has not come to its end on GPU 0 in "
                               "200ms"));
  EXPECT_THAT(TheFakeNccl().calls, Contains("ncclCommAbort").Times(2));
  ExpectNothingLeft();
}

TEST(OpenNcclExchange, RefusesIfAFirstExchangeFailsLater) {
  Begin();
  TheFakeNccl().hangs = true;
  TheFakeNccl().fails_later_at = 9;
  EXPECT_THAT(Open(2), IsError(absl::StatusCode::kInternal,
                               HasSubstr("GPU 0's part of an exchange among GPUs 0, 1 failed: ")));
  EXPECT_THAT(TheFakeNccl().calls, Contains("ncclCommAbort").Times(2));
  ExpectNothingLeft();
}

// What a process says, and how it ends, that opens an exchange, is harmed, and goes on.
Ended GoOn(const std::function<void()>& harm) {
  return RunApart([&] {
    Begin();
    const auto exchange = Open(2);
    if (!exchange.ok()) return 3;
    const std::vector<float*> from = Fill(exchange->get(), 2 * kCount);
    const std::vector<float*> to = Fill(exchange->get(), 2 * kCount);
    harm();
    (*exchange)->AllToAll(std::vector<const float*>(from.begin(), from.end()), to, kCount);
    (*exchange)->AllGather(from, kCount);
    (*exchange)->gpu(1).Synchronize();
    return 0;
  });
}

TEST(NcclExchange, AFailureEndsTheProcessWithOneSentence) {
  EXPECT_EQ(GoOn([] {}).code, 0);
  // Of a group: its begin, a call for each GPU, its end.
  constexpr const char* kParts[] = {"", "GPU 0's part of ", "GPU 1's part of ", ""};
  for (int64_t call = 0; call < 8; ++call) {
    for (int error = 1; error < ncclNumResults; ++error) {
      const Ended ended = GoOn([&] {
        TheFakeNccl().fails_at = static_cast<int64_t>(TheFakeNccl().calls.size()) + call;
        TheFakeNccl().error = static_cast<ncclResult_t>(error);
      });
      EXPECT_EQ(ended.code, 1) << "call " << call;
      const char* const part = kParts[call % 4];
      EXPECT_EQ(ended.said, absl::StrCat("error: on the GPUs: ", part,
                                         "an exchange among GPUs 0, 1 failed: a failure of the "
                                         "test's, more of it (NCCL)\n"));
    }
  }
}

TEST(NcclExchange, AFailureThatShowsLaterEndsAWait) {
  const Ended ended = GoOn([] {
    TheFakeNccl().hangs = true;
    TheFakeNccl().error = ncclRemoteError;
    TheFakeNccl().fails_later_at = static_cast<int64_t>(TheFakeNccl().calls.size()) + 8;
  });
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.said,
              HasSubstr("error: on the GPUs: GPU 0's part of an exchange among GPUs 0, 1 failed"));
}

TEST(NcclExchange, OneThatHangsEndsTheProcess) {
  const Ended ended = GoOn([] { TheFakeNccl().hangs = true; });
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.said, HasSubstr("error: on GPU 1: a step has not moved for"));
}

// The fake notices what NCCL's documents forbid. Two GPUs, and calls that nccl_exchange.cc does not
// make.
class FakeNcclTest : public ::testing::Test {
 protected:
  FakeNcclTest() {
    Begin();
    nccl_ = *Nccl::Open();
    const int devices[] = {0, 1};
    EXPECT_EQ(nccl_->CommInitAll(communicators_, 2, devices), ncclSuccess);
    for (const int gpu : devices) {
      gpus_.push_back(*OpenGpu(gpu, ProductPrecision::kFloat32));
      streams_[gpu] = ComputeStreamOf(*gpus_[gpu]);
      memory_[gpu] = static_cast<float*>(*gpus_[gpu]->Allocate(64 * sizeof(float)));
    }
  }
  ncclResult_t AlltoAll(int rank, int64_t count = 4) {
    return nccl_->AlltoAll(memory_[rank], memory_[rank] + 32, count, ncclFloat32,
                           communicators_[rank], streams_[rank]);
  }
  void Group(const std::function<void()>& calls) {
    nccl_->GroupStart();
    calls();
    nccl_->GroupEnd();
  }
  void ExpectViolation(const std::string& what) {
    EXPECT_THAT(TheFakeNccl().violations, ElementsAre(HasSubstr(what)));
    TheFakeNccl().violations.clear();
  }

  std::shared_ptr<const Nccl> nccl_;
  ncclComm_t communicators_[2];
  std::vector<std::unique_ptr<Device>> gpus_;
  cudaStream_t streams_[2];
  float* memory_[2];
};

TEST_F(FakeNcclTest, RanksAreOfOneGroupAndAlike) {
  Group([&] { AlltoAll(0), AlltoAll(1); });
  EXPECT_THAT(TheFakeNccl().violations, IsEmpty());
  AlltoAll(0);
  ExpectViolation("outside of a group");
  Group([&] { AlltoAll(0); });
  ExpectViolation("a rank does not take part");
  Group([&] { AlltoAll(1); });
  ExpectViolation("a rank does not take part");
  Group([&] { AlltoAll(0), AlltoAll(1, 3); });
  ExpectViolation("ranks differ: ncclAlltoAll of 4 and ncclAlltoAll of 3");
  Group([&] {
    AlltoAll(0);
    nccl_->AllGather(memory_[1], memory_[1] + 32, 4, ncclFloat32, communicators_[1], streams_[1]);
  });
  ExpectViolation("ranks differ: ncclAlltoAll of 4 and ncclAllGather of 4");
  nccl_->GroupEnd();
  ExpectViolation("without a begin");
}

TEST_F(FakeNcclTest, AGpuTakesItsOwnStreamsAndMemory) {
  const auto call = [&](float* from, float* to, cudaStream_t stream) {
    Group([&] { nccl_->AlltoAll(from, to, 4, ncclFloat32, communicators_[0], stream); });
  };
  call(memory_[0], memory_[0] + 32, streams_[1]);
  EXPECT_THAT(TheFakeNccl().violations, Contains(HasSubstr("a stream of another GPU's")));
  TheFakeNccl().violations.clear();
  call(memory_[1], memory_[0] + 32, streams_[0]);
  ExpectViolation("memory that is not the GPU's");
  float on_host[8];
  call(on_host, memory_[0], streams_[0]);
  ExpectViolation("memory that is not the GPU's");
  call(memory_[0], memory_[0] + 60, streams_[0]);  // beyond its end
  ExpectViolation("memory that is not the GPU's");
  call(memory_[0], memory_[0] + 7, streams_[0]);
  ExpectViolation("overlapping");
  Group([&] {
    nccl_->AllGather(memory_[0], memory_[0] + 2, 4, ncclFloat32, communicators_[0], streams_[0]);
  });
  ExpectViolation("overlapping, and not in place");
}

TEST_F(FakeNcclTest, NothingIsRecorded) {
  gpus_[0]->BeginRecording();
  Group([&] { AlltoAll(0); });
  ExpectViolation("in a recording");
}

TEST_F(FakeNcclTest, TransfersMeet) {
  const auto send = [&](int rank, size_t count) {
    nccl_->Send(memory_[rank], count, ncclFloat32, 1 - rank, communicators_[rank], streams_[rank]);
  };
  const auto receive = [&](int rank, size_t count) {
    nccl_->Recv(memory_[rank] + 32, count, ncclFloat32, 1 - rank, communicators_[rank],
                streams_[rank]);
  };
  Group([&] { send(0, 4), receive(1, 4); });
  EXPECT_THAT(TheFakeNccl().violations, IsEmpty());
  Group([&] { send(0, 4); });
  ExpectViolation("ncclSend without an ncclRecv");
  Group([&] { send(0, 4), receive(1, 3); });
  ExpectViolation("of different lengths");
  Group([&] { receive(1, 4); });
  ExpectViolation("ncclRecv without an ncclSend");
  nccl_->Send(memory_[0], 4, ncclFloat32, 2, communicators_[0], streams_[0]);
  ExpectViolation("there is no rank 2");
}

TEST_F(FakeNcclTest, CommunicatorsAreOfDifferentGpusAndNotUsedAfterTheirEnd) {
  ncclComm_t twice[2];
  const int devices[] = {1, 1};
  nccl_->CommInitAll(twice, 2, devices);
  ExpectViolation("a GPU twice");
  nccl_->GroupStart();
  const int others[] = {2, 3};
  nccl_->CommInitAll(twice, 2, others);
  ExpectViolation("in a group");
  nccl_->GroupEnd();
  nccl_->CommDestroy(communicators_[0]);
  Group([&] { AlltoAll(0); });
  ExpectViolation("the communicator is not there");
  nccl_->CommDestroy(communicators_[0]);
  ExpectViolation("the communicator is not there");
  TheFakeNccl().fails_later_at = 0;
  nccl_->CommDestroy(communicators_[1]);
  ExpectViolation("after a failure");
}

}  // namespace
}  // namespace rubato
