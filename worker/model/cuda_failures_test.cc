// Every failure of CUDA's and cuBLAS's in a model's first steps: one sentence, and an end in order.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/run_apart.h"
#include "worker/model/model.h"
#include "worker/model/pages.h"
#include "worker/model/preset_trajectory.h"

namespace rubato {
namespace {

constexpr int kLeaks = 3;  // exit code: what failed has left something

// What a worker does until it trains, and three steps: as it comes, recorded, and the recording.
// calls: before the end, of CUDA's and of cuBLAS's.
absl::Status Train(int64_t calls[2] = nullptr) {
  constexpr int64_t kBatch = 4;
  RUBATO_RETURN_IF_ERROR(CountGpus().status());
  RUBATO_RETURN_IF_ERROR(GpuModel(1).status());
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenGpu(1, ProductPrecision::kFloat32));
  const proto::Model layers = ParseModel(
      "layers { linear { out_features: 8 } } layers { relu {} } layers { dropout { p: 0.5 } } "
      "layers { linear { out_features: 3 } }");
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          Model::Create(layers, {5}, {3}, kBatch, DType::kBFloat16,
                                        Purpose::kTraining, std::move(device)));
  const std::vector<float> features(kBatch * 5);
  const std::vector<int32_t> labels(kBatch);
  const Pages parameters(model->parameter_count()), gradient(model->parameter_count());
  const auto pins = std::make_pair(model->Pin(parameters.memory(), parameters.bytes()),
                                   model->Pin(gradient.memory(), gradient.bytes()));
  for (int i = 0; i < 3; ++i) {
    model->Gradient(ConstTensorRef(parameters.values()), features, {labels, {}}, /*key=*/1,
                    TensorRef(gradient.values()), [](int64_t) {});
  }
  if (calls != nullptr) {
    calls[0] = static_cast<int64_t>(TheFakeCuda().calls.size());
    calls[1] = static_cast<int64_t>(TheFakeCublas().calls.size());
  }
  return absl::OkStatus();
}

// Trains in a process of its own, where something fails.
Ended TrainWith(const std::function<void()>& harm) {
  return RunApart([&] {
    harm();
    const absl::Status status = Train();
    if (!status.ok()) std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
    const bool leaks = TheFakeCuda().live != 0 || TheFakeCublas().live != 0;
    return !status.ok() && leaks && !TheFakeCuda().stays ? kLeaks : status.ok() ? 0 : 1;
  });
}

// Of GPU 1, unless what failed is the question for GPUs.
void ExpectOneSentence(const Ended& ended, const std::string& call, const std::string& of) {
  EXPECT_EQ(ended.code, 1) << "3 is a leak, -1 a crash or a hang";
  EXPECT_EQ(std::count(ended.said.begin(), ended.said.end(), '\n'), 1);
  EXPECT_TRUE(absl::StartsWith(ended.said, "error: "));
  EXPECT_TRUE(absl::StrContains(ended.said, of));
  EXPECT_TRUE(call == "cudaGetDeviceCount" || absl::StrContains(ended.said, "GPU 1"));
}

class CudaFailuresTest : public ::testing::Test {
 protected:
  CudaFailuresTest() {
    TheFakeCuda() = FakeCuda();
    ResetFakeCublas();
    RUBATO_EXPECT_OK(Train(before_the_end_));
    calls_ = TheFakeCuda().calls;
    cublas_calls_ = TheFakeCublas().calls;
    EXPECT_GT(before_the_end_[0], 100);
    EXPECT_GT(before_the_end_[1], 50);
    EXPECT_EQ(TheFakeCuda().live, 0);
    EXPECT_EQ(TheFakeCublas().live, 0);
  }

