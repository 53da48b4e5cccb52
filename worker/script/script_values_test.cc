#include "worker/script/script_values.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/status_matchers.h"
#include "common/consistency/policy.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kValues = 40, kBlock = 16, kLeaves = 2;

proto::Job MakeJob() {
  proto::Job job;
  job.mutable_wire()->set_chunk(kBlock * sizeof(float));
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
  ScriptValuesTest() {
    view_.set_leaves(kLeaves);
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const int memory = memfd_create("test", 0);
    EXPECT_EQ(ftruncate(memory, 3 << 12), 0);
    channel_ = std::make_unique<ScriptChannel>(sockets[0], memory);
    script_ = std::make_unique<ScriptChannel>(sockets[1], dup(memory));
    RUBATO_EXPECT_OK(channel_->Map(kValues));
    RUBATO_EXPECT_OK(script_->Map(kValues));
    values_ = std::make_unique<ScriptValues>(
        MakeJob(), MakeRegistration(), channel_.get(),
        ScriptValues::Callbacks{[](const auto&) {}, [](const auto&) {}});
    RUBATO_EXPECT_OK(values_->OnJoin());
    values_->OnView(view_, kValues);
  }

  // Of the micro-batches `node` of step 0, while `script` is another thread.
  absl::Status Compute(Range node, const std::function<void(int64_t block)>& on_push,
                       const std::function<void()>& script) {
    std::thread thread(script);
    const std::vector<float> parameters(kValues);
    const std::unique_ptr<const Policy> policy = BuiltInPolicy(view_);
    proto::Progress progress;
    const auto push = [&](int64_t block, const Payload& payload) {
      const absl::Span<const float> sums = payload.values();
      const Range values = values_->space().BlockValues(block);
      std::copy(sums.begin(), sums.end(), sums_.begin() + values.begin);
      on_push(block);
    };
    const absl::Status status =
        values_->contributions().Compute(SampleSchedule(80, 8, kLeaves), 0, node, *policy,
                                         parameters, push, &progress, [](Range) { return true; });
    thread.join();
    return status;
  }

  // The script gets a micro-batch, and fills its gradient with `value`.
  int64_t Fill(float value) {
    script_->Write({{"kind", "next"}});
    const absl::StatusOr<nlohmann::json> work = script_->Read();
    RUBATO_EXPECT_OK(work.status());
    for (float& to : script_->gradient((*work)["gradient"])) to = value;
    return (*work)["id"];
  }
  void Say(const char* kind, int64_t id, int64_t begin, int64_t weight) {
    script_->Write({{"kind", kind}, {"id", id}, {"begin", begin}, {"weight", weight}});
  }

  proto::View view_;
  std::unique_ptr<ScriptChannel> channel_, script_;
  std::unique_ptr<ScriptValues> values_;
  std::vector<float> sums_ = std::vector<float>(kValues);
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

}  // namespace
}  // namespace rubato
