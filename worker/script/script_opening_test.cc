#include "worker/script/script_opening.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// What a script opens that registers this optimizer.
absl::StatusOr<ScriptOpening> OpenWith(const Json& optimizer) {
  proto::Job job;
  job.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
  int sockets[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const int memory = memfd_create("test", 0);
  EXPECT_EQ(ftruncate(memory, 3 << 12), 0);
  ScriptChannel channel(sockets[0], memory), script(sockets[1], dup(memory));
  std::thread writes([&] {  // more than a socket holds
    script.Write({{"kind", "register"},
                  {"train_samples", 10},
                  {"layout",
                   {{"parameters", Json::array({{{"name", "w"}, {"shape", {4}}}})},
                    {"optimizer", optimizer}}}});
  });
  const absl::StatusOr<ScriptOpening> opening = OpenScript(job, &channel);
  writes.join();
  return opening;
}

proto::Optimizer Opened(const Json& optimizer) {
  const absl::StatusOr<ScriptOpening> opening = OpenWith(optimizer);
  RUBATO_EXPECT_OK(opening.status());
  return opening.ok() ? opening->registration.layout().optimizer() : proto::Optimizer();
}

TEST(ScriptOpeningTest, AnOptimizerIsTheKeyOfAJobFile) {
  const proto::Optimizer found =
      Opened({{"name", "adam"},
              {"learning_rate", 0.01},
              {"schedule", {{"name", "step"}, {"every", {{"steps", 5}}}}},
              {"groups", Json::array({{{"match", "w"}, {"weight_decay", 0}}})}});
  EXPECT_EQ(found.name(), proto::Optimizer::NAME_ADAM);
  EXPECT_EQ(found.betas(1), 0.999);  // which nobody gave
  EXPECT_EQ(found.schedule().every().steps(), 5);
  EXPECT_EQ(found.groups(0).weight_decay(), 0);
}

TEST(ScriptOpeningTest, NamesMayBeThoseOfMessages) {
  const proto::Optimizer found = Opened({{"name", "NAME_ADAMW"},
                                         {"learning_rate", 1e-05},
                                         {"schedule", {{"name", "NAME_CONSTANT"}}}});
  EXPECT_EQ(found.name(), proto::Optimizer::NAME_ADAMW);
  EXPECT_EQ(found.learning_rate(), 1e-05);
}

TEST(ScriptOpeningTest, FactorsKeepTheirBits) {
  const std::vector<double> factors = {1, 1.0 / 3, 1e-300, 0};
  const proto::Optimizer found =
      Opened({{"learning_rate", 0.1},
              {"schedule", {{"name", "table"}, {"factors", factors}, {"steps_per_factor", 7}}}});
  EXPECT_EQ(
      std::vector<double>(found.schedule().factors().begin(), found.schedule().factors().end()),
      factors);
  EXPECT_EQ(found.schedule().steps_per_factor(), 7);
}

TEST(ScriptOpeningTest, MistakesAreNamed) {
  const auto table = [](Json factors) {
    return Json{{"name", "table"}, {"factors", std::move(factors)}};
  };
  const std::vector<std::pair<Json, std::string>> mistakes = {
      {{{"name", "adam"}, {"momentum", 0.9}},
       "momentum: found with name: adam, expected only with name: sgd or rmsprop"},
      {{{"momentum", 1.5}}, "momentum: found 1.5, expected a number at least 0 and below 1"},
      {{{"name", "lamb"}}, "name: found lamb, expected sgd, adam"},
      {{{"nam", "adam"}}, "nam: found an unknown key"},
      {{{"learning_rate", 0.1}, {"schedule", table({1, -1, 2})}},
       "schedule.factors: found -1, expected"},
      {{{"learning_rate", 0.1}, {"schedule", table({1, "one"})}},
       "schedule.factors: found \"one\""},
      {{{"learning_rate", 0.1}, {"schedule", table("all")}}, "schedule.factors: found no list"},
      {{{"learning_rate", 0.1}, {"schedule", table(Json(std::vector<int>(1'000'001, 1)))}},
       "schedule.factors: found 1000001, expected a list of at most 1000000: with "
       "steps_per_factor each holds for several steps"},
      {{{"learning_rate", 0.1}, {"schedule", {{"name", "cosine"}, {"factors", {1}}}}},
       "schedule.factors: found with name: cosine, expected only with name: table"},
      {{{"learning_rate", 0.1}, {"schedule", {{"name", "table"}}}},
       "schedule.factors: found nothing"},
      {"sgd", "found \"sgd\", expected a map of keys"},
  };
  for (const auto& [optimizer, expected] : mistakes) {
    const absl::Status status = OpenWith(optimizer).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the script's optimizer: " + expected));
  }
}

}  // namespace
}  // namespace rubato
