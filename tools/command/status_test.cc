#include "tools/command/status.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command/command.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

proto::JobStatus Example() {
  proto::JobStatus status;
  status.set_state("training");
  status.set_view(7);
  status.set_lineage(2);
  *status.mutable_mode() = BoundedMode(3);
  status.set_step(1234);
  status.set_samples(78976);
  status.set_epoch(1.316);
  status.set_samples_per_second(18500.4);
  status.set_shards(2);
  *status.mutable_next_mode() = SyncMode();
  proto::JobStatus::Member* member = status.add_members();
  member->set_rank(3);
  member->set_incarnation(2);
  member->set_process("host pid 12");
  member->set_clock(99);
  member->set_staleness(1.5);
  member->set_seconds_silent(0.25);
  member->set_seconds_idle(2);
  for (const int shard : {1, 0}) {
    proto::JobStatus::Server* server = status.add_servers();
    server->set_shard(shard);
    server->set_process(absl::StrCat("host pid ", 8 + shard));
    if (shard != 0) server->set_seconds_silent(0.75);
  }
  status.set_coordinator("host pid 8");
  status.add_waits("worker 3 computes clock 99, for 2.0 s");
  proto::JobStatus::Ledger* ledger = status.mutable_ledger();
  ledger->set_given(400);
  ledger->set_applied(380);
  ledger->set_partial(1);
  ledger->set_lost(2);
  ledger->set_under_way(17);
  return status;
}

TEST(StatusTest, TellsAPersonHowAJobStands) {
  EXPECT_EQ(StatusText(Example()),
            "state       training\n"
            "mode        bounded, staleness 3, switching to sync\n"
            "view        7, lineage 2, 2 shards\n"
            "progress    step 1234, epoch 1.32, 78976 samples, 18500 samples/s\n"
            "servers     shard  heard of  process\n"
            "                0   answers  host pid 8\n"
            "                1     0.8 s  host pid 9\n"
            "workers     rank     clock  staleness  heard of  computed  process\n"
            "               3        99       1.50     0.2 s     2.0 s  host pid 12\n"
            "waits       worker 3 computes clock 99, for 2.0 s\n"
            "given out   400 contributions = 380 applied + 1 partial + 2 lost + 0 left out + 17 "
            "under way\n");
}

TEST(StatusTest, TellsTheLastTest) {
  proto::JobStatus status = Example();
  proto::JobStatus::Test& test = *status.mutable_last_test();
  test.set_step(1200);
  test.set_loss(0.25);
  test.set_accuracy(0.9525);
  EXPECT_THAT(StatusText(status),
              HasSubstr(" samples/s\ntested      step 1200, loss 0.2500, accuracy 95.2 %\n"));
  for (const auto& [name, value] : {std::pair("auc", std::nan("")), {"f1", 0.87654}}) {
    test.add_others()->set_name(name);
    test.mutable_others(test.others_size() - 1)->set_value(value);
  }
  EXPECT_THAT(StatusText(status), HasSubstr(" accuracy 95.2 %, auc nan, f1 0.8765\n"));
  EXPECT_EQ(nlohmann::json::parse(StatusJson(status))["last_test"],
            nlohmann::json({{"step", 1200},
                            {"loss", 0.25},
                            {"accuracy", 0.9525},
                            {"auc", nullptr},
                            {"f1", 0.87654}}));
  test.clear_loss();
  test.clear_accuracy();
  EXPECT_THAT(StatusText(status), HasSubstr("\ntested      step 1200, auc nan, f1 0.8765\n"));
  test.clear_others();
  EXPECT_THAT(StatusText(status), HasSubstr("\ntested      step 1200, no number\n"));
}

TEST(StatusTest, TellsWhyAJobStops) {
  proto::JobStatus status = Example();
  EXPECT_FALSE(nlohmann::json::parse(StatusJson(status)).contains("stopped"));
  status.set_stopped("asked to: the rate is too high");
  EXPECT_THAT(StatusText(status), HasSubstr("training\nstopping    asked to: the rate is too"));
  EXPECT_EQ(nlohmann::json::parse(StatusJson(status))["stopped"], "asked to: the rate is too high");
}

TEST(StatusTest, TellsWhatWasTrainedInVain) {
  proto::JobStatus status = Example();
  status.set_servers_lost(1);
  status.set_samples_rolled_back(7168);
  EXPECT_THAT(StatusText(status), HasSubstr("\nrolled back 7168 samples, 1 server lost\n"));
  const auto json = nlohmann::json::parse(StatusJson(status));
  EXPECT_EQ(json["samples_rolled_back"], 7168);
  EXPECT_EQ(json["servers_lost"], 1);
}

