#include "tools/simulator/virtual_streams.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Side = StreamCore::Side;

constexpr int64_t kPullBlock = -1;

// A process with an end of one stream; says what it reads, and answers each pull with blocks 0 and
// up, `answers` of them.
class End : public Process, private VirtualStreams::Owner {
 public:
  End(VirtualNetwork* network, Side side, StreamLimits limits, StreamJudge* judge, int answers = 0)
      : network_(*network), answers_(answers), streams(network, side, limits, judge, this) {}

  void Start(int card) {
    self = network_.AddProcess(card, this);
    streams.SetSelf(self);
  }
  // A payload of a block, or a pull.
  void Send(ConnectionId stream, int64_t block, int64_t payload = 904) {
    SimMessage message;
    const bool is_pull = block == kPullBlock;
    message.kind = is_pull ? SimMessage::Kind::kPull : SimMessage::Kind::kPush;
    message.bytes = kFrameHeaderBytes + (is_pull ? 0 : payload);
    message.frame.kind = is_pull ? FrameKind::kPull : FrameKind::kPush;
    message.frame.block = is_pull ? 0 : static_cast<uint64_t>(block);
    streams.Send(stream, std::move(message));
  }

  void OnMessage(ConnectionId stream, SimMessage&& message) override {
    streams.OnMessage(stream, std::move(message));
  }
  void OnBroken(ConnectionId stream) override { streams.OnBroken(stream); }
  void OnSent(ConnectionId stream) override { streams.OnSent(stream); }
  void OnAcknowledged(ConnectionId stream) override { streams.OnAcknowledged(stream); }
  void OnTimer(uint64_t) override {}

 private:
  void OnFrame(ConnectionId stream, SimMessage&& message) override {
    const bool is_pull = message.frame.kind == FrameKind::kPull;
    read.push_back(is_pull ? kPullBlock : static_cast<int64_t>(message.frame.block));
    for (int block = 0; is_pull && block < answers_; ++block) Send(stream, block);
  }
  void OnGone(ConnectionId stream) override { gone.push_back(stream); }

  VirtualNetwork& network_;
  const int answers_;

 public:
  VirtualStreams streams;
  ProcessId self = 0;
  std::vector<int64_t> read;  // blocks
  std::vector<ConnectionId> gone;
};

class VirtualStreamsTest : public ::testing::Test {
 protected:
  void Build(StreamLimits limits, int answers = 0) {
    worker_ = std::make_unique<End>(&network_, Side::kWorker, limits, &judge_);
    server_ = std::make_unique<End>(&network_, Side::kServer, limits, &judge_, answers);
    worker_->Start(network_.AddCard({1000, 1e9}));
    server_->Start(network_.AddCard({1000, 1e9}));
    stream_ = network_.Connect(worker_->self, server_->self);
    worker_->streams.Open(stream_);
  }
  void Run() {
    while (queue_.RunNext()) {
    }
  }

  EventQueue queue_;
  VirtualNetwork network_{&queue_};
  StreamJudge judge_{[](const absl::Status& status) { ADD_FAILURE() << status.message(); }};
  std::unique_ptr<End> worker_, server_;
  ConnectionId stream_ = 0;
};

TEST_F(VirtualStreamsTest, OfWhatWaitsForTheCardTheLowestBlockGoesFirst) {
  Build({});
  Run();  // it is open
  for (const int64_t block : std::vector<int64_t>{3, 2, 1, 0, kPullBlock, 2, 1}) {
    worker_->Send(stream_, block);
  }
  Run();
  EXPECT_THAT(server_->read, ElementsAre(3, 0, 1, 2, kPullBlock, 1, 2));
  EXPECT_EQ(judge_.overtakings(), 3);
}

TEST_F(VirtualStreamsTest, WhatOneEventSendsGoesTogether) {
  Build({});
  Run();
  {
    VirtualStreams::Batch batch(&worker_->streams);
    for (const int64_t block : {3, 2, 1, 0}) worker_->Send(stream_, block);
  }
  Run();
  EXPECT_THAT(server_->read, ElementsAre(0, 1, 2, 3));
}

