#include "server/optimizer.h"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/isa.h"
#include "common/random.h"
#include "common/safetensors.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

proto::Optimizer Settings(const std::string& text) {
  proto::Optimizer settings;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &settings)) << text;
  return settings;
}

Optimizer Create(const std::string& text) {
  absl::StatusOr<Optimizer> optimizer = Optimizer::Create(Settings(text));
  EXPECT_THAT(optimizer, IsOk());
  return *std::move(optimizer);
}

std::vector<float> RandomFloats(uint64_t key, size_t n) {
  RandomStream stream(key);
  std::vector<float> values(n);
  for (float& value : values) value = stream.Uniform(-2, 2);
  return values;
}

// Numbers of tests/goldens/optimizers.safetensors, made by tools/make_optimizer_goldens.py.
class Goldens {
 public:
  Goldens() : file_(*SafetensorsReader::Open("tests/goldens/optimizers.safetensors")) {}

  const Metadata& metadata() const { return file_.metadata(); }

  std::vector<float> Floats(absl::string_view name) const { return Values<float>(name); }
  std::vector<double> Doubles(absl::string_view name) const { return Values<double>(name); }

 private:
  template <typename T>
  std::vector<T> Values(absl::string_view name) const {
    const absl::optional<size_t> tensor = file_.Find(name);
    EXPECT_TRUE(tensor.has_value()) << name;
    std::vector<T> values(file_.tensors()[*tensor].Elements());
    RUBATO_EXPECT_OK(file_.Read(
        *tensor, 0,
        absl::MakeSpan(reinterpret_cast<char*>(values.data()), values.size() * sizeof(T))));
    return values;
  }

  SafetensorsReader file_;
};

// Parameters with their slots, updated in place step by step.
struct State {
  State(const Optimizer& optimizer, std::vector<float> initial)
      : parameters(std::move(initial)),
        slots(optimizer.slots().size(), std::vector<float>(parameters.size(), 0)) {}

  // Updates the values [begin, end).
  void Apply(const Optimizer& optimizer, const Optimizer::Update& update,
             absl::Span<const float> gradient_sum, size_t begin, size_t end) {
    std::vector<absl::Span<float>> spans;
    for (auto& slot : slots) spans.push_back(absl::MakeSpan(slot).subspan(begin, end - begin));
    const absl::Span<float> span = absl::MakeSpan(parameters).subspan(begin, end - begin);
    optimizer.Apply(update, span, gradient_sum.subspan(begin, end - begin), spans, span);
  }
  void Apply(const Optimizer& optimizer, const Optimizer::Update& update,
             absl::Span<const float> gradient_sum) {
    Apply(optimizer, update, gradient_sum, 0, parameters.size());
  }

  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
};

void ExpectNear(absl::Span<const float> values, absl::Span<const double> expected,
                const std::string& what) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-6 * std::abs(expected[i])) << what << " value " << i;
  }
}

TEST(OptimizerTest, FollowsPyTorchOverFiftySteps) {
  const Goldens goldens;
  const std::vector<float> initial = goldens.Floats("parameters");
  const std::vector<float> sums = goldens.Floats("gradient_sums");
  const size_t n = initial.size();
  const int64_t steps = sums.size() / n;
  ASSERT_EQ(steps, 50);
  double weight = 0;
  ASSERT_TRUE(absl::SimpleAtod(goldens.metadata().at("weight"), &weight));
  int cases = 0;
  for (const auto& [name, text] : goldens.metadata()) {
    if (name == "weight") continue;
    ++cases;
    const Optimizer optimizer = Create(text);
    Optimizer::Update update;
    update.learning_rate = static_cast<float>(Settings(text).learning_rate());
    update.scale = static_cast<float>(1 / weight);
    const std::vector<double> expected = goldens.Doubles(name);
    State state(optimizer, initial);
    for (update.count = 0; update.count < steps; ++update.count) {
      state.Apply(optimizer, update, absl::MakeSpan(sums).subspan(update.count * n, n));
      const int kept = update.count < 2 ? update.count : update.count == steps - 1 ? 2 : -1;
      if (kept < 0) continue;
      ExpectNear(state.parameters, absl::MakeSpan(expected).subspan(kept * n, n),
                 absl::StrCat(name, " step ", update.count));
    }
    for (size_t slot = 0; slot < optimizer.slots().size(); ++slot) {
      const std::string slot_name = absl::StrCat(name, "/", optimizer.slots()[slot]);
      ExpectNear(state.slots[slot], goldens.Doubles(slot_name), slot_name);
    }
  }
  EXPECT_EQ(cases, 8);
}

