#include "tensor/cuda/no_gpu.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(WhyNoGpu, TellsAnOldDriverFromNone) {
  NoGpu found;
  found.build = 13010;
  found.error = "CUDA driver version is insufficient for CUDA runtime version";
  found.kind = NoGpu::kNoDriver;
  EXPECT_EQ(WhyNoGpu(found),
            "there is no GPU: CUDA driver version is insufficient for CUDA runtime version (no "
            "driver is installed; this build wants one for CUDA 13.0 or later)");
  found.driver = 12040;
  EXPECT_EQ(WhyNoGpu(found),
            "the GPU's driver is too old: it is for CUDA 12.4, and this build wants one for CUDA "
            "13.0 or later");
}

TEST(WhyNoGpu, SaysWhatIsVisible) {
  NoGpu found;
  found.build = 13000;
  found.driver = 13010;
  EXPECT_EQ(WhyNoGpu(found),
            "there is no GPU: none is visible (the driver is for CUDA 13.1; this build wants one "
            "for CUDA 13.0 or later)");
  found.error = "no CUDA-capable device is detected";
  found.driver_error = "unknown error";
  EXPECT_EQ(WhyNoGpu(found),
            "there is no GPU: no CUDA-capable device is detected (the driver's version is not "
            "known: unknown error; this build wants one for CUDA 13.0 or later)");
}

TEST(WhyNoGpu, DoesNotDenyGpusThatDoNotWork) {
  NoGpu found;
  found.build = 13000;
  found.driver = 13000;
  found.error = "system not yet initialized";
  found.kind = NoGpu::kOther;
  EXPECT_EQ(
      WhyNoGpu(found),
      "the GPUs cannot be used: system not yet initialized (the driver is for CUDA 13.0; this "
      "build wants one for CUDA 13.0 or later)");
}

}  // namespace
}  // namespace rubato
