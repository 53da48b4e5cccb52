#include "server/optimizers/parameter_groups.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/job/completion.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/golden.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// With the schema's defaults, as the loader sets them.
proto::Optimizer Settings(const std::string& text) {
  auto settings = Parse<proto::Optimizer>(text);
  Report report;
  Complete(&settings, &report);
  RUBATO_EXPECT_OK(report.ToStatus());
  return settings;
}

// Weights and biases of two linear layers, 3 to 4 to 2: 26 values.
proto::Layout TwoLayers() {
  return Parse<proto::Layout>(R"(parameters { name: "0.weight" shape: 4 shape: 3 }
                                 parameters { name: "0.bias" shape: 4 }
                                 parameters { name: "2.weight" shape: 2 shape: 4 }
                                 parameters { name: "2.bias" shape: 2 })");
}
constexpr int64_t kValues = 26;

std::vector<float> RandomFloats(uint64_t key, size_t n) {
  RandomStream stream(key);
  std::vector<float> values(n);
  for (float& value : values) value = stream.Uniform(-2, 2);
  return values;
}

float RateItself(double learning_rate) { return static_cast<float>(learning_rate); }

// The whole vector with its slots.
struct State {
  State(const proto::Optimizer& settings, const proto::Layout& layout, std::vector<float> initial)
      : groups(*ParameterGroups::Create(settings, layout)),
        parameters(std::move(initial)),
        slots(Optimizer::Create(settings)->slots().size(),
              std::vector<float>(parameters.size(), 0)) {}

  // One update of the whole, in blocks of the given size.
  void Apply(int64_t block, absl::FunctionRef<float(double)> rate_of, float scale, int64_t count,
             absl::Span<const float> sum) {
    const int64_t n = parameters.size();
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t size = std::min(block, n - begin);
      std::vector<absl::Span<float>> spans;
      for (auto& slot : slots) spans.push_back(absl::MakeSpan(slot).subspan(begin, size));
      const absl::Span<float> span = absl::MakeSpan(parameters).subspan(begin, size);
      GroupUpdate update{rate_of};
      update.scale = update.mean_scale = scale;
      update.count = count;
      groups.Apply({begin, begin + size}, update, {span, sum.subspan(begin, size), spans, span});
    }
  }

  ParameterGroups groups;
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
};

// Relative, but exactly where PyTorch has 0.
void ExpectNear(absl::Span<const float> values, absl::Span<const double> expected,
                const std::string& what) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-6 * std::abs(expected[i])) << what << " value " << i;
  }
}

TEST(ParameterGroupsTest, FollowPyTorchsParamGroupsOverFiftySteps) {
  const Golden golden("optimizers.safetensors");
  const auto layout = Parse<proto::Layout>(golden.metadata().at("layout"));
  const std::vector<float> initial = golden.Values<float>("parameters");
  const std::vector<float> sums = golden.Values<float>("gradient_sums");
  const size_t n = initial.size();
  ASSERT_EQ(static_cast<int64_t>(n), ValueCount(layout));
  double weight = 0;
  ASSERT_TRUE(absl::SimpleAtod(golden.metadata().at("weight"), &weight));
  int cases = 0;
  for (const auto& [name, text] : golden.metadata()) {
    if (!absl::StartsWith(name, "groups/")) continue;
    ++cases;
    const proto::Optimizer settings = Settings(text);
    State state(settings, layout, initial);
    const int64_t block = 1 + 7 * (cases % 4);  // some blocks end inside a parameter
    for (int64_t step = 0; step < 50; ++step) {
      state.Apply(block, RateItself, static_cast<float>(1 / weight), step,
                  absl::MakeSpan(sums).subspan(step * n, n));
    }
    const std::vector<double> expected = golden.Values<double>(name);
    ExpectNear(state.parameters, absl::MakeSpan(expected).last(n), name);
    const std::vector<std::string> slots = Optimizer::Create(settings)->slots();
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      const std::string slot_name = absl::StrCat(name, "/", slots[slot]);
      ExpectNear(state.slots[slot], golden.Values<double>(slot_name), slot_name);
    }
  }
  EXPECT_EQ(cases, 7);
}

