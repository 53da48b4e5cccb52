#include "tools/bench/published.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rubato {
namespace {

// Of 16 lanes in one direction, 128 of 130 bits: 16 and 32 GT/s (PCI Express Base Specification
// 4.0 and 5.0). Packets' heads take some of it.
constexpr double kPcie4 = 16e9 * 16 * 128 / 130 / 8, kPcie5 = 2 * kPcie4;

constexpr PublishedGpu kGpus[] = {
    // NVIDIA A100 Tensor Core GPU datasheet (2021), SXM, 80 GB; processors: its architecture's
    // whitepaper, table 1.
    {"a100", "NVIDIA A100 SXM 80 GB", 80, 108, 2.039e12, kPcie4, 312e12, 156e12, 19.5e12},
    // NVIDIA H100 Tensor Core GPU architecture (whitepaper v1.04, 2023), tables 2 and 3, SXM5;
    // memory: NVIDIA H100 Tensor Core GPU datasheet.
    {"h100", "NVIDIA H100 SXM 80 GB", 90, 132, 3.35e12, kPcie5, 989.4e12, 494.7e12, 66.9e12},
    // NVIDIA H200 Tensor Core GPU datasheet (2024), SXM: the same processors, other memory.
    {"h200", "NVIDIA H200 SXM", 90, 132, 4.8e12, kPcie5, 989.4e12, 494.7e12, 66.9e12},
};

}  // namespace

absl::StatusOr<PublishedGpu> FindPublishedGpu(const std::string& name) {
  std::string names;
  for (const PublishedGpu& gpu : kGpus) {
    if (name == gpu.name) return gpu;
    absl::StrAppend(&names, names.empty() ? "" : ", ", gpu.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found --model-of-device ", name, ", expected one of ", names));
}

}  // namespace rubato
