#include "tools/simulator/network.h"

#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Records what comes and when. Messages are told apart by their symbol.
class Ear : public Process {
 public:
  explicit Ear(VirtualNetwork* network) : network_(network) {}
  void OnMessage(ConnectionId, SimMessage&& message) override {
    heard.emplace_back(message.content.symbol, network_->now());
  }
  void OnBroken(ConnectionId connection) override {
    broken.emplace_back(connection, network_->now());
  }
  void OnTimer(uint64_t argument) override { timers.emplace_back(argument, network_->now()); }

  std::vector<std::pair<uint64_t, SimTime>> heard;
  std::vector<std::pair<ConnectionId, SimTime>> broken;
  std::vector<std::pair<uint64_t, SimTime>> timers;

 private:
  VirtualNetwork* network_;
};

class NetworkTest : public ::testing::Test {
 protected:
  // A machine for each of `count` processes.
  void Build(int count, const VirtualNetwork::Card& card) {
    for (int i = 0; i < count; ++i) {
      ears_.push_back(std::make_unique<Ear>(&network_));
      network_.AddProcess(network_.AddCard(card), ears_.back().get());
    }
  }
  void Send(ConnectionId connection, ProcessId from, uint64_t symbol, int64_t bytes) {
    SimMessage message;
    message.content.symbol = symbol;
    message.bytes = bytes;
    network_.Send(connection, from, std::move(message));
  }
  void Run() {
    while (queue_.RunNext()) {
    }
  }

  EventQueue queue_;
  VirtualNetwork network_{&queue_};
  std::vector<std::unique_ptr<Ear>> ears_;
};

// 10 kB at 1 GB/s are 10 us on the wire.
constexpr int64_t kTenMicroseconds = 10000;

TEST_F(NetworkTest, AMessageTakesItsLatencyAndItsBytesOnTheWireOnce) {
  Build(2, {100, 1e9});
  const ConnectionId connection = network_.Connect(0, 1);
  Send(connection, 0, 1, kTenMicroseconds);
  Run();
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(1, 10100)));
}

TEST_F(NetworkTest, ACardSendsOneMessageAfterTheOther) {
  Build(3, {100, 1e9});
  const ConnectionId to_1 = network_.Connect(0, 1), to_2 = network_.Connect(0, 2);
  Send(to_1, 0, 1, kTenMicroseconds);
  Send(to_2, 0, 2, kTenMicroseconds);
  Run();
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(1, 10100)));
  EXPECT_THAT(ears_[2]->heard, ElementsAre(Pair(2, 20100)));
}

TEST_F(NetworkTest, SendersToOneMachineShareItsCard) {
  Build(3, {100, 1e9});
  const ConnectionId from_0 = network_.Connect(0, 2), from_1 = network_.Connect(1, 2);
  Send(from_1, 1, 1, kTenMicroseconds);
  Send(from_0, 0, 0, kTenMicroseconds);
  Run();
  EXPECT_THAT(ears_[2]->heard, ElementsAre(Pair(1, 10100), Pair(0, 20100)));
}

// The slower of two cards decides; the latency is the larger one.
TEST_F(NetworkTest, AMachineMayHaveACardOfItsOwn) {
  Build(1, {100, 1e9});
  Build(1, {5000, 1e8});
  const ConnectionId connection = network_.Connect(0, 1);
  Send(connection, 0, 1, kTenMicroseconds);
  Send(connection, 1, 2, kTenMicroseconds);
  Run();
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(1, 105000)));
  EXPECT_THAT(ears_[0]->heard, ElementsAre(Pair(2, 105000)));
}

TEST_F(NetworkTest, ASlowSenderHoldsNobodyUp) {
  Build(2, {100, 1e9});
  Build(1, {100, 1e8});
  const ConnectionId fast = network_.Connect(0, 1), slow = network_.Connect(2, 1);
  Send(slow, 2, 1, kTenMicroseconds);
  for (uint64_t i = 2; i < 5; ++i) Send(fast, 0, i, kTenMicroseconds);
  Run();
  EXPECT_THAT(ears_[1]->heard,
              ElementsAre(Pair(2, 10100), Pair(3, 20100), Pair(4, 30100), Pair(1, 100100)));
}

