#include "worker/script/script_values.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "common/base/status_matchers.h"
#include "common/consistency/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kValues = 40, kBlock = 16, kLeaves = 2;

proto::Job MakeJob(int chunk) {
  proto::Job job;
  job.mutable_wire()->set_chunk(chunk);
  job.mutable_wire()->mutable_push()->set_codec(proto::Push::CODEC_FLOAT32);
  job.mutable_train()->set_batch_size(8);
  job.mutable_train()->set_micro_batches(kLeaves);
  return job;
}

proto::WorkerRegistration MakeRegistration() {
  proto::WorkerRegistration registration;
  registration.set_train_samples(80);
  proto::Parameter* const parameter = registration.mutable_layout()->add_parameters();
  parameter->set_name("w");
  parameter->add_shape(kValues);
  return registration;
}

// A worker, and the other end of its channel, at which the test is the script.
class ScriptValuesTest : public ::testing::Test {
 protected:
  // Blocks of `chunk` bytes.
  explicit ScriptValuesTest(int chunk = kBlock * sizeof(float), ScriptAbilities abilities = {}) {
    view_.set_leaves(kLeaves);
    view_.set_samples_per_epoch(80);
    view_.set_origin_unit(1);
    view_.set_origin_samples(4);
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const int memory = memfd_create("test", 0);
    EXPECT_EQ(ftruncate(memory, 3 << 12), 0);
    channel_ = std::make_unique<ScriptChannel>(sockets[0], memory);
    script_ = std::make_unique<ScriptChannel>(sockets[1], dup(memory));
    RUBATO_EXPECT_OK(channel_->Map(kValues));
    RUBATO_EXPECT_OK(script_->Map(kValues));
    values_ = std::make_unique<ScriptValues>(
        MakeJob(chunk), MakeRegistration(), abilities, channel_.get(),
        ScriptValues::Callbacks{[this](const auto& result) { tested_.push_back(result); },
                                [this](const auto&) { ++left_; }});
    RUBATO_EXPECT_OK(values_->OnJoin());
    values_->OnView(view_, kValues);
  }

  // Of the micro-batches `node` of step 0, while `script` is another thread.
  absl::Status Compute(Range node, const std::function<void(int64_t block)>& on_push,
                       const std::function<void()>& script,
                       const SampleSchedule& schedule = SampleSchedule(80, 8, kLeaves)) {
    std::thread thread(script);
    const std::unique_ptr<const Policy> policy = BuiltInPolicy(view_);
    proto::Progress progress;
    const auto push = [&](int64_t block, const Payload& payload) {
      const absl::Span<const float> sums = payload.values();
      pushed_ = sums.data();
      if (is_slow_) sent_.push_back(payload);
      const Range values = values_->space().BlockValues(block);
      std::copy(sums.begin(), sums.end(), sums_.begin() + values.begin);
      on_push(block);
    };
    const absl::Status status = values_->contributions().Compute(
        schedule, 0, node, *policy, parameters_, push, &progress, [](Range) { return true; });
    thread.join();
    return status;
  }

  // The script asks, and reads the answer.
  nlohmann::json Ask() {
    script_->Write({{"kind", "next"}});
    absl::StatusOr<nlohmann::json> answer = script_->Read();
    RUBATO_EXPECT_OK(answer.status());
    return *std::move(answer);
  }
  // The script gets a micro-batch, and fills its gradient with `value`.
  int64_t Fill(float value) {
    const nlohmann::json work = Ask();
    for (float& to : script_->gradient(work["gradient"])) to = value;
    return work["id"];
  }
  void Say(const char* kind, int64_t id, int64_t begin, int64_t weight) {
    script_->Write({{"kind", kind}, {"id", id}, {"begin", begin}, {"weight", weight}});
  }
  // What a script is told of both micro-batches of step 0, which it gives.
  std::vector<nlohmann::json> ComputeTwo() {
    std::vector<nlohmann::json> works;
    const auto script = [&] {
      for (int i = 0; i < 2; ++i) {
        const nlohmann::json work = Ask();
        works.push_back(work);
        script_->Write({{"kind", "give"}, {"id", works.back()["id"]}});
      }
    };
    RUBATO_EXPECT_OK(Compute(
        {0, 2}, [](int64_t) {}, script));
    return works;
  }