TEST(StatusTest, TellsACoordinatorOfItsOwn) {
  proto::JobStatus status = Example();
  EXPECT_THAT(StatusText(status), Not(HasSubstr("coordinator")));
  status.set_coordinator("host pid 7");
  EXPECT_THAT(StatusText(status),
              HasSubstr("    1     0.8 s  host pid 9\ncoordinator host pid 7\n"));
  EXPECT_EQ(nlohmann::json::parse(StatusJson(status))["coordinator"], "host pid 7");
}

TEST(StatusTest, TellsWhoWasRefused) {
  proto::JobStatus status = Example();
  status.set_refused(12);
  EXPECT_THAT(StatusText(status), HasSubstr("\nrefused     12 calls, streams and messages\n"));
  EXPECT_EQ(nlohmann::json::parse(StatusJson(status))["refused"], 12);
}

TEST(StatusTest, BeforeTheStartItTellsWhoIsMissing) {
  proto::JobStatus status;
  status.set_state("waiting for the others");
  status.add_waits("the start waits for shard 1");
  EXPECT_EQ(StatusText(status),
            "state       waiting for the others\nwaits       the start waits for shard 1\n");
}

TEST(StatusTest, AProgramGetsNumbersAsNumbers) {
  proto::JobStatus status = Example();
  status.add_members()->set_rank(0);
  const auto json = nlohmann::json::parse(StatusJson(status));
  EXPECT_EQ(json["mode"], "bounded");
  EXPECT_EQ(json["staleness"], 3);
  EXPECT_EQ(json["members"][0]["rank"], 0);
  EXPECT_EQ(json["members"][1]["rank"], 3);
  EXPECT_EQ(json["samples"], 78976);
  EXPECT_TRUE(json["samples"].is_number());
  EXPECT_EQ(json["members"][1]["clock"], 99);
  EXPECT_EQ(json["ledger"]["given"], 400);
  EXPECT_EQ(json["next_mode"], "sync");
  EXPECT_EQ(json["waits"].size(), 1u);
  EXPECT_EQ(json["servers"][1]["shard"], 1);
  EXPECT_EQ(json["servers"][1]["process"], "host pid 9");
  EXPECT_FALSE(json["servers"][0].contains("seconds_silent"));
  EXPECT_EQ(json["servers"][1]["seconds_silent"], 0.75);
}

TEST(SwitchRequestTest, ReadsModes) {
  const auto bounded = SwitchRequest("bounded,staleness=3");
  RUBATO_ASSERT_OK(bounded);
  EXPECT_EQ(ModeName(bounded->mode()), "bounded, staleness 3");
  for (const std::string& other :
       {std::string("bounded, staleness=3"), ModeName(bounded->mode())}) {
    const auto same = SwitchRequest(other);
    RUBATO_ASSERT_OK(same);
    EXPECT_EQ(ModeName(same->mode()), "bounded, staleness 3") << other;
  }
  EXPECT_EQ(ModeName(SwitchRequest("sync")->mode()), "sync");
  EXPECT_EQ(ModeName(SwitchRequest("async")->mode()), "async");
  EXPECT_EQ(SwitchRequest("async")->kind(), proto::CommandRequest::KIND_SWITCH);
}

TEST(SwitchRequestTest, TellsWhatItExpected) {
  EXPECT_THAT(SwitchRequest(""), IsError(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("--mode: found nothing, expected sync")));
  for (const char* mode : {"", "fast", "BOUNDED", "staleness=3"}) {
    EXPECT_THAT(SwitchRequest(mode), IsError(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("expected sync, async or bounded")))
        << mode;
  }
  for (const char* mode :
       {"bounded", "bounded,staleness=", "bounded,staleness=-1", "bounded,staleness=1.5"}) {
    EXPECT_THAT(SwitchRequest(mode),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("--mode: staleness: found")))
        << mode;
  }
  EXPECT_THAT(SwitchRequest("bounded"), IsError(absl::StatusCode::kInvalidArgument,
                                                HasSubstr(", as in --mode bounded,staleness=3")));
  for (const char* mode : {"bounded,3", "async,", "bounded,staleness=3,x=1"}) {
    EXPECT_THAT(SwitchRequest(mode), IsError(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("expected mode or staleness")))
        << mode;
  }
  EXPECT_THAT(SwitchRequest("sync,staleness=3"),
              IsError(absl::StatusCode::kInvalidArgument,
                      "--mode: staleness: found with mode: sync, expected only with mode: "
                      "bounded"));
}

}  // namespace
}  // namespace rubato
