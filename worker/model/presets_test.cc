// Twenty steps of training of models by name, against PyTorch's in float64; and what a step asks of
// the memory allocator.
#include "worker/model/presets.h"

#include <dlfcn.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "worker/model/model.h"
#include "worker/model/preset_trajectory.h"

namespace {
std::atomic<int64_t> allocations{0};

// Calls of `operator new`, but for those of oneDNN: it lists a call's arguments on the heap until
// the call returns.
void Count(void* caller) {
  Dl_info library;
  if (dladdr(caller, &library) && std::strstr(library.dli_fname, "libdnnl")) return;
  ++allocations;
}
}  // namespace

__attribute__((noinline)) void* operator new(size_t size) {
  Count(__builtin_return_address(0));
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void* operator new(size_t size, const std::nothrow_t&) noexcept {
  Count(__builtin_return_address(0));
  return std::malloc(size);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rubato {
namespace {

// Counts what the steps after the first allocate.
class Allocations : public Watch {
 public:
  void Before(size_t) override {
    before_ = allocations;
    in_use_ = mallinfo2().uordblks;
  }
  void After(size_t step) override {
    if (step == 0) return;
    count_ += allocations - before_;
    EXPECT_EQ(mallinfo2().uordblks, in_use_);
  }
  int64_t count() const { return count_; }

 private:
  int64_t before_ = 0, count_ = 0;
  size_t in_use_ = 0;
};

// Returns how often a step, after the first, allocated.
template <typename T>
int64_t Follow(const Golden& golden, const std::string& name, int micro_batches,
               const Tolerances& tolerances) {
  Allocations watch;
  const auto make = [](const proto::Model& model, const std::vector<int64_t>& example,
                       const Objective& objective, int64_t batch) {
    return Model::Create(model, example, objective, batch, DTypeOf<T>());
  };
  ExpectPyTorchsTrajectory<T>(golden, name, micro_batches, tolerances, make, &watch);
  return watch.count();
}

TEST(Presets, FollowPyTorchAndAStepAllocatesNothing) {
  const Golden golden("preset_trajectories.safetensors");
  for (const auto& [name, text] : golden.metadata()) {
    for (int micro_batches : {1, 2}) {
      // Batch norm's statistics are those of the micro-batch.
      if (name == "resnet20" && micro_batches > 1) continue;
      SCOPED_TRACE(absl::StrCat(name, ", ", micro_batches, " micro-batches"));
      // Where a relu's input passes 0 by less than float32 can tell, the gradient jumps; so it does
      // here for resnet20, and for PyTorch in float32 elsewhere.
      const Tolerances in_float =
          name == "resnet20" ? Tolerances{1e-4, 1e-4} : Tolerances{1e-5, 2e-6};
      EXPECT_EQ(Follow<float>(golden, name, micro_batches, in_float), 0);
      // What is written down of the end is float32.
      EXPECT_EQ(Follow<double>(golden, name, micro_batches, {1e-9, 6e-8}), 0);
    }
  }
  EXPECT_EQ(golden.metadata().size(), 4u);
}

int64_t ParametersOf(const std::string& text, absl::Span<const int64_t> shape,
                     const Objective& objective) {
  const absl::StatusOr<proto::Layout> layout = LayoutOf(ParseModel(text), shape, objective);
  RUBATO_EXPECT_OK(layout);
  int64_t count = 0;
  for (const proto::Parameter& parameter : layout->parameters()) count += SizeOf(parameter.shape());
  return count;
}

// By hand, from the published forms.
TEST(Presets, HaveTheirNumbersOfParameters) {
  EXPECT_EQ(ParametersOf("preset: PRESET_MLP", {1, 28, 28}, {10}), 535818);
  EXPECT_EQ(ParametersOf("preset: PRESET_MLP hidden: 7", {3}, {2}), 3 * 7 + 7 + 7 * 2 + 2);
  EXPECT_EQ(ParametersOf("preset: PRESET_CNN", {1, 28, 28}, {10}), 225034);
  EXPECT_EQ(ParametersOf("preset: PRESET_CNN padding: 1", {1, 28, 28}, {10}),
            320 + 18496 + (49 * 64 + 1) * 128 + 1290);
  EXPECT_EQ(ParametersOf("preset: PRESET_LENET", {1, 28, 28}, {10}), 61706);
  // torchvision's resnet18 has 11,689,512 parameters.
  EXPECT_EQ(ParametersOf("preset: PRESET_RESNET18", {3, 64, 64}, {1000}) - 2 * 4800, 11689512);
  // The paper's 0.27 million, with two projections.
  EXPECT_EQ(
      ParametersOf("preset: PRESET_RESNET20", {3, 32, 32}, {10}) - 2 * (7 * 16 + 7 * 32 + 7 * 64),
      272474);
  Objective text = {65};
  text.places = 64;
  EXPECT_EQ(ParametersOf("preset: PRESET_CHAR_GPT", {64}, text),
            65 * 128 + 64 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128 + 129 * 65);
}

// So that a model trained without goes on with, and a state_dict fits both.
TEST(Presets, DropoutDoesNotChangeNames) {
  Objective text = {11};
  text.places = 12;
  const Golden golden("preset_trajectories.safetensors");
  const std::string small = golden.metadata().at("char_gpt");
  const absl::StatusOr<proto::Layout> layout =
      LayoutOf(ParseModel(small + " dropout: 0.2"), {12}, text);
  RUBATO_ASSERT_OK(layout);
  for (const proto::Parameter& parameter : layout->parameters()) {
    Read<float>(golden, "char_gpt/", parameter);
  }
  EXPECT_EQ(layout->SerializeAsString(),
            LayoutOf(ParseModel(small), {12}, text)->SerializeAsString());
}

TEST(Presets, RefuseExamplesOfAnotherForm) {
  EXPECT_THAT(LayoutOf(ParseModel("preset: PRESET_CNN"), {13}, {2}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "model.preset: found cnn with examples of shape (13,), expected images"));
  EXPECT_THAT(
      LayoutOf(ParseModel("preset: PRESET_CHAR_GPT"), {1, 28, 28}, {10}),
      IsError(absl::StatusCode::kInvalidArgument,
              "model.preset: found char_gpt with examples of shape (1, 28, 28), expected a text"));
  EXPECT_THAT(LayoutOf(ParseModel("preset: PRESET_CNN"), {1, 8, 8}, {10}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "model.layers[5] (max_pool2d): kernel_size: found 2; expected at most 1, "
                      "what the input of shape (64, 1, 1) has"));
}

}  // namespace
}  // namespace rubato
