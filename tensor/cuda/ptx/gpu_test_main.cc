// The main function of tests that run on GPUs, where the GPU is the runtime of fake_cuda.h and
// kernels are run as the PTX that nvcc made of them. What the tests do on an emulated GPU is left
// out: they do it elsewhere.
//
//   TEST [without_cublas] [FILE.ptx...]
//
// All is run by the embedded PTX, once more where cuBLAS has no algorithms, so that kernels do its
// products, and once by the PTX of each file.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/fake_cudnn.h"
#include "tensor/cuda/ptx/embedded_kernels.h"

namespace rubato::ptx {
namespace {

// Why nothing can be run; empty if it can.
std::string& WhyAbsent() {
  static auto* const why = new std::string;
  return *why;
}

// Takes the place of all others, so that it counts as skipped.
TEST(EmbeddedPtx, IsAbsent) { GTEST_SKIP() << WhyAbsent(); }

struct Variant {
  std::string name;
  std::vector<std::string> texts;
  bool has_cublas = true;
};

// Makes a repetition of all tests one of a variant.
class Variants : public testing::EmptyTestEventListener {
 public:
  explicit Variants(std::vector<Variant> variants) : variants_(std::move(variants)) {}

  // Whether each has run something.
  bool HaveRun() const { return have_run_; }

 private:
  void OnTestIterationStart(const testing::UnitTest&, int iteration) override {
    const Variant& variant = variants_[iteration];
    std::printf("%s\n", variant.name.c_str());
    absl::StatusOr<std::unique_ptr<EmbeddedKernels>> kernels =
        EmbeddedKernels::Create(variant.texts);
    if (!kernels.ok()) {
      ADD_FAILURE() << kernels.status();
      kernels = std::make_unique<EmbeddedKernels>();  // which has none
    }
    kernels_ = *std::move(kernels);
    TheFakeCublas().heuristic =
        variant.has_cublas ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    TheFakeCudnn().is_there = true;
    TheFakeCuda().copies_all_host = true;
    TheFakeCuda().prepares = [this](const FakeLaunch& launch) { return kernels_->Prepare(launch); };
  }

  void OnTestIterationEnd(const testing::UnitTest&, int) override {
    const EmbeddedKernels::Summary ran = kernels_->Summarize();
    std::printf("%lld of %lld kernels were run, %lld of their %lld instructions, %lld times\n",
                static_cast<long long>(ran.kernels_run), static_cast<long long>(ran.kernels),
                static_cast<long long>(ran.instructions_run),
                static_cast<long long>(ran.instructions), static_cast<long long>(ran.executed));
    have_run_ = have_run_ && ran.executed > 0;
    TheFakeCuda().prepares = nullptr;
  }

  const std::vector<Variant> variants_;
  std::unique_ptr<EmbeddedKernels> kernels_;
  bool have_run_ = true;
};

int Main(int argc, char** argv) {
  testing::GTEST_FLAG(filter) = "Gpu/*:Conformance/Gpu.*";
  testing::InitGoogleTest(&argc, argv);
  const absl::StatusOr<std::vector<std::string>> texts = EmbeddedKernels::Texts();
  if (absl::IsUnavailable(texts.status())) {
    WhyAbsent() = std::string(texts.status().message());
    testing::GTEST_FLAG(filter) = "EmbeddedPtx.IsAbsent";
    return RUN_ALL_TESTS();
  }
  if (!texts.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(texts.status().message()).c_str());
    return 1;
  }
  std::vector<Variant> variants = {{"By the embedded PTX:", *texts}};
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "without_cublas") {
      variants.push_back({"Without cuBLAS:", *texts, false});
      continue;
    }
    std::ifstream file(argv[i]);
    variants.push_back({"By " + std::string(argument) + ":",
                        {std::string(std::istreambuf_iterator<char>(file), {})}});
  }
  testing::GTEST_FLAG(repeat) = static_cast<int>(variants.size());
  auto* const listener = new Variants(std::move(variants));
  testing::UnitTest::GetInstance()->listeners().Append(listener);
  const int result = RUN_ALL_TESTS();
  return listener->HaveRun() ? result : 1;
}

}  // namespace
}  // namespace rubato::ptx

int main(int argc, char** argv) { return rubato::ptx::Main(argc, argv); }