  proto::View view_;
  std::atomic<int> left_{0};  // times that the script has said that it leaves
  std::unique_ptr<ScriptChannel> channel_, script_;
  std::unique_ptr<ScriptValues> values_;
  const std::vector<float> zeros_ = std::vector<float>(kValues);
  absl::Span<const float> parameters_ = zeros_;  // of Compute
  std::vector<float> sums_ = std::vector<float>(kValues);
  std::vector<proto::EvaluationResult> tested_;
  const float* pushed_ = nullptr;  // where the last block lay
  bool is_slow_ = false;           // a stream, which keeps what is pushed
  std::vector<Payload> sent_;
};

// Blocks that are large enough to be lent.
class LendingScriptValuesTest : public ScriptValuesTest {
 protected:
  LendingScriptValuesTest() : ScriptValuesTest(8192) {}

  // What `work` lends, as another process opens it; the worker's arena has it at `offset`.
  float* Open(const nlohmann::json& work, uint64_t* offset) {
    const std::vector<std::string> parts = absl::StrSplit(std::string(work["lent"]["arena"]), ' ');
    *offset = work["lent"]["offset"];
    const int file = open(absl::StrCat("/proc/", parts[0], "/fd/", parts[1]).c_str(), O_RDWR);
    void* const place = mmap(nullptr, kValues * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED,
                             file, static_cast<off_t>(*offset));
    close(file);
    EXPECT_NE(place, MAP_FAILED);
    return static_cast<float*>(place);
  }
};

TEST_F(ScriptValuesTest, WholeBlocksOfTheLastMicroBatchLeaveBeforeItIsGiven) {
  std::vector<int64_t> pushed;
  absl::Notification upper, all_but_the_lowest;
  const auto on_push = [&](int64_t block) {
    pushed.push_back(block);
    if (block == 2) upper.Notify();
    if (block == 1) all_but_the_lowest.Notify();
  };
  RUBATO_EXPECT_OK(Compute({0, 2}, on_push, [&] {
    const int64_t first = Fill(1);
    Say("ready", first, 16, 4);  // its sum with the other is not known yet
    Say("give", first, 0, 4);
    const int64_t second = Fill(2);
    EXPECT_TRUE(pushed.empty());
    Say("ready", second, 20, 4);  // block 1 is not whole
    upper.WaitForNotification();
    for (float& value : script_->gradient(second % 2).subspan(0, 20)) value = 5;
    Say("ready", second, 16, 4);
    all_but_the_lowest.WaitForNotification();
    EXPECT_EQ(pushed, (std::vector<int64_t>{2, 1}));
    Say("give", second, 0, 4);
  }));
  EXPECT_EQ(pushed, (std::vector<int64_t>{2, 1, 0}));
  std::vector<float> expected(kValues, 3);
  std::fill_n(expected.begin(), 20, 6.0f);
  EXPECT_EQ(sums_, expected);
}

TEST_F(ScriptValuesTest, AnotherWeightThanWasSaidIsRefused) {
  absl::Notification left;  // else the worker may hear of the last weight alone
  const absl::Status status = Compute(
      {0, 1},
      [&](int64_t block) {
        if (block == 1) left.Notify();
      },
      [&] {
        const int64_t id = Fill(1);
        Say("ready", id, 16, 4);
        left.WaitForNotification();
        Say("give", id, 0, 3);
      });
  EXPECT_THAT(status, IsError(absl::StatusCode::kInvalidArgument,
                              HasSubstr("found a micro-batch of weight 3, expected 4")));
}