TEST(ParameterGroupsTest, BitsDoNotDependOnTheBlocks) {
  for (const char* rule : {"momentum: 0.9", "name: NAME_ADAM", "name: NAME_ADAMW",
                           "name: NAME_ADAGRAD", "name: NAME_RMSPROP momentum: 0.5"}) {
    const proto::Optimizer settings =
        Settings(absl::StrCat(rule, R"( groups { match: "*.bias" weight_decay: 0.5 }
                                        groups { match: "2.*" learning_rate: 0.125 })"));
    std::vector<State> states;
    for (int64_t block : {kValues, int64_t{1}, int64_t{5}, int64_t{16}}) {
      states.emplace_back(settings, TwoLayers(), RandomFloats(1, kValues));
      for (int64_t step = 0; step < 5; ++step) {
        states.back().Apply(block, RateItself, 0.3f, step, RandomFloats(Key(2, step), kValues));
      }
      EXPECT_EQ(states.back().parameters, states[0].parameters) << rule << " blocks of " << block;
      EXPECT_EQ(states.back().slots, states[0].slots) << rule << " blocks of " << block;
    }
  }
}

// Whatever the gradient; also where the new version goes over the sum, and slots elsewhere.
TEST(ParameterGroupsTest, FrozenParametersAndSlotsKeepTheirBits) {
  const proto::Optimizer settings =
      Settings(R"(name: NAME_ADAMW groups { match: "2.weight" learning_rate: 0 })");
  const std::vector<float> initial = RandomFloats(1, kValues);
  State state(settings, TwoLayers(), initial);
  state.Apply(kValues, RateItself, 1, 0, std::vector<float>(kValues, std::nanf("")));
  for (int64_t i = 0; i < kValues; ++i) {
    const bool frozen = i >= 16 && i < 24;
    EXPECT_EQ(state.parameters[i] == initial[i], frozen) << i;
    EXPECT_EQ(state.slots[0][i] == 0 && state.slots[1][i] == 0, frozen) << i;
  }

  const ParameterGroups& groups = state.groups;
  std::vector<float> sum(10, std::nanf("")), m(10, 5), v(10, 7);
  const std::vector<absl::Span<float>> slots = {absl::MakeSpan(m), absl::MakeSpan(v)};
  const absl::Span<const float> parameters = absl::MakeSpan(initial).subspan(14, 10);
  GroupUpdate update{RateItself};
  update.count = 3;
  groups.Apply({14, 24}, update, {parameters, sum, slots, absl::MakeSpan(sum)});
  for (int i = 2; i < 10; ++i) {
    EXPECT_EQ(sum[i], parameters[i]);
    EXPECT_EQ(m[i], 5);
    EXPECT_EQ(v[i], 7);
  }
  EXPECT_TRUE(std::isnan(sum[0]) && std::isnan(sum[1]));

  const std::vector<float> m_before(10, 3), v_before(10, 4);
  const float* const before[] = {m_before.data(), v_before.data()};
  groups.Apply({14, 24}, update, {parameters, sum, slots, absl::MakeSpan(sum), before});
  for (int i = 2; i < 10; ++i) EXPECT_TRUE(m[i] == 3 && v[i] == 4) << i;
}

TEST(ParameterGroupsTest, AveragesOfStatisticsMoveByTheirWeightWhateverTheOptimizer) {
  proto::Layout layout = TwoLayers();
  proto::Parameter* buffer = layout.add_parameters();
  buffer->set_name("bn.running_mean");
  buffer->add_shape(3);
  buffer->set_average(0.25);
  const int64_t n = ValueCount(layout);
  EXPECT_EQ(n, kValues + 3);
  EXPECT_EQ(TrainableCount(layout), kValues);
  for (const char* rule : {"weight_decay: 0.5 momentum: 0.9", "name: NAME_ADAMW"}) {
    const proto::Optimizer settings =
        Settings(absl::StrCat(rule, R"( groups { match: "*" learning_rate: 0 })"));
    EXPECT_THAT(UnusedGroups(settings, layout), IsEmpty());
    State state(settings, layout, std::vector<float>(n, 8));
    // Statistics 16 over 4 samples, clipped: only the gradient is.
    std::vector<float> sum(n, 64);
    GroupUpdate update{RateItself};
    update.scale = 1e-9f;
    update.mean_scale = 0.25f;
    update.share = 0.5f;
    std::vector<absl::Span<float>> slots;
    for (auto& slot : state.slots) slots.push_back(absl::MakeSpan(slot));
    state.groups.Apply({0, n}, update,
                       {state.parameters, sum, slots, absl::MakeSpan(state.parameters)});
    // 8 + 1/4 · 1/2 · (64 / 4 − 8)
    for (int64_t i = kValues; i < n; ++i) EXPECT_EQ(state.parameters[i], 9) << rule;
    for (int64_t i = 0; i < kValues; ++i) EXPECT_EQ(state.parameters[i], 8) << rule;
    for (const auto& slot : state.slots) EXPECT_EQ(slot.back(), 0) << rule;

    // A slot of statistics goes along where slots are written elsewhere.
    const std::vector<std::vector<float>> slots_before = state.slots;
    std::vector<const float*> before;
    for (size_t i = 0; i < state.slots.size(); ++i) {
      before.push_back(slots_before[i].data());
      std::fill(state.slots[i].begin(), state.slots[i].end(), std::nanf(""));
    }
    state.groups.Apply({0, n}, update,
                       {state.parameters, sum, slots, absl::MakeSpan(state.parameters), before});
    for (const auto& slot : state.slots) EXPECT_EQ(slot.back(), 0) << rule;
  }
}

TEST(ParameterGroupsTest, TheScheduleHoldsForEachGroupsRate) {
  const proto::Optimizer settings =
      Settings(R"(learning_rate: 0.5 groups { match: "0.*" learning_rate: 0.25 })");
  State state(settings, TwoLayers(), std::vector<float>(kValues, 0));
  state.Apply(
      kValues, [](double learning_rate) { return static_cast<float>(learning_rate / 4); }, 1, 0,
      std::vector<float>(kValues, 1));
  for (int64_t i = 0; i < kValues; ++i) {
    EXPECT_EQ(state.parameters[i], i < 16 ? -0.0625f : -0.125f) << i;
  }
}

TEST(GroupsOfTest, TheFirstMatchHolds) {
  EXPECT_THAT(
      GroupsOf(Settings(R"(groups { match: "*.bias" } groups { match: "2.*" })"), TwoLayers()),
      ElementsAre(kNoGroup, 0, 1, 0));
  EXPECT_THAT(GroupsOf(Settings(""), TwoLayers()),
              ElementsAre(kNoGroup, kNoGroup, kNoGroup, kNoGroup));
}

TEST(UnusedGroupsTest, SaysWhyAGroupChangesNothing) {
  EXPECT_THAT(UnusedGroups(Settings(R"(groups { match: "*" })"), TwoLayers()), IsEmpty());
  EXPECT_THAT(
      UnusedGroups(Settings(R"(groups { match: "*.bias" } groups { match: "1.*" }
                               groups { match: "2.bias" } groups { match: "2.*" })"),
                   TwoLayers()),
      ElementsAre("optimizer.groups[1] changes nothing: no parameter matches \"1.*\"",
                  "optimizer.groups[2] changes nothing: every parameter that matches \"2.bias\" is "
                  "in a group before"));
}

TEST(ParameterGroupsTest, RefusesWrongSettings) {
  EXPECT_THAT(
      ParameterGroups::Create(Settings(R"(groups { match: "*" learning_rate: -1 })"), TwoLayers()),
      IsError(absl::StatusCode::kInvalidArgument, HasSubstr("learning_rate: found -1")));
  EXPECT_THAT(
      ParameterGroups::Create(Settings(R"(groups { match: "*" weight_decay: nan })"), TwoLayers()),
      IsError(absl::StatusCode::kInvalidArgument, HasSubstr("weight_decay: found nan")));
}

}  // namespace
}  // namespace rubato
