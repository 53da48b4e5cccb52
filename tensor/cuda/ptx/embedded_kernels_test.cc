// The kernels that ship: all of them are understood, and harm to one does not pass unseen.
#include "tensor/cuda/ptx/embedded_kernels.h"

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/fake_cuda.h"

namespace rubato::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EmbeddedKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto texts = EmbeddedKernels::Texts();
    if (absl::IsUnavailable(texts.status())) GTEST_SKIP() << texts.status();
    RUBATO_ASSERT_OK(texts);
    ASSERT_EQ(texts->size(), 1u);
    text_ = texts->front();
  }
  void TearDown() override { TheFakeCuda() = FakeCuda(); }

  // The text of the kernel whose name has `part`, as a module of its own.
  std::string Alone(const std::string& part) const {
    const size_t body = text_.find(".visible .entry"), name = text_.find(part);
    const size_t begin = text_.rfind(".visible .entry", name);
    const size_t end = text_.find(".visible .entry", name);
    return text_.substr(0, body) + text_.substr(begin, end - begin);
  }

  std::string text_;
};

TEST_F(EmbeddedKernelsTest, UnderstandsAllThatShip) {
  const auto kernels = EmbeddedKernels::Create({text_});
  RUBATO_ASSERT_OK(kernels);
  EXPECT_GT((*kernels)->Summarize().kernels, 100);
  for (const KernelText& kernel : (*kernels)->modules()[0].kernels) {
    RUBATO_EXPECT_OK((*kernels)->Find(kernel.name));
  }
  EXPECT_THAT((*kernels)->Find("another"),
              IsError(absl::StatusCode::kNotFound, HasSubstr("another")));
}

// What nvcc compiles for, but for the architecture itself: two forms of each kernel, of which the
// tests on PTX run both.
TEST_F(EmbeddedKernelsTest, FourArchitecturesHaveTwoFormsOfCode) {
  const auto instructions = [](const std::string& text) {
    const absl::StatusOr<ModuleText> module = ReadModule(text);
    RUBATO_EXPECT_OK(module);
    std::map<std::string, std::string> kernels;
    for (const KernelText& kernel : module->kernels) {
      std::string& all = kernels[kernel.name];
      for (const InstructionText& i : kernel.instructions) {
        absl::StrAppend(&all, i.guard, " ", i.opcode, " ", absl::StrJoin(i.operands, ","), "\n");
      }
    }
    return kernels;
  };
  const auto of = [&](const char* architecture) {
    std::ifstream file(absl::StrCat("tensor/cuda/gpu_kernels_cu.", architecture, ".ptx"));
    return instructions(std::string(std::istreambuf_iterator<char>(file), {}));
  };
  EXPECT_TRUE(of("80") == instructions(text_));
  EXPECT_TRUE(of("120") == of("100"));
  EXPECT_EQ(of("100").size(), of("80").size());
}

// Column sums of small whole numbers: what is found, or nothing if the kernel did what it must not.
absl::StatusOr<std::vector<float>> ColumnSums(const std::string& text) {
  constexpr int64_t kRows = 16 * (8 + 7), kColumns = 42;
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<EmbeddedKernels> kernels,
                          EmbeddedKernels::Create({text}));
  absl::Status status;
  TheFakeCuda() = FakeCuda();
  TheFakeCuda().copies_all_host = true;
  TheFakeCuda().prepares = [&](const FakeLaunch& launch) -> FakeWork {
    return [&status, work = kernels->Prepare(launch)] {
      if (work() != cudaSuccess) status = absl::InternalError("a fault");
      return cudaSuccess;
    };
  };
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          OpenGpu(0, ProductPrecision::kFloat32));
  const auto take = [&](Shape shape) {
    return TensorRef::At(*device->Allocate(4 * SizeOf(shape)), DType::kFloat32, shape);
  };
  std::vector<float> values(kRows * kColumns), sums(kColumns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
  const TensorRef x = take({kRows, kColumns}), y = take({kColumns});
  device->Upload(Stream::kCompute, values.data(), const_cast<void*>(x.address()), 4 * x.size());
  device->kernels().ColumnSums(x, y);
  device->Download(Stream::kCompute, y.address(), sums.data(), 4 * y.size());
  RUBATO_RETURN_IF_ERROR(status);
  return sums;
}

// Barriers, additions and the addresses of shared memory are taken away, or changed, one at a time.
TEST_F(EmbeddedKernelsTest, HarmToAKernelIsSeen) {
  const std::string text = Alone("SumColumnsINS_11elementwise6ColumnIfEELi1EEEEEvT_");
  const auto expected = ColumnSums(text);
  RUBATO_ASSERT_OK(expected);
  int harms = 0;
  // The lines where a change passes unseen.
  const auto harm = [&](const std::string& from, const std::string& to) {
    std::vector<std::string> unseen;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1)) {
      std::string harmed = text;
      harmed.replace(at, from.size(), to);
      const auto found = ColumnSums(harmed);
      if (found.ok() && *found == *expected) unseen.push_back(harmed.substr(at - 40, 80));
      ++harms;
    }
    return unseen;
  };
  // But for the last, behind which nothing is.
  EXPECT_THAT(harm("bar.sync 0;", ""), ElementsAre(HasSubstr("ret;")));
  EXPECT_THAT(harm("shared.f32 [%r5]", "shared.f32 [%r5+4]"), IsEmpty());
  // But for that of an eighth row where there are less.
  EXPECT_THAT(harm("add.f32", "sub.f32"), SizeIs(1));
  EXPECT_GT(harms, 20);
}

}  // namespace
}  // namespace rubato::ptx