// The worker has joined anew, and the script had not come to answer.
TEST_F(ScriptValuesTest, AnAnswerToAnEarlierTestIsNotToldAsTheNextOnes) {
  values_->StartTest(3, std::vector<float>(kValues), /*is_final=*/false);
  script_->Write({{"kind", "tested"}, {"loss", 9}});
  RUBATO_EXPECT_OK(Compute(
      {0, 1}, [](int64_t) {},
      [&] {
        const nlohmann::json work = Ask();
        EXPECT_TRUE(work["tests"]);
        script_->Write({{"kind", "tested"},
                        {"loss", 2},
                        {"figures", {{"f1", 0.25}, {"auc", "nan"}, {"unknown", nullptr}}}});
        script_->Write({{"kind", "give"}, {"id", work["id"]}});
      }));
  ASSERT_EQ(tested_.size(), 1u);
  EXPECT_EQ(tested_[0].unit(), 3);
  EXPECT_EQ(tested_[0].loss_sum(), 2);
  ASSERT_EQ(tested_[0].others_size(), 2);
  EXPECT_EQ(tested_[0].others(0).name(), "auc");
  EXPECT_TRUE(std::isnan(tested_[0].others(0).value()));
  EXPECT_EQ(tested_[0].others(1).name(), "f1");
  EXPECT_EQ(tested_[0].others(1).value(), 0.25);
}

TEST_F(ScriptValuesTest, AScriptThatEndsInTheMidstOfAMicroBatchIsGone) {
  absl::Notification left;
  const absl::Status status = Compute(
      {0, 1},
      [&](int64_t block) {
        if (block == 2) left.Notify();
      },
      [&] {
        Say("ready", Fill(1), 32, 4);
        left.WaitForNotification();
        script_.reset();
      });
  EXPECT_THAT(status, IsError(absl::StatusCode::kUnavailable, HasSubstr("ended")));
}

// Else the coordinator would wait for it as long as a test may stand still.
TEST_F(ScriptValuesTest, ATestOfAScriptThatHasGoneIsOverAtOnce) {
  EXPECT_THAT(Compute(
                  {0, 1}, [](int64_t) {}, [&] { script_.reset(); }),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("ended")));
  for (const bool is_final : {false, true}) {
    tested_.clear();
    values_->StartTest(1, std::vector<float>(kValues), is_final);
    ASSERT_EQ(tested_.size(), 1u);
    EXPECT_EQ(tested_[0].unit(), 1);
    EXPECT_EQ(tested_[0].is_final(), is_final);
    EXPECT_EQ(tested_[0].samples(), 0) << "it is not tested";
  }
}

// Nor need it know a loss.
TEST_F(ScriptValuesTest, ATestTellsWhatItKnows) {
  for (const bool tells : {true, false}) {
    tested_.clear();
    values_->StartTest(3, std::vector<float>(kValues), /*is_final=*/false);
    RUBATO_EXPECT_OK(Compute(
        {0, 1}, [](int64_t) {},
        [&] {
          const nlohmann::json work = Ask();
          nlohmann::json tested = {{"kind", "tested"}, {"loss", nullptr}, {"figures", 7}};
          if (tells) tested["figures"] = {{"f1", 0.25}};
          script_->Write(tested);
          script_->Write({{"kind", "give"}, {"id", work["id"]}});
        }));
    ASSERT_EQ(tested_.size(), 1u);
    EXPECT_FALSE(tested_[0].has_loss_sum());
    EXPECT_EQ(tested_[0].judged(), tells ? 1 : 0);
    EXPECT_EQ(tested_[0].others_size(), tells ? 1 : 0);
  }
}

// Where pulled parameters may be filled in, and what the script finds there.
class RegionScriptValuesTest : public ScriptValuesTest {
 protected:
  // As a thread that brings the first block of a pull.
  bool Takes() { return !values_->reader_memory()().empty(); }
  // The script asks, and the worker has heard it.
  void AskAndBeHeard() {
    const int before = left_;
    script_->Write({{"kind", "next"}});
    script_->Write({{"kind", "leave"}});
    while (left_ == before) sched_yield();
  }
  // Computes one micro-batch of step 0 with these parameters; returns what the script was told.
  nlohmann::json ComputeOne(absl::Span<const float> parameters) {
    parameters_ = parameters;
    nlohmann::json work;
    RUBATO_EXPECT_OK(Compute(
        {0, 1}, [](int64_t) {},
        [&] {
          work = Ask();
          EXPECT_THAT(script_->parameters(), ElementsAreArray(parameters));
          EXPECT_FALSE(Takes());
          Say("give", work["id"], 0, 4);
        }));
    EXPECT_FALSE(Takes()) << "it has not asked again";
    return work;
  }