  // Of a registration of the host's memory that fails in this way: whether training goes on without
  // it. By the name of each answer that CUDA's documents give, beside that of missing rights.
  static bool IsGoneWithout(const std::string& call, int error) {
    return call == "cudaHostRegister" &&
           (error == cudaErrorInvalidValue || error == cudaErrorMemoryAllocation ||
            error == cudaErrorHostMemoryAlreadyRegistered || error == cudaErrorNotSupported ||
            error == cudaErrorNotPermitted);
  }
  // Of a call of CUDA's that fails in this way: whether training goes on.
  static bool IsNoFailure(const std::string& call, int error) {
    return error == cudaErrorNotReady && call == "cudaStreamQuery";
  }
  void ExpectTold(int64_t call, int error, bool stays) {
    const Ended ended = TrainWith([&] {
      TheFakeCuda().fails_at = call;
      TheFakeCuda().error = static_cast<cudaError_t>(error);
      TheFakeCuda().stays = stays;
    });
    const std::string& name = calls_[call];
    SCOPED_TRACE(testing::Message() << name << ", call " << call << ", error " << error
                                    << (stays ? " for good" : "") << ", said: " << ended.said);
    if (call >= before_the_end_[0] || (IsNoFailure(name, error) && !stays)) {
      EXPECT_EQ(ended.code, 0) << "destructors are exempt";
      return;
    }
    if (IsGoneWithout(name, error)) {
      EXPECT_EQ(ended.code, 0);
      EXPECT_TRUE(absl::StartsWith(ended.said, "warning: "));
      EXPECT_EQ(std::count(ended.said.begin(), ended.said.end(), '\n'), 1);
      return;
    }
    const bool lacks_memory =
        error == cudaErrorMemoryAllocation && absl::StrContains(name, "Malloc");
    if (lacks_memory && stays) return ExpectOneSentence(ended, name, "");
    ExpectOneSentence(ended, name,
                      name == "cudaGetDeviceCount" ? "this build wants one for CUDA"
                      : lacks_memory               ? "no memory for"
                                                   : absl::StrCat("(cudaError", error, ")"));
  }

  int64_t before_the_end_[2];
  std::vector<std::string> calls_, cublas_calls_;
};

TEST_F(CudaFailuresTest, AreToldWhicheverCallFails) {
  for (int64_t call = 0; call < static_cast<int64_t>(calls_.size()); ++call) {
    ExpectTold(call, cudaErrorUnknown, /*stays=*/false);
    if (absl::StrContains(calls_[call], "Malloc")) {
      ExpectTold(call, cudaErrorMemoryAllocation, /*stays=*/false);
    }
  }
  const auto registers = std::find(calls_.begin(), calls_.end(), "cudaHostRegister");
  ASSERT_NE(registers, calls_.end());
  for (int error = 1; error < 1000; ++error) {
    ExpectTold(registers - calls_.begin(), error, /*stays=*/false);
  }
}

// As after a kernel's fault: nothing works any more, to the end.
TEST_F(CudaFailuresTest, AreToldIfTheyStay) {
  for (int64_t call = 0; call < static_cast<int64_t>(calls_.size()); ++call) {
    ExpectTold(call, cudaErrorIllegalAddress, /*stays=*/true);
  }
}

// All codes that there are in CUDA, and those that a later one may have: each by another call.
TEST_F(CudaFailuresTest, AreToldWhateverTheCode) {
  for (int error = 1; error < 1000; ++error) {
    ExpectTold(error * 7 % before_the_end_[0], error, /*stays=*/false);
  }
}

TEST_F(CudaFailuresTest, OfCublasAreToldWhicheverCallFails) {
  for (const cublasStatus_t error :
       {CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INVALID_VALUE,
        CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED,
        CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_LICENSE_ERROR}) {
    for (int64_t call = 0; call < static_cast<int64_t>(cublas_calls_.size()); ++call) {
      const Ended ended = TrainWith([&] {
        TheFakeCublas().fails_at = call;
        TheFakeCublas().error = error;
      });
      const std::string& name = cublas_calls_[call];
      SCOPED_TRACE(testing::Message() << name << ", call " << call << ", status " << error
                                      << ", said: " << ended.said);
      const bool refuses =
          (error == CUBLAS_STATUS_INVALID_VALUE || error == CUBLAS_STATUS_NOT_SUPPORTED) &&
          (name == "cublasLtMatmul" || name == "cublasLtMatmulAlgoGetHeuristic");
      if (call >= before_the_end_[1]) {
        EXPECT_EQ(ended.code, 0) << "destructors are exempt";
      } else if (refuses) {  // a product is done in another way, or by another algorithm
        EXPECT_EQ(ended.code, 0);
        EXPECT_TRUE(absl::StartsWith(ended.said, "warning: on GPU 1: "));
      } else {
        ExpectOneSentence(ended, name,
                          name == "cublasLtCreate" ? "cuBLAS does not start on " : "(cuBLAS)");
      }
    }
  }
}

}  // namespace
}  // namespace rubato