const char* const kRules[] = {
    "",
    "weight_decay: 0.01",
    "momentum: 0.9",
    "momentum: 0.9 weight_decay: 0.01",
    "momentum: 0.9 dampening: 0.5",
    "momentum: 0.9 nesterov: true",
    "momentum: 0.9 nesterov: true weight_decay: 0.01",
};

std::vector<float> RunThreeSteps(const Optimizer& optimizer, size_t n, size_t cut_a, size_t cut_b) {
  State state(optimizer, RandomFloats(1, n));
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<float> sum = RandomFloats(Key(2, step), n);
    const Optimizer::Update update = {0.05f, 1 / 3.0f, step};
    state.Apply(optimizer, update, sum, 0, cut_a);
    state.Apply(optimizer, update, sum, cut_a, cut_b);
    state.Apply(optimizer, update, sum, cut_b, n);
  }
  std::vector<float> all = state.parameters;
  for (const auto& slot : state.slots) all.insert(all.end(), slot.begin(), slot.end());
  return all;
}

TEST(OptimizerTest, BitsDoNotDependOnLevelOrCut) {
  constexpr size_t kValues = 1237;
  RandomStream random(Key(9));
  for (const char* rule : kRules) {
    const Optimizer optimizer = Create(rule);
    SetIsa(Isa::kGeneric);
    const std::vector<float> expected = RunThreeSteps(optimizer, kValues, 0, kValues);
    for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
      if (isa > DetectIsa()) continue;
      SetIsa(isa);
      for (int trial = 0; trial < 20; ++trial) {
        const size_t a = random.Below(kValues);
        const size_t b = a + random.Below(kValues - a);
        EXPECT_EQ(RunThreeSteps(optimizer, kValues, a, b), expected)
            << rule << " " << IsaName(isa) << " cut at " << a << ", " << b;
      }
    }
    SetIsa(DetectIsa());
  }
}

TEST(OptimizerTest, OutMayBeTheGradientSum) {
  for (const char* rule : kRules) {
    const Optimizer optimizer = Create(rule);
    const Optimizer::Update update = {0.05f, 0.25f, 1};
    const std::vector<float> parameters = RandomFloats(1, 501);
    std::vector<float> sum = RandomFloats(2, 501);
    State in_place(optimizer, parameters);
    in_place.Apply(optimizer, update, sum);

    State over_sum(optimizer, parameters);
    std::vector<absl::Span<float>> slots;
    for (auto& slot : over_sum.slots) slots.push_back(absl::MakeSpan(slot));
    optimizer.Apply(update, parameters, sum, slots, absl::MakeSpan(sum));
    EXPECT_EQ(sum, in_place.parameters) << rule;
    EXPECT_EQ(over_sum.slots, in_place.slots) << rule;
  }
}

// As in PyTorch, whose buffer does not exist before: what lies in the slot does not enter.
TEST(OptimizerTest, FirstUpdateDoesNotReadTheMomentum) {
  const Optimizer optimizer = Create("momentum: 0.9 dampening: 0.5");
  State state(optimizer, {1, 2, 3});
  state.slots[0] = {std::nanf(""), std::nanf(""), std::nanf("")};
  state.Apply(optimizer, {0.5f, 1, 0}, {2, 4, 8});
  EXPECT_THAT(state.parameters, ElementsAre(0, 0, -1));
  EXPECT_THAT(state.slots[0], ElementsAre(2, 4, 8));
}

TEST(OptimizerTest, NamesItsSlots) {
  EXPECT_THAT(Create("").slots(), IsEmpty());
  EXPECT_THAT(Create("momentum: 0.5").slots(), ElementsAre("momentum"));
}

TEST(OptimizerTest, RefusesContradictions) {
  EXPECT_THAT(Optimizer::Create(Settings("nesterov: true")),
              IsError(absl::StatusCode::kInvalidArgument,
                      AllOf(HasSubstr("optimizer.nesterov"), HasSubstr("momentum 0"))));
  EXPECT_THAT(Optimizer::Create(Settings("nesterov: true momentum: 0.5 dampening: 0.25")),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("dampening 0.25; expected")));
  EXPECT_THAT(Optimizer::Create(Settings("momentum: -1")),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found -1")));
  EXPECT_THAT(Optimizer::Create(Settings("weight_decay: nan")),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found nan")));
}

}  // namespace
}  // namespace rubato
