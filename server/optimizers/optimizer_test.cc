#include "server/optimizers/optimizer.h"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/isa.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/job/completion.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/golden.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// With the schema's defaults, as the loader sets them.
proto::Optimizer Settings(const std::string& text) {
  proto::Optimizer settings;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &settings)) << text;
  Report report;
  Complete(&settings, &report);
  RUBATO_EXPECT_OK(report.ToStatus());
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
    optimizer.Apply(update, {span, gradient_sum.subspan(begin, end - begin), spans, span});
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
  const Golden golden("optimizers.safetensors");
  const std::vector<float> initial = golden.Values<float>("parameters");
  const std::vector<float> sums = golden.Values<float>("gradient_sums");
  const size_t n = initial.size();
  const int64_t steps = sums.size() / n;
  ASSERT_EQ(steps, 50);
  double weight = 0;
  ASSERT_TRUE(absl::SimpleAtod(golden.metadata().at("weight"), &weight));
  int cases = 0;
  for (const auto& [name, text] : golden.metadata()) {
    if (name == "weight" || name == "layout" || absl::StartsWith(name, "groups/")) continue;
    ++cases;
    const Optimizer optimizer = Create(text);
    Optimizer::Update update;
    update.learning_rate = static_cast<float>(Settings(text).learning_rate());
    update.scale = static_cast<float>(1 / weight);
    const std::vector<double> expected = golden.Values<double>(name);
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
      ExpectNear(state.slots[slot], golden.Values<double>(slot_name), slot_name);
    }
  }
  EXPECT_EQ(cases, 22);
}

const char* const kRules[] = {
    "",
    "weight_decay: 0.01",
    "momentum: 0.9",
    "momentum: 0.9 weight_decay: 0.01",
    "momentum: 0.9 dampening: 0.5",
    "momentum: 0.9 nesterov: true",
    "momentum: 0.9 nesterov: true weight_decay: 0.01",
    "name: NAME_ADAM",
    "name: NAME_ADAM betas: 0.3 betas: 0.4 amsgrad: true weight_decay: 0.01",
    "name: NAME_ADAMW",
    "name: NAME_ADAGRAD",
    "name: NAME_ADAGRAD initial_accumulator_value: 0.5 lr_decay: 0.25 weight_decay: 0.01",
    "name: NAME_RMSPROP",
    "name: NAME_RMSPROP momentum: 0.9 weight_decay: 0.01",
    "name: NAME_RMSPROP centered: true alpha: 0.3",
    "name: NAME_RMSPROP centered: true momentum: 0.9",
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
    optimizer.Apply(update, {parameters, sum, slots, absl::MakeSpan(sum)});
    EXPECT_EQ(sum, in_place.parameters) << rule;
    EXPECT_EQ(over_sum.slots, in_place.slots) << rule;
  }
}