// Latency, and size over bandwidth; one message after the other on the link, while the card goes
// on.
TEST_F(NetworkTest, TheWayBetweenTwoMachinesMayBeAnother) {
  Build(3, {100, 1e9});
  network_.SetLink(0, 1, {7000, 2e8});
  const ConnectionId linked = network_.Connect(0, 1), plain = network_.Connect(0, 2);
  Send(linked, 0, 1, kTenMicroseconds);
  Send(linked, 0, 2, kTenMicroseconds);
  Send(plain, 0, 3, kTenMicroseconds);
  Send(linked, 1, 4, kTenMicroseconds);
  Run();
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(1, 57000), Pair(2, 107000)));
  EXPECT_THAT(ears_[2]->heard, ElementsAre(Pair(3, 30100)));
  EXPECT_THAT(ears_[0]->heard, ElementsAre(Pair(4, 57000)));
}

TEST_F(NetworkTest, ASmallMessageTravelsWithTheOneBeforeIt) {
  Build(2, {100, 1e9});
  const ConnectionId connection = network_.Connect(0, 1);
  Send(connection, 0, 1, kTenMicroseconds);
  Send(connection, 0, 2, 80);
  Run();
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(1, 10180), Pair(2, 10180)));
}

TEST_F(NetworkTest, ProcessesOfOneMachineReachEachOtherAtOnce) {
  Build(1, {100, 1e9});
  Ear other(&network_);
  const ProcessId neighbour = network_.AddProcess(0, &other);
  Send(network_.Connect(0, neighbour), 0, 1, kTenMicroseconds);
  Run();
  EXPECT_THAT(other.heard, ElementsAre(Pair(1, 0)));
}

// Under random delays, sizes, freezes and cuts: each connection keeps its order and loses nothing.
TEST_F(NetworkTest, AConnectionKeepsItsOrderAndConnectionsOvertakeOneAnother) {
  int overtaken = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EventQueue queue;
    VirtualNetwork network(&queue);
    Ear ear(&network), sender(&network);
    network.SetJitter(20 * kMicrosecond, seed);
    RandomStream random(Key(seed));
    const double rate = seed % 2 == 0 ? 1e9 : std::numeric_limits<double>::infinity();
    const ProcessId to = network.AddProcess(network.AddCard({100, rate}), &ear);
    std::vector<ConnectionId> connections;
    std::vector<ProcessId> from;
    for (int i = 0; i < 3; ++i) {
      from.push_back(network.AddProcess(network.AddCard({100, rate}), &sender));
      connections.push_back(network.Connect(from[i], to));
    }
    constexpr int kMessages = 200;
    std::vector<Fault> faults;
    for (int i = 0; i < 6; ++i) {
      constexpr Fault::Kind kKinds[] = {Fault::Kind::kDelay, Fault::Kind::kFreeze,
                                        Fault::Kind::kCut};
      faults.push_back({kKinds[i % 3], random.Below(kMessages), false,
                        static_cast<SimTime>(random.Below(300)) * kMicrosecond});
    }
    network.SetFaults(faults);
    for (int i = 0; i < kMessages; ++i) {
      const uint32_t which = random.Below(3);
      SimMessage message;
      message.content.symbol = static_cast<uint64_t>(i) * 3 + which;
      message.bytes = random.Below(3000);
      network.Send(connections[which], from[which], std::move(message));
      for (uint32_t events = random.Below(4); events > 0; --events) queue.RunNext();
    }
    while (queue.RunNext()) {
    }
    ASSERT_EQ(ear.heard.size(), kMessages) << "seed " << seed;
    std::vector<int64_t> last(3, -1);
    int64_t latest = -1;
    for (const auto& [symbol, time] : ear.heard) {
      const int64_t number = static_cast<int64_t>(symbol / 3);
      EXPECT_GT(number, last[symbol % 3]) << "seed " << seed;
      last[symbol % 3] = number;
      if (number < latest) ++overtaken;
      latest = std::max(latest, number);
    }
  }
  EXPECT_GT(overtaken, 100);
}