  // What the script has asked for before: parameters that are new to it, all of that value.
  void ComputeAskedFor(float value) {
    RUBATO_EXPECT_OK(Compute(
        {0, 1}, [](int64_t) {},
        [&] {
          const absl::StatusOr<nlohmann::json> work = script_->Read();
          RUBATO_ASSERT_OK(work);
          EXPECT_EQ((*work)["new"], true);
          EXPECT_THAT(script_->parameters(), Each(value));
          Say("give", (*work)["id"], 0, 4);
        }));
  }

  const std::vector<float> ones_ = std::vector<float>(kValues, 1.0f);
};

TEST_F(RegionScriptValuesTest, MayBeFilledOnlyWhileTheScriptAwaitsWhatIsNext) {
  EXPECT_FALSE(Takes());
  EXPECT_EQ(ComputeOne(ones_)["new"], true);
  for (int i = 2; i < 5; ++i) {
    AskAndBeHeard();
    const absl::Span<float> region = values_->reader_memory()();
    ASSERT_FALSE(region.empty());
    std::fill(region.begin(), region.end(), static_cast<float>(i));
    parameters_ = region;
    ComputeAskedFor(static_cast<float>(i));
  }
}

TEST_F(RegionScriptValuesTest, HasWhatTheJobBeginsWithUntilSomethingIsComputed) {
  std::fill_n(script_->parameters().begin(), kValues, 7.0f);
  AskAndBeHeard();
  EXPECT_FALSE(Takes());
  EXPECT_THAT(values_->initial(), Each(7.0f));
}

// The pull that had begun to fill it was interrupted; the step's parameters have been pulled anew.
TEST_F(RegionScriptValuesTest, ThatIsFilledInPartIsNotWhatTheScriptHas) {
  EXPECT_EQ(ComputeOne(ones_)["new"], true);
  EXPECT_EQ(ComputeOne(ones_)["new"], false);
  values_->OnView(view_, kValues);
  EXPECT_EQ(ComputeOne(ones_)["new"], true);
  EXPECT_EQ(ComputeOne(ones_)["new"], false);
  AskAndBeHeard();
  std::fill_n(values_->reader_memory()().begin(), kValues / 2, 9.0f);
  parameters_ = ones_;
  ComputeAskedFor(1.0f);
}

TEST_F(RegionScriptValuesTest, HasTheFinalParametersThoughItWasFilledInPart) {
  for (const bool is_filled : {true, false}) {
    ComputeOne(zeros_);
    AskAndBeHeard();
    if (is_filled) std::fill_n(values_->reader_memory()().begin(), kValues / 2, 9.0f);
    values_->StartTest(3, ones_, /*is_final=*/true);
    EXPECT_FALSE(Takes()) << "the script tests them";
    const absl::StatusOr<nlohmann::json> final = script_->Read();
    RUBATO_ASSERT_OK(final);
    EXPECT_EQ((*final)["kind"], "final");
    EXPECT_EQ((*final)["samples_before"], 4 + 2 * 8);
    EXPECT_THAT(script_->parameters(), Each(1.0f));
    // The job has gone back to that step.
    EXPECT_EQ(ComputeOne(zeros_)["new"], true);
    values_->EndTests();
  }
}

TEST_F(RegionScriptValuesTest, IsTheScriptsUntilItHasTakenTheFinalParameters) {
  for (const bool is_filled : {true, false}) {
    ComputeOne(zeros_);
    AskAndBeHeard();
    absl::Span<const float> final = ones_;
    if (is_filled) {
      const absl::Span<float> region = values_->reader_memory()();
      std::copy(ones_.begin(), ones_.end(), region.begin());
      final = region;
    }
    values_->KeepFinal(3, final);
    EXPECT_FALSE(Takes());
    const absl::StatusOr<nlohmann::json> frame = script_->Read();
    RUBATO_ASSERT_OK(frame);
    EXPECT_EQ((*frame)["tests"], false);
    EXPECT_EQ((*frame)["samples_before"], 4 + 2 * 8);
    EXPECT_THAT(script_->gradient(0), Each(1.0f));
    EXPECT_EQ(ComputeOne(zeros_)["new"], true);
  }
}