// As a block's are that somebody still reads.
TEST(OptimizerTest, SlotsMayBeWrittenElsewhere) {
  for (const char* rule : kRules) {
    const Optimizer optimizer = Create(rule);
    const size_t slots = optimizer.slots().size();
    State in_place(optimizer, RandomFloats(1, 501));
    State elsewhere = in_place;
    for (int64_t step = 0; step < 3; ++step) {
      const Optimizer::Update update = {0.05f, 0.25f, step};
      const std::vector<float> sum = RandomFloats(Key(2, step), 501);
      in_place.Apply(optimizer, update, sum);

      const std::vector<std::vector<float>> before = elsewhere.slots;
      std::vector<std::vector<float>> after(slots, std::vector<float>(501, std::nanf("")));
      std::vector<absl::Span<float>> to;
      std::vector<const float*> from;
      for (size_t i = 0; i < slots; ++i) {
        to.push_back(absl::MakeSpan(after[i]));
        from.push_back(elsewhere.slots[i].data());
      }
      const absl::Span<float> parameters = absl::MakeSpan(elsewhere.parameters);
      optimizer.Apply(update, {parameters, sum, to, parameters, from});
      EXPECT_EQ(elsewhere.slots, before) << rule;
      EXPECT_EQ(elsewhere.parameters, in_place.parameters) << rule;
      EXPECT_EQ(after, in_place.slots) << rule;
      elsewhere.slots = after;
    }
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

// A steady gradient's deviation from its average is 0, of which rounding must not make a root of
// something negative.
TEST(OptimizerTest, CenteredRmsPropBearsASteadyGradient) {
  const Optimizer optimizer = Create("name: NAME_RMSPROP centered: true alpha: 0.5 eps: 1");
  State state(optimizer, RandomFloats(1, 257));
  const std::vector<float> sum = RandomFloats(2, 257);
  for (int64_t step = 0; step < 200; ++step) state.Apply(optimizer, {0.5f, 1 / 3.0f, step}, sum);
  const std::vector<float> before = state.parameters;
  state.Apply(optimizer, {0.5f, 1 / 3.0f, 200}, sum);
  for (size_t i = 0; i < sum.size(); ++i) {
    // eps alone is left to divide by, but for the root of a rounding error.
    EXPECT_NEAR(before[i] - state.parameters[i], 0.5f * sum[i] / 3, 1e-3f) << i;
  }
}

// Parameters that never had a gradient, such as those of pixels that are always 0.
TEST(OptimizerTest, WithoutAGradientNothingMoves) {
  for (const char* rule :
       {"", "momentum: 0.9", "name: NAME_ADAM amsgrad: true", "name: NAME_ADAMW weight_decay: 0",
        "name: NAME_ADAGRAD eps: 1e-30", "name: NAME_RMSPROP centered: true momentum: 0.5"}) {
    const Optimizer optimizer = Create(rule);
    State state(optimizer, {1, -2, 3});
    for (int64_t step = 0; step < 3; ++step) state.Apply(optimizer, {0.5f, 1, step}, {0, 0, 0});
    EXPECT_THAT(state.parameters, ElementsAre(1, -2, 3)) << rule;
  }
}

// Adam's step in its limits, where the formula is short: after very many updates with one gradient
// the averages and their corrections have gone to g, g² and 1, so that a step is the learning rate:
// to within 2^-25 / (1 − β2), where an average in float32 no longer moves.
TEST(OptimizerTest, AdamsStepTendsToTheLearningRate) {
  const Optimizer optimizer = Create("name: NAME_ADAM");
  State state(optimizer, {0, 0, 0});
  const std::vector<float> sum = {3, -0.01f, 700};
  for (int64_t step = 0; step < 30000; ++step) state.Apply(optimizer, {0.25f, 0.5f, step}, sum);
  state.parameters = {0, 0, 0};
  state.Apply(optimizer, {0.25f, 0.5f, int64_t{1} << 40}, sum);
  EXPECT_NEAR(state.parameters[0], -0.25, 0.25 * 3e-5);
  EXPECT_NEAR(state.parameters[1], 0.25, 0.25 * 3e-5);
  EXPECT_NEAR(state.parameters[2], -0.25, 0.25 * 3e-5);
}

TEST(PowerTest, IsThePower) {
  EXPECT_EQ(Power(0.9, 0), 1);
  EXPECT_EQ(Power(0, 3), 0);
  EXPECT_EQ(Power(-3, 5), -243);
  EXPECT_EQ(Power(0.999, int64_t{1} << 40), 0);
  for (int64_t exponent : {1, 2, 7, 100, 12345}) {
    EXPECT_NEAR(Power(0.999, exponent), std::pow(0.999, exponent),
                std::pow(0.999, exponent) * exponent * 0x1p-52)
        << exponent;
  }
}

TEST(OptimizerTest, NamesItsSlotsAsPyTorchDoes) {
  const auto slots = [](const char* rule) { return Create(rule).slots(); };
  EXPECT_THAT(slots(""), IsEmpty());
  EXPECT_THAT(slots("momentum: 0.5"), ElementsAre("momentum_buffer"));
  EXPECT_THAT(slots("name: NAME_ADAM"), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(slots("name: NAME_ADAMW amsgrad: true"),
              ElementsAre("exp_avg", "exp_avg_sq", "max_exp_avg_sq"));
  EXPECT_THAT(slots("name: NAME_ADAGRAD"), ElementsAre("sum"));
  EXPECT_THAT(slots("name: NAME_RMSPROP"), ElementsAre("square_avg"));
  EXPECT_THAT(slots("name: NAME_RMSPROP centered: true"), ElementsAre("square_avg", "grad_avg"));
  EXPECT_THAT(slots("name: NAME_RMSPROP centered: true momentum: 0.5"),
              ElementsAre("square_avg", "momentum_buffer", "grad_avg"));
}

TEST(OptimizerTest, RefusesContradictions) {
  // Not completed: a hand-made message may lack what the loader fills in.
  const auto refuses = [](const std::string& text, auto what) {
    proto::Optimizer settings;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &settings)) << text;
    EXPECT_THAT(Optimizer::Create(settings), IsError(absl::StatusCode::kInvalidArgument, what));
  };
  refuses("nesterov: true", AllOf(HasSubstr("optimizer.nesterov"), HasSubstr("momentum 0")));
  refuses("nesterov: true momentum: 0.5 dampening: 0.25", HasSubstr("dampening 0.25; expected"));
  refuses("momentum: -1", HasSubstr("optimizer.momentum: found -1"));
  refuses("weight_decay: nan", HasSubstr("optimizer.weight_decay: found nan"));
  refuses("name: NAME_ADAM", HasSubstr("optimizer.betas: found 0 numbers, expected 2"));
  refuses("name: NAME_ADAM betas: 0.9 betas: 1", HasSubstr("optimizer.betas[1]: found 1"));
  refuses("name: NAME_ADAMW betas: nan betas: 0", HasSubstr("optimizer.betas[0]: found nan"));
  refuses("name: NAME_ADAM betas: 0.9 betas: 0.9 eps: -1", HasSubstr("optimizer.eps: found -1"));
  refuses("name: NAME_ADAGRAD lr_decay: -1", HasSubstr("optimizer.lr_decay: found -1"));
  refuses("name: NAME_ADAGRAD initial_accumulator_value: inf",
          HasSubstr("optimizer.initial_accumulator_value: found inf"));
  refuses("name: NAME_RMSPROP alpha: 1", HasSubstr("optimizer.alpha: found 1"));
  refuses("name: NAME_RMSPROP eps: -1", HasSubstr("optimizer.eps: found -1"));
}

}  // namespace
}  // namespace rubato
