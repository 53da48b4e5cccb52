// GPUs that are only described to cuDNN, for tests: it makes plans for them, compiled, over a
// driver that has none (fake_driver.cc).
#ifndef RUBATO_TENSOR_CUDA_DESCRIBED_GPUS_H_
#define RUBATO_TENSOR_CUDA_DESCRIBED_GPUS_H_

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cudnn_graph.h"
#include "tensor/cuda/recorded_cudnn.h"

namespace rubato {

// What cuDNN knows of a GPU (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
struct DescribedGpu {
  const char* name;
  int version, processors, threads, blocks;
  int64_t shared, cache, memory;
};
inline const std::vector<DescribedGpu> kDescribedGpus = {
    {"NVIDIA A100-SXM4-80GB", 800, 108, 2048, 32, 166912, 41943040, 85899345920},
    {"NVIDIA H100 80GB HBM3", 900, 132, 2048, 32, 232448, 52428800, 85899345920},
    {"NVIDIA B200", 1000, 148, 2048, 32, 232448, 132644864, 191503138816},
    {"NVIDIA GeForce RTX 5090", 1200, 170, 1536, 24, 101376, 100663296, 34359738368},
};
inline const DescribedGpu& kDescribedH100 = kDescribedGpus[1];

inline std::string TextOf(const DescribedGpu& gpu) {
  return absl::StrCat(
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], )",
      R"("regsPerBlock": 65536, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, )",
      R"("reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, )",
      R"("maxThreadsPerBlock": 1024, "pciDeviceId": 0, "isTccDriver": 0, )",
      R"("supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, )",
      R"("driverVer": 13000, "cudaDeviceId": 0, "deviceName": ")", gpu.name, R"(", "deviceVer": )",
      gpu.version, R"(, "multiProcessorCount": )", gpu.processors, R"(, "maxThreadsPerSM": )",
      gpu.threads, R"(, "maxCtasPerSM": )", gpu.blocks, R"(, "maxSharedMemoryPerBlockOptin": )",
      gpu.shared, R"(, "l2CacheSize": )", gpu.cache, R"(, "totalGlobalMem": )", gpu.memory, "}");
}

// The cuDNN that is installed, with its calls recorded; skipped where there is none.
class DescribedGpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string driver =
        absl::StrCat(std::getenv("TEST_SRCDIR"), "/", std::getenv("TEST_WORKSPACE"),
                     "/tensor/cuda/libcuda.so.1");
    ASSERT_NE(dlopen(driver.c_str(), RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    absl::StatusOr<std::shared_ptr<const Cudnn>> cudnn = Cudnn::Open();
    if (!cudnn.ok()) GTEST_SKIP() << cudnn.status().message();
    cudnn_ = *std::move(cudnn);
    recorded_ = std::make_unique<RecordedCudnn>(*cudnn_);
  }

  CudnnTarget TargetOf(const DescribedGpu& gpu) {
    described_.push_back(std::make_unique<CudnnDescriptors>(cudnn_.get()));
    CudnnDescriptors& all = *described_.back();
    CudnnTarget target;
    target.major = gpu.version / 100;
    target.properties = all.Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    const std::string text = TextOf(gpu);
    all.Set(target.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            static_cast<int64_t>(text.size()), text.data());
    all.Finalize(target.properties, "a GPU's description");
    RUBATO_EXPECT_OK(all.status());
    return target;
  }

  std::shared_ptr<const Cudnn> cudnn_;
  std::unique_ptr<RecordedCudnn> recorded_;
  std::vector<std::unique_ptr<CudnnDescriptors>> described_;
};

// Of a library of cuDNN's work.
template <typename Library>
class LibraryOnDescribedGpusTest : public DescribedGpusTest {
 protected:
  static constexpr int64_t kAny = int64_t{1} << 60;  // bytes of workspace

  std::unique_ptr<Library> For(const DescribedGpu& gpu) {
    return std::make_unique<Library>(recorded_->functions(), TargetOf(gpu));
  }
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_DESCRIBED_GPUS_H_
