#include "server/coordinator/commands.h"

#include "common/base/status_matchers.h"
#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CommandsTest : public ::testing::Test {
 protected:
  // Asks for what is of this kind; the core answers `core_says_`.
  void Give(proto::CommandRequest::Kind kind, const std::string& token = "secret") {
    request_.set_kind(kind);
    request_.set_token(token);
    commands_.Handle(
        request_, may_change_,
        [this](const coordinator::Event& event) {
          asked_.push_back(event);
          return core_says_;
        },
        [] {
          proto::JobStatus status;
          status.set_state("training");
          return status;
        },
        [this](const absl::StatusOr<proto::CommandReply>& reply) { answers_.push_back(reply); });
  }
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const auto& answer : answers_) {
      texts.push_back(answer.ok() ? answer->text() : std::string(answer.status().message()));
    }
    return texts;
  }

  Commands commands_;
  std::optional<bool> may_change_;
  proto::CommandRequest request_;
  absl::StatusOr<std::string> core_says_ = "";
  std::vector<coordinator::Event> asked_;
  std::vector<absl::StatusOr<proto::CommandReply>> answers_;
};

TEST_F(CommandsTest, OfWhoShowsAKeyItCountsAlone) {
  commands_.SetToken("secret");
  may_change_ = false;
  Give(proto::CommandRequest::KIND_STOP);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_[0],
              IsError(absl::StatusCode::kPermissionDenied, HasSubstr("operator's key")));
  EXPECT_TRUE(asked_.empty());
  Give(proto::CommandRequest::KIND_STATUS);
  RUBATO_EXPECT_OK(answers_.back());
  may_change_ = true;
  Give(proto::CommandRequest::KIND_STOP, "");
  RUBATO_EXPECT_OK(answers_.back());
  EXPECT_EQ(asked_.size(), 1u);
}

TEST_F(CommandsTest, WhatChangesTheJobNeedsItsToken) {
  Give(proto::CommandRequest::KIND_STOP, "");  // nobody can have one yet
  commands_.SetToken("secret");
  Give(proto::CommandRequest::KIND_STOP, "");
  Give(proto::CommandRequest::KIND_CHECKPOINT, "wrong");
  Give(proto::CommandRequest::KIND_SWITCH, "wrong");
  EXPECT_THAT(asked_, IsEmpty());
  EXPECT_THAT(Texts(),
              ElementsAre(HasSubstr("needs the run's token"), HasSubstr("needs the run's token"),
                          HasSubstr("is not this run's"), HasSubstr("is not this run's")));
  ASSERT_EQ(answers_.size(), 4u);
  EXPECT_THAT(answers_[3].status(),
              IsError(absl::StatusCode::kPermissionDenied, HasSubstr("token")));
  Give(proto::CommandRequest::KIND_STOP);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<coordinator::StopRequested>(asked_[0]));
  EXPECT_EQ(Texts().back(), "the job is stopping");
}

TEST_F(CommandsTest, AStopSaysWhy) {
  commands_.SetToken("secret");
  for (const std::string& reason : {std::string(200, 'x'), std::string("a\nb"), std::string()}) {
    request_.set_reason(reason);
    Give(proto::CommandRequest::KIND_STOP);
  }
  std::vector<std::string> reasons;
  for (const coordinator::Event& event : asked_) {
    reasons.push_back(std::get<coordinator::StopRequested>(event).reason);
  }
  EXPECT_THAT(reasons,
              ElementsAre("asked to: " + std::string(200, 'x'), "asked to: a\\x0ab", "asked to"));
  request_.set_reason(std::string(201, 'x'));
  Give(proto::CommandRequest::KIND_STOP);
  EXPECT_EQ(asked_.size(), 3u);
  EXPECT_EQ(Texts().back(), "the reason: found 201 bytes, expected at most 200");
}

TEST_F(CommandsTest, TheStatusIsForAll) {
  Give(proto::CommandRequest::KIND_STATUS, "");
  ASSERT_EQ(answers_.size(), 1u);
  RUBATO_ASSERT_OK(answers_[0]);
  EXPECT_EQ(answers_[0]->status().state(), "training");
}

TEST_F(CommandsTest, WhoAsksForACheckpointIsAnsweredWhenItIsWritten) {
  commands_.SetToken("secret");
  Give(proto::CommandRequest::KIND_CHECKPOINT);
  Give(proto::CommandRequest::KIND_CHECKPOINT);
  EXPECT_THAT(answers_, IsEmpty());
  commands_.OnCheckpoint("runs/1/checkpoints/7");
  EXPECT_THAT(Texts(), ElementsAre("runs/1/checkpoints/7", "runs/1/checkpoints/7"));
  commands_.OnCheckpoint("runs/1/checkpoints/8");  // nobody waits
  EXPECT_EQ(answers_.size(), 2u);
}

TEST_F(CommandsTest, WhoAsksForACheckpointIsToldThatNoneWillBeWritten) {
  commands_.SetToken("secret");
  core_says_ = absl::UnavailableError("the job is not training");
  Give(proto::CommandRequest::KIND_CHECKPOINT);
  EXPECT_THAT(Texts(), ElementsAre("the job is not training"));
  core_says_ = "";
  Give(proto::CommandRequest::KIND_CHECKPOINT);
  commands_.OnCheckpoint(absl::UnavailableError("the job has ended"));
  EXPECT_THAT(answers_[1].status(),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("has ended")));
}

TEST_F(CommandsTest, ASwitchIsAnsweredByTheCore) {
  commands_.SetToken("secret");
  *request_.mutable_mode() = BoundedMode(-1);
  Give(proto::CommandRequest::KIND_SWITCH);
  EXPECT_THAT(asked_, IsEmpty());
  *request_.mutable_mode() = BoundedMode(3);
  core_says_ = "from step 5 on";
  Give(proto::CommandRequest::KIND_SWITCH);
  core_says_ = absl::UnavailableError("the job is not training");
  Give(proto::CommandRequest::KIND_SWITCH);
  EXPECT_THAT(Texts(),
              ElementsAre(HasSubstr("below 0"), "from step 5 on", "the job is not training"));
}

TEST_F(CommandsTest, AnUnknownCommandIsRefused) {
  commands_.SetToken("secret");
  Give(proto::CommandRequest::KIND_UNKNOWN);
  EXPECT_THAT(answers_[0].status(),
              IsError(absl::StatusCode::kUnimplemented, HasSubstr("no such command")));
}

}  // namespace
}  // namespace rubato
