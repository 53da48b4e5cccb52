// Jobs whose model is a script's: workers bring the optimizer, and one of them the values that the
// job begins with.
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/value_pieces.h"

namespace rubato {
namespace {

class ScriptTest : public CoordinatorTest {
 protected:
  static constexpr int64_t kValues = kValuesOfPiece + 3;

  void StartScript() { Start("model { preset: PRESET_SCRIPT } wire { chunk: 1048576 }"); }

  static proto::PeerMessage Script(double learning_rate = 0.5) {
    proto::PeerMessage message = Worker();
    proto::Layout* layout = message.mutable_registration()->mutable_worker()->mutable_layout();
    layout->mutable_parameters(0)->set_shape(0, kValues);
    layout->mutable_parameters(0)->set_name("w");
    layout->mutable_optimizer()->set_learning_rate(learning_rate);
    layout->set_gives_values(true);
    return message;
  }

  static proto::PeerMessage Piece(int64_t begin, int64_t values) {
    proto::PeerMessage message;
    message.mutable_initial_values()->set_begin(begin);
    message.mutable_initial_values()->set_values(
        std::string(static_cast<size_t>(values) * sizeof(float), 'v'));
    return message;
  }

  void AllRegister() {
    Receive(2, Script());
    Receive(3, Script());
    Receive(kOwnShard, Shard(0));
    Receive(1, Shard(1));
  }

  void Saved(const absl::Status& status = absl::OkStatus()) {
    Handle(coordinator::ValuesSaved{status}).IgnoreError();
  }