// The worker is frozen: two answers are in its window, and two wait.
TEST_F(VirtualStreamsTest, APeerThatDoesNotTakeItsAnswersIsNotRead) {
  Build({/*waiting=*/1000, /*window=*/1000}, /*answers=*/4);
  Run();
  worker_->Send(stream_, kPullBlock);
  worker_->Send(stream_, kPullBlock);
  while (network_.sent() < 2) queue_.RunNext();
  network_.Freeze(worker_->self, kSecond);
  while (queue_.now() < kSecond / 2) {
    ASSERT_TRUE(queue_.RunNext());
    EXPECT_LE(server_->read.size(), 1u);
  }
  Run();
  EXPECT_EQ(server_->read.size(), 2u);
  EXPECT_EQ(worker_->read.size(), 8u);
}

TEST_F(VirtualStreamsTest, BothEndsOfABrokenStreamEndOnceAndOneThatClosesHearsNothing) {
  Build({});
  network_.SetFaults({{Fault::Kind::kDrop, 1}});
  worker_->Send(stream_, 2);
  Run();
  for (const int64_t block : {1, 0}) worker_->Send(stream_, block);
  Run();
  EXPECT_THAT(worker_->gone, ElementsAre(stream_));
  EXPECT_THAT(server_->gone, ElementsAre(stream_));
  const ConnectionId other = network_.Connect(worker_->self, server_->self);
  worker_->streams.Open(other);
  worker_->Send(other, 0);
  Run();
  worker_->streams.Close(other);
  Run();
  EXPECT_THAT(worker_->gone, ElementsAre(stream_));
  EXPECT_THAT(server_->gone, ElementsAre(stream_, other));
}

// Random loads, limits and faults: the judge finds nothing, and what was sent on a stream that
// lasts has been read at the end.
TEST(VirtualStreamsRandomTest, StreamsKeepTheirRulesUnderFaults) {
  int64_t overtakings = 0, lasted = 0, broke = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(Key(seed, "virtual streams"));
    EventQueue queue;
    VirtualNetwork network(&queue);
    StreamJudge judge([](const absl::Status& status) { ADD_FAILURE() << status.message(); });
    network.SetJitter(random.Below(2) * 50 * kMicrosecond, seed);
    const StreamLimits limits = StreamLimits::Draw(seed);
    End worker(&network, Side::kWorker, limits, &judge);
    End server(&network, Side::kServer, limits, &judge, 3);
    worker.Start(network.AddCard({100, 1e8}));
    server.Start(network.AddCard({100, 1e8}));
    std::vector<Fault> faults;
    constexpr Fault::Kind kKinds[] = {Fault::Kind::kDelay, Fault::Kind::kFreeze, Fault::Kind::kCut,
                                      Fault::Kind::kDuplicate, Fault::Kind::kDrop};
    for (uint32_t i = random.Below(4); i > 0; --i) {
      faults.push_back({kKinds[random.Below(5)], random.Below(100), random.Below(2) == 0,
                        random.Below(1000) * kMicrosecond});
    }
    network.SetFaults(faults);
    const ConnectionId stream = network.Connect(worker.self, server.self);
    worker.streams.Open(stream);
    int64_t blocks = 0, pulls = 0;
    for (int i = 0; i < 60; ++i) {
      const bool is_pull = random.Below(4) == 0;
      ++(is_pull ? pulls : blocks);
      worker.Send(stream, is_pull ? kPullBlock : random.Below(5), random.Below(2000));
      for (uint32_t events = random.Below(3); events > 0; --events) queue.RunNext();
    }
    while (queue.RunNext()) {
    }
    overtakings += judge.overtakings();
    if (worker.gone.empty()) {
      ++lasted;
      EXPECT_THAT(server.gone, IsEmpty());
      EXPECT_GE(static_cast<int64_t>(server.read.size()), blocks + pulls);
      EXPECT_GE(static_cast<int64_t>(worker.read.size()), 3 * pulls);
    } else {
      ++broke;
      EXPECT_EQ(worker.gone.size(), 1u);
      EXPECT_LE(server.gone.size(), 1u);
    }
  }
  EXPECT_GT(overtakings, 1000);
  EXPECT_GT(lasted, 50);
  EXPECT_GT(broke, 50);
}

}  // namespace
}  // namespace rubato