TEST_F(NetworkTest, FaultsStrikeTheirMessage) {
  Build(2, {100});
  network_.SetFaults({{Fault::Kind::kDuplicate, 1}, {Fault::Kind::kDelay, 0, false, 1000}});
  const ConnectionId connection = network_.Connect(0, 1);
  for (uint64_t i = 0; i < 3; ++i) Send(connection, 0, i, 0);
  Run();
  EXPECT_THAT(ears_[1]->heard,
              ElementsAre(Pair(0, 1100), Pair(1, 1100), Pair(1, 1100), Pair(2, 1100)));
}

// Until then it holds up what waits for it.
TEST_F(NetworkTest, OfTwoDelaysOfAMessageTheSecondIsToldWithTheFirst) {
  Build(2, {100});
  network_.SetFaults({{Fault::Kind::kDelay, 0, false, 1000}, {Fault::Kind::kDelay, 0, false, 500}});
  std::vector<SimTime> told;
  network_.SetOnFault(
      [&](const Fault& fault, SimMessage::Kind, ProcessId) { told.push_back(fault.duration); });
  Send(network_.Connect(0, 1), 0, 0, 0);
  Run();
  EXPECT_THAT(told, ElementsAre(1000, 1500));
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(0, 1600)));
}

TEST_F(NetworkTest, ADroppedMessageBreaksItsConnectionAtBothEnds) {
  Build(2, {100});
  network_.SetFaults({{Fault::Kind::kDrop, 1}});
  const ConnectionId connection = network_.Connect(0, 1), other = network_.Connect(0, 1);
  Send(connection, 0, 1, 0);
  Send(connection, 0, 2, 0);
  Send(connection, 0, 3, 0);
  Send(other, 0, 4, 0);
  Run();
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(4, 100)));  // what was on its way is lost too
  EXPECT_THAT(ears_[0]->broken, ElementsAre(Pair(connection, 100)));
  EXPECT_THAT(ears_[1]->broken, ElementsAre(Pair(connection, 100)));
}

TEST_F(NetworkTest, AFrozenProcessHearsAllOfItLater) {
  Build(2, {100});
  const ConnectionId connection = network_.Connect(0, 1);
  network_.Freeze(1, 5000);
  network_.SetTimer(1, 50, 7);
  Send(connection, 0, 1, 0);
  Send(connection, 0, 2, 0);
  Run();
  EXPECT_THAT(ears_[1]->timers, ElementsAre(Pair(7, 5000)));
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(1, 5000), Pair(2, 5000)));
}

TEST_F(NetworkTest, ACrashedProcessIsSilentAndOthersHearOfIt) {
  Build(2, {100});
  const ConnectionId connection = network_.Connect(0, 1);
  network_.SetTimer(1, 50, 7);
  Send(connection, 0, 1, 0);
  network_.Crash(1);
  Run();
  EXPECT_THAT(ears_[1]->heard, IsEmpty());
  EXPECT_THAT(ears_[1]->timers, IsEmpty());
  EXPECT_THAT(ears_[0]->broken, ElementsAre(Pair(connection, 100)));
  // Who calls it later hears so as well.
  const ConnectionId late = network_.Connect(0, 1);
  Run();
  EXPECT_EQ(ears_[0]->broken.back(), std::pair(late, SimTime{200}));
}

TEST_F(NetworkTest, ACutHoldsMessagesBackAndALongOneBreaksConnections) {
  Build(2, {100});
  const ConnectionId connection = network_.Connect(0, 1);
  network_.Cut(1, kSecond);
  Send(connection, 0, 1, 0);
  Send(connection, 1, 2, 0);
  Run();
  EXPECT_THAT(ears_[1]->heard, ElementsAre(Pair(1, kSecond)));
  EXPECT_THAT(ears_[0]->heard, ElementsAre(Pair(2, kSecond + 100)));
  network_.Cut(1, 60 * kSecond);
  Run();
  EXPECT_THAT(ears_[0]->broken, ElementsAre(Pair(connection, kSecond + 100 + 20 * kSecond)));
  EXPECT_THAT(ears_[1]->broken, ElementsAre(Pair(connection, kSecond + 100 + 20 * kSecond)));
}

}  // namespace
}  // namespace rubato