  // Of the last message to the peer.
  std::pair<int64_t, int64_t> Asked(PeerId peer) {
    const proto::ValuesRequest& request = sent_[peer].back().values_request();
    return {request.begin(), request.end()};
  }
};

TEST_F(ScriptTest, FetchesTheValuesOfOneWorkerPieceByPieceBeforeTheFirstView) {
  StartScript();
  AllRegister();
  EXPECT_EQ(Asked(2), std::make_pair(int64_t{0}, kValuesOfPiece));
  EXPECT_THAT(sent_[3], IsEmpty());
  EXPECT_THAT(sent_[1], IsEmpty()) << "shards hear of a view when the values are here";
  EXPECT_THAT(logs_.back(), HasSubstr(" is here; waiting for the values that the job begins with"));
  EXPECT_THAT(coordinator_->Status(now_).waits(),
              ElementsAre("the start waits for the values that the job begins with, of a worker"));

  Receive(2, Piece(0, kValuesOfPiece));
  ASSERT_EQ(saves_.size(), 1u);
  EXPECT_EQ(saves_[0].begin, 0);
  EXPECT_FALSE(saves_[0].is_last);
  EXPECT_EQ(sent_[2].size(), 1u) << "not before the piece is saved";
  Saved();
  EXPECT_EQ(Asked(2), std::make_pair(kValuesOfPiece, kValues));
  Receive(2, Piece(kValuesOfPiece, 3));
  ASSERT_EQ(saves_.size(), 2u);
  EXPECT_TRUE(saves_[1].is_last);
  EXPECT_THAT(sent_[1], IsEmpty());
  Saved();
  ASSERT_EQ(sent_[1].size(), 1u);
  EXPECT_NE(sent_[1][0].view().restore_key(), 0u);
  sent_[2].clear();
  Opened();
  EXPECT_EQ(restores_, 1);
}

TEST_F(ScriptTest, BeginsAnewWithAnotherWorkerIfTheOneThatIsAskedGoes) {
  StartScript();
  AllRegister();
  Receive(2, Piece(0, kValuesOfPiece));
  Handle(coordinator::PeerGone{2}).IgnoreError();
  Saved();  // of who has gone: whoever comes next may have drawn other values
  Receive(4, Script());
  EXPECT_EQ(Asked(3), std::make_pair(int64_t{0}, kValuesOfPiece));
  Receive(3, Piece(0, kValuesOfPiece));
  Saved();
  Receive(3, Piece(kValuesOfPiece, 3));
  Saved();
  EXPECT_TRUE(saves_.back().is_last);
  EXPECT_FALSE(sent_[1].empty());
}

// The one that gave them was started with another script, or has read other weights.
TEST_F(ScriptTest, BeginsAnewIfAllHaveGoneAndOthersComeWithAnotherLayout) {
  for (const bool is_same : {true, false}) {
    sent_.clear();
    saves_.clear();
    StartScript();
    AllRegister();
    Receive(2, Piece(0, kValuesOfPiece));
    Saved();
    Receive(2, Piece(kValuesOfPiece, 3));
    Handle(coordinator::PeerGone{2}).IgnoreError();
    Handle(coordinator::PeerGone{3}).IgnoreError();
    Saved();
    proto::PeerMessage other = Script();
    proto::Constant* constant = other.mutable_registration()
                                    ->mutable_worker()
                                    ->mutable_layout()
                                    ->add_constants();
    constant->set_name("embedding");
    constant->set_digest("of other weights");
    Receive(4, is_same ? Script() : other);
    Receive(5, is_same ? Script() : other);
    ASSERT_EQ(sent_[1].empty(), !is_same);
    if (is_same) continue;
    EXPECT_EQ(Asked(4), std::make_pair(int64_t{0}, kValuesOfPiece));
    Receive(4, Piece(0, kValuesOfPiece));
    EXPECT_EQ(saves_.back().begin, 0);
    EXPECT_EQ(saves_.back().layout.constants_size(), 1);
    Saved();
    Receive(4, Piece(kValuesOfPiece, 3));
    Saved();
    EXPECT_FALSE(sent_[1].empty());
  }
}

TEST_F(ScriptTest, TakesNoPieceThatItHasNotAskedFor) {
  StartScript();
  AllRegister();
  Receive(3, Piece(0, kValuesOfPiece));      // another worker's
  Receive(2, Piece(1, kValuesOfPiece));      // another place
  Receive(2, Piece(0, kValuesOfPiece - 1));  // too short
  EXPECT_TRUE(saves_.empty());
  Receive(2, Piece(0, kValuesOfPiece));
  Receive(2, Piece(0, kValuesOfPiece));  // once more
  EXPECT_EQ(saves_.size(), 1u);
}

TEST_F(ScriptTest, EndsIfValuesCannotBeSaved) {
  StartScript();
  AllRegister();
  Receive(2, Piece(0, kValuesOfPiece));
  Saved(absl::ResourceExhaustedError("the disk is full"));
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(end_->message(), HasSubstr("the disk is full"));
}

TEST_F(ScriptTest, AsksNobodyWhereTheValuesAreHere) {
  begin_.initial = true;
  StartScript();
  AllRegister();
  EXPECT_THAT(sent_[2], IsEmpty());
  EXPECT_EQ(sent_[1].size(), 1u);
}

TEST_F(ScriptTest, ATableOfRatesTravelsToEachShardOnce) {
  begin_.initial = true;
  StartScript();
  proto::PeerMessage script = Script();
  proto::Schedule* schedule = script.mutable_registration()
                                  ->mutable_worker()
                                  ->mutable_layout()
                                  ->mutable_optimizer()
                                  ->mutable_schedule();
  schedule->set_name(proto::Schedule::NAME_TABLE);
  for (int i = 0; i < 100; ++i) schedule->add_factors(0.5);
  Receive(2, script);
  Receive(3, script);
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));
  const auto factors = [this](PeerId peer) {
    return sent_[peer].back().view().layout().optimizer().schedule().factors_size();
  };
  EXPECT_EQ(factors(1), 100);
  Opened();
  Restored();
  ASSERT_EQ(sent_[2].back().view().number(), 1u);
  EXPECT_EQ(factors(2), 0);
  Receive(4, script);
  Close(0, 0);
  ASSERT_EQ(sent_[1].back().view().number(), 2u);
  EXPECT_EQ(factors(1), 0);
  EXPECT_EQ(factors(4), 0);
}