class SamplesOnceScriptValuesTest : public ScriptValuesTest {
 protected:
  SamplesOnceScriptValuesTest()
      : ScriptValuesTest(kBlock * sizeof(float), ScriptAbilities{true, false}) {}
};

TEST_F(SamplesOnceScriptValuesTest, SamplesThatWereAnnouncedAreNotToldAgain) {
  values_->ReadAhead(SampleSchedule(80, 8, kLeaves), 0, {1, 2});
  std::vector<nlohmann::json> works = ComputeTwo();
  EXPECT_EQ(works[0]["samples"].size(), 4);
  EXPECT_EQ(works[0]["ahead"][0]["samples"].size(), 4);
  EXPECT_FALSE(works[1].contains("samples"));
  // It may come again, long after what was announced.
  works = ComputeTwo();
  EXPECT_EQ(works[1]["samples"].size(), 4);
}

TEST_F(SamplesOnceScriptValuesTest, SamplesAreToldAgainInAnotherView) {
  values_->ReadAhead(SampleSchedule(80, 8, kLeaves), 0, {1, 2});
  values_->OnView(view_, kValues);
  std::vector<nlohmann::json> works = ComputeTwo();
  EXPECT_EQ(works[1]["samples"].size(), 4);
}

TEST_F(ScriptValuesTest, WhoDoesNotKeepSamplesIsToldThemWithTheWork) {
  values_->ReadAhead(SampleSchedule(80, 8, kLeaves), 0, {1, 2});
  std::vector<nlohmann::json> works = ComputeTwo();
  EXPECT_EQ(works[1]["samples"].size(), 4);
}

class AddingScriptValuesTest : public ScriptValuesTest {
 protected:
  AddingScriptValuesTest()
      : ScriptValuesTest(kBlock * sizeof(float), ScriptAbilities{false, true}) {}

  // kept, adds and keeps of the micro-batches that the script fills with 1, 2, ...
  std::vector<std::vector<int>> ComputeStep(int64_t batch) {
    std::vector<std::vector<int>> told;
    RUBATO_EXPECT_OK(Compute(
        {0, kLeaves}, [](int64_t) {},
        [&] {
          for (int i = 1; i <= std::min<int64_t>(batch, kLeaves); ++i) {
            const nlohmann::json work = Ask();
            told.push_back({work["kept"], work["adds"], work["keeps"]});
            for (float& to : script_->gradient(work["gradient"])) to = static_cast<float>(i);
            Say("give", work["id"], 0, 4);
          }
        },
        SampleSchedule(80, batch, kLeaves)));
    return told;
  }
};

TEST_F(AddingScriptValuesTest, WhatTheScriptHasAddedUpLeavesAsItIs) {
  EXPECT_EQ(ComputeStep(8), (std::vector<std::vector<int>>{{0, 0, true}, {1, 1, false}}));
  EXPECT_EQ(sums_, std::vector<float>(kValues, 2));  // its last, and not 1 + 2
}

TEST_F(AddingScriptValuesTest, WhereAMicroBatchHasNoSamplesTheWorkerAdds) {
  EXPECT_EQ(ComputeStep(1), (std::vector<std::vector<int>>{{0, 0, false}}));
  EXPECT_EQ(sums_, std::vector<float>(kValues, 1));
}

TEST_F(ScriptValuesTest, WhatIsNotLentToServersIsNotLentToTheScript) {
  RUBATO_EXPECT_OK(Compute(
      {0, 1}, [](int64_t) {},
      [&] {
        const nlohmann::json work = Ask();
        EXPECT_TRUE(work["lent"].is_null());
        Say("give", work["id"], 0, 4);
      }));
}

