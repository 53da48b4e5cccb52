// The main function of tests that run on GPUs, where the GPU is the runtime of fake_cuda.h and
// kernels are run as the PTX that nvcc made of them. What the tests do on an emulated GPU is left
// out: they do it elsewhere. With the argument "without_cublas" its library has no algorithms, so
// that kernels do its products.
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/ptx/embedded_kernels.h"

int main(int argc, char** argv) {
  testing::GTEST_FLAG(filter) = "Gpu/*:Conformance/Gpu.*";
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::strcmp(argv[1], "without_cublas") == 0) {
    rubato::TheFakeCublas().heuristic = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto texts = rubato::ptx::EmbeddedKernels::Texts();
  if (absl::IsUnavailable(texts.status())) {
    std::printf("[  SKIPPED ] %s\n", std::string(texts.status().message()).c_str());
    return 0;
  }
  const auto kernels = texts.ok() ? rubato::ptx::EmbeddedKernels::Create(*texts) : texts.status();
  if (!kernels.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(kernels.status().message()).c_str());
    return 1;
  }
  rubato::TheFakeCuda().copies_all_host = true;
  rubato::TheFakeCuda().prepares = [&kernels](const rubato::FakeLaunch& launch) {
    return (*kernels)->Prepare(launch);
  };
  const int result = RUN_ALL_TESTS();
  const auto ran = (*kernels)->Summarize();
  std::printf("%lld of %lld kernels were run, %lld of their %lld instructions, %lld times\n",
              static_cast<long long>(ran.kernels_run), static_cast<long long>(ran.kernels),
              static_cast<long long>(ran.instructions_run),
              static_cast<long long>(ran.instructions), static_cast<long long>(ran.executed));
  rubato::TheFakeCuda().prepares = nullptr;
  return ran.executed > 0 ? result : 1;
}
