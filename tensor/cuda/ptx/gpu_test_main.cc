// The main function of tests that run on GPUs, where the GPU is the runtime of fake_cuda.h and
// kernels are run as the PTX that nvcc made of them. What the tests do on an emulated GPU is left
// out: they do it elsewhere.
#include <cstdint>
#include <cstdio>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tensor/cuda/ptx/embedded_kernels.h"

int main(int argc, char** argv) {
  testing::GTEST_FLAG(filter) = "Gpu/*:Conformance/Gpu.*";
  testing::InitGoogleTest(&argc, argv);
  auto kernels = rubato::ptx::EmbeddedKernels::Read();
  if (absl::IsUnavailable(kernels.status())) {
    std::printf("[  SKIPPED ] %s\n", std::string(kernels.status().message()).c_str());
    return 0;
  }
  if (!kernels.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(kernels.status().message()).c_str());
    return 1;
  }
  rubato::TheFakeCuda().copies_all_host = true;
  rubato::TheFakeCuda().prepares = [&kernels](const rubato::FakeLaunch& launch) {
    return (*kernels)->Prepare(launch);
  };
  const int result = RUN_ALL_TESTS();
  std::printf("%lld instructions of PTX were run\n",
              static_cast<long long>((*kernels)->executed()));
  rubato::TheFakeCuda().copies_all_host = true;
  rubato::TheFakeCuda().prepares = nullptr;
  return result;
}