// Without `script` there is no `rubato train` that could go on.
TEST_F(ScriptTest, TheEndNamesTheCommandThatGoesOnOnlyWhereItStartsTheScript) {
  begin_.path = "step-2";
  begin_.initial = true;
  for (const bool is_started : {true, false}) {
    sent_.clear();
    Start(absl::StrCat("model { preset: PRESET_SCRIPT } wire { chunk: 1048576 }",
                       is_started ? "script: 'train.py'" : ""));
    AllRegister();
    Opened();
    Restored();
    Handle(coordinator::Failed{absl::InternalError("the disk is full")}).IgnoreError();
    EXPECT_EQ(logs_.back(),
              absl::StrCat("the last good checkpoint is step-2",
                           is_started ? "; go on with: rubato train --resume step-2" : ""));
  }
}

TEST_F(ScriptTest, AFigureOfATestHasAFreeName) {
  begin_.initial = true;
  const std::string names =
      "expected 1 to 64 letters, digits and underscores, and no name that a line of metrics has";
  const std::map<std::vector<std::string>, std::string> lies = {
      {{"loss"}, "evaluation.others: found loss, " + names},
      {{"f1", "a/b"}, "evaluation.others: found a/b, " + names},
      {{std::string(65, 'n')}, absl::StrCat("found ", std::string(65, 'n'), ", ", names)},
      {{""}, "evaluation.others: found , " + names},
      {std::vector<std::string>(33, "f1"), "evaluation.others: found 33, expected 0 to 32"},
      {std::vector<std::string>(32, "f1"), ""},
      {{"f1", "Top_5", std::string(64, 'n')}, ""}};
  for (const auto& [told, reason] : lies) {
    SCOPED_TRACE(reason);
    sent_.clear();
    StartScript();
    AllRegister();
    Opened();
    Restored();
    proto::PeerMessage message;
    message.mutable_evaluation()->set_samples(1);
    for (const std::string& name : told) message.mutable_evaluation()->add_others()->set_name(name);
    Receive(3, message);
    EXPECT_EQ(sent_[3].back().stop().refused(), !reason.empty());
    EXPECT_THAT(Reason(3), HasSubstr(reason));
  }
}

TEST_F(ScriptTest, WorkersBringOneOptimizer) {
  StartScript();
  Receive(2, Script(0.5));
  Receive(3, Script(0.25));
  EXPECT_TRUE(sent_[3].back().stop().refused());
  EXPECT_THAT(Reason(3), HasSubstr("differ from those of worker 0 (host pid 0): "
                                   "optimizer.learning_rate: found 0.25, expected 0.5"));
}

TEST_F(ScriptTest, WhoHasOtherDataIsToldWhatToLookFor) {
  StartScript();
  Receive(2, Script(0.5));
  proto::PeerMessage other = Script(0.5);
  other.mutable_registration()->mutable_worker()->set_data_digest("other data");
  Receive(3, other);
  EXPECT_THAT(Reason(3), AllOf(HasSubstr("data differ from those of worker 0"),
                               HasSubstr("Call torch.manual_seed first")));
}

TEST_F(ScriptTest, AnOptimizerComesWithAScriptAndOnlyThen) {
  StartScript();
  Receive(2, Worker());
  EXPECT_THAT(Reason(2), HasSubstr("this worker brings no optimizer"));
  Start();
  sent_.clear();
  Receive(2, Script());
  EXPECT_THAT(Reason(2), HasSubstr("this worker brings an optimizer, which the job has"));
}

TEST_F(ScriptTest, AnOptimizerThatCannotBeIsRefused) {
  StartScript();
  Receive(2, Script(-1));
  EXPECT_TRUE(sent_[2].back().stop().refused());
  EXPECT_THAT(Reason(2), HasSubstr("learning_rate"));
}

}  // namespace
}  // namespace rubato