TEST_F(ScriptValuesTest, ASumLeavesFromThePlaceOfItsLastGradient) {
  int last = -1;
  RUBATO_EXPECT_OK(Compute(
      {0, 2}, [](int64_t) {},
      [&] {
        for (const float value : {1.0f, 2.0f}) {
          const nlohmann::json work = Ask();
          last = work["gradient"];
          for (float& to : script_->gradient(last)) to = value;
          Say("give", work["id"], 0, 4);
        }
      }));
  EXPECT_THAT(sums_, Each(3.0f));
  EXPECT_EQ(pushed_, channel_->gradient(last).data());
}

TEST_F(ScriptValuesTest, ARegionThatIsTheSumLeavesAndIsNotHandedOutUntilItHasLeft) {
  std::vector<int> regions;
  const auto compute = [&](float value) {
    RUBATO_EXPECT_OK(Compute(
        {0, 1}, [](int64_t) {},
        [&] {
          const nlohmann::json work = Ask();
          regions.push_back(work["gradient"]);
          for (float& to : script_->gradient(regions.back())) to = value;
          Say("give", work["id"], 0, 4);
        }));
    EXPECT_THAT(sums_, Each(value));
  };
  const auto leaves_from_region = [&] {  // block 0 is the last
    return pushed_ == channel_->gradient(regions.back()).data();
  };
  compute(1);
  EXPECT_TRUE(leaves_from_region());
  is_slow_ = true;
  compute(2);
  EXPECT_TRUE(leaves_from_region());
  for (const float value : {3.0f, 4.0f}) {
    compute(value);
    EXPECT_FALSE(leaves_from_region()) << "the next would have none";
  }
  EXPECT_THAT(regions, ElementsAre(regions[0], 1 - regions[0], regions[0], regions[0]));
  ASSERT_EQ(sent_.size(), 9u);
  for (size_t i = 0; i < sent_.size(); ++i) {
    EXPECT_THAT(sent_[i].values(), Each(static_cast<float>(2 + i / 3)));
  }
  sent_.clear();
  is_slow_ = false;
  for (const float value : {5.0f, 6.0f}) {
    compute(value);
    EXPECT_TRUE(leaves_from_region());
  }
  EXPECT_NE(regions[4], regions[5]);
}

TEST_F(LendingScriptValuesTest, AGradientIsPushedFromWhereTheScriptHasWrittenIt) {
  uint64_t offset = 0;
  RUBATO_EXPECT_OK(Compute(
      {0, 2}, [](int64_t) {},
      [&] {
        Say("give", Fill(1), 0, 4);  // in the region, which may be mixed with what is lent
        const nlohmann::json work = Ask();
        float* const gradient = Open(work, &offset);
        std::fill_n(gradient, kValues, 2.0f);
        script_->Write({{"kind", "give"}, {"id", work["id"]}, {"weight", 4}, {"in_place", true}});
        munmap(gradient, kValues * sizeof(float));
      }));
  EXPECT_EQ(sums_, std::vector<float>(kValues, 3));
  EXPECT_EQ(values_->arena()->Find({reinterpret_cast<const char*>(pushed_), 1}),
            std::optional<uint64_t>(offset));
}

TEST_F(LendingScriptValuesTest, ABufferIsNotLentToTheScriptWhileItIsRead) {
  uint64_t first = 0, second = 0;
  RUBATO_EXPECT_OK(Compute(
      {0, 2}, [](int64_t) {},
      [&] {
        for (uint64_t* const offset : {&first, &second}) {
          const nlohmann::json work = Ask();
          float* const gradient = Open(work, offset);
          std::fill_n(gradient, kValues, 2.0f);
          script_->Write({{"kind", "give"}, {"id", work["id"]}, {"weight", 4}, {"in_place", true}});
          munmap(gradient, kValues * sizeof(float));
        }
      }));
  EXPECT_NE(first, second);  // the first is still to be added
  EXPECT_EQ(sums_, std::vector<float>(kValues, 4));
}

}  // namespace
}  // namespace rubato
