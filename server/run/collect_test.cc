#include "server/run/collect.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/status_matchers.h"
#include "common/space/placement.h"
#include "common/wire/data_service.h"
#include "common/wire/listener.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

// Its connections are made, and nobody says a word: as of a shard that is cut off.
class SilentServer {
 public:
  SilentServer() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentServer() { close(socket_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int socket_;
  int port_ = 0;
};

// A job with so many parameters on one shard, and a server that answers a pull of that with what
// `answer` says: by block and slot.
class Shard {
 public:
  using Answers = std::vector<std::pair<int64_t, int>>;

  Shard(int64_t parameters, int64_t chunk, std::function<Answers(Range asked)> answer)
      : answer_(std::move(answer)) {
    job_.mutable_cluster()->set_servers(1);
    job_.mutable_wire()->set_chunk(chunk);
    view_.set_number(1);
    view_.mutable_layout()->add_parameters()->add_shape(parameters);
    Placement::Even(SpaceOf(job_, view_.layout()), 1).AddTo(&view_);
    absl::StatusOr<Listener> listener = Listener::Listen(
        "127.0.0.1:0", ConnectionOptions(), [](const std::string&) {},
        [&](grpc::ServerBuilder* builder) { service_.Register(builder); });
    RUBATO_CHECK(listener.ok());
    listener_.emplace(*std::move(listener));
    view_.mutable_shards(0)->set_address(listener_->address());
    service_.Start({[this](uint64_t stream, const Frame& pull, const ReceivedValues&) {
                      for (const auto& [block, slot] : answer_(pull.blocks())) {
                        Answer(stream, block, slot);
                      }
                      return absl::OkStatus();
                    },
                    [](uint64_t) {}});
  }
  ~Shard() {
    listener_->Shutdown();
    service_.Stop();
  }

  absl::Status Read(int slots, absl::Duration silence, TakeBlock take) const {
    Selection selection;
    selection.slots = slots;
    CollectEnd end;
    return ReadBlocks(job_, view_, 0, selection, "digest", {}, silence, &end, take);
  }

 private:
  // Slot k begins with 100 k.
  void Answer(uint64_t stream, int64_t block, int slot) {
    Frame frame;
    frame.kind = FrameKind::kParameters;
    frame.block = static_cast<uint64_t>(block);
    frame.slot = static_cast<uint32_t>(slot);
    const Range range = SpaceOf(job_, view_.layout()).BlockValues(block);
    const auto values = std::make_shared<std::vector<float>>(range.size());
    std::iota(values->begin(), values->end(), static_cast<float>(100 * slot + range.begin));
    service_.Send(stream, frame, Payload{values, *values});
  }

  proto::Job job_;
  proto::View view_;
  const std::function<Answers(Range asked)> answer_;
  const Log log_{"server", 0, LogLevel::kWarning};
  DataService service_{"digest", /*share_memory=*/false, &log_};
  std::optional<Listener> listener_;
};

// What is read, by vector, of a job with 20 parameters in blocks of 16 and 4, from a shard that
// gives these answers.
absl::StatusOr<std::vector<std::vector<float>>> Collect(const Shard::Answers& answers, int slots,
                                                        absl::Duration silence) {
  const Shard shard(20, 64, [&](Range) { return answers; });
  std::vector<std::vector<float>> vectors(1 + slots);
  RUBATO_RETURN_IF_ERROR(
      shard.Read(slots, silence, [&](int64_t, size_t vector, absl::Span<const float> values) {
        vectors[vector].insert(vectors[vector].end(), values.begin(), values.end());
        return absl::OkStatus();
      }));
  return vectors;
}

TEST(CollectTest, HasAllBlocksAndSlotsInWhateverOrderTheyCome) {
  const auto state =
      Collect({{1, 0}, {0, 1}, {0, 0}, {1, 1}}, /*slots=*/1, absl::InfiniteDuration());
  RUBATO_ASSERT_OK(state);
  std::vector<float> parameters(20), slot(20);
  std::iota(parameters.begin(), parameters.end(), 0.f);
  std::iota(slot.begin(), slot.end(), 100.f);
  EXPECT_EQ((*state)[0], parameters);
  EXPECT_EQ((*state)[1], slot);
}

// Blocks of a megabyte: some sixteen are asked for at a time.
TEST(CollectTest, OfALargeShardAsMuchIsUnderWayAsTheWindowHolds) {
  constexpr int64_t kBlocks = 100, kValues = 1 << 18;  // of a block
  int64_t max_asked = 0;
  const Shard shard(kBlocks * kValues, 1 << 20, [&](Range asked) {
    max_asked = std::max(max_asked, asked.size());
    Shard::Answers answers;
    for (int64_t block = asked.begin; block < asked.end; ++block) answers.emplace_back(block, 0);
    return answers;
  });
  int64_t next = 0;
  RUBATO_ASSERT_OK(shard.Read(/*slots=*/0, absl::InfiniteDuration(),
                              [&](int64_t block, size_t, absl::Span<const float> values) {
                                EXPECT_EQ(block, next++);
                                EXPECT_EQ(values.front(), static_cast<float>(block * kValues));
                                return absl::OkStatus();
                              }));
  EXPECT_EQ(next, kBlocks);
  EXPECT_LE(max_asked, 16);
}

TEST(CollectTest, AnErrorOfWhoTakesTheBlocksEndsIt) {
  const Shard shard(20, 64, [](Range) { return Shard::Answers{{0, 0}, {1, 0}}; });
  int taken = 0;
  EXPECT_THAT(shard.Read(/*slots=*/0, absl::InfiniteDuration(),
                         [&](int64_t, size_t, absl::Span<const float>) {
                           ++taken;
                           return absl::ResourceExhaustedError("the disk is full");
                         }),
              IsError(absl::StatusCode::kResourceExhausted, "the disk is full"));
  EXPECT_EQ(taken, 1);
}

TEST(CollectTest, ABlockThatComesTwiceStandsForNoOther) {
  EXPECT_THAT(Collect({{0, 0}, {0, 0}}, /*slots=*/0, absl::Milliseconds(100)),
              IsError(absl::StatusCode::kDeadlineExceeded, HasSubstr("of 2 blocks")));
  EXPECT_THAT(Collect({{0, 1}, {0, 1}, {1, 0}, {1, 1}}, /*slots=*/1, absl::Milliseconds(100)),
              IsError(absl::StatusCode::kDeadlineExceeded, HasSubstr("of 4 blocks")));
}

// As of 7 blocks through a slow network: 12 s in all, with a silence of 2 s at most.
TEST(CollectTest, BlocksThatKeepComingAreWaitedFor) {
  absl::Time now = absl::UnixEpoch();
  AwaitedBlocks awaited(/*blocks=*/7, /*slots=*/1, absl::Seconds(2.5), now);
  for (int64_t block = 0; block < 6; ++block) {
    now += absl::Seconds(2);
    EXPECT_LT(now, awaited.deadline()) << block;
    awaited.OnBlock(block, 0, now);
  }
  EXPECT_EQ(awaited.missing(), 1);
  EXPECT_EQ(awaited.deadline(), now + absl::Seconds(2.5));
  awaited.OnBlock(0, 0, now + absl::Seconds(2));  // nothing new
  EXPECT_EQ(awaited.deadline(), now + absl::Seconds(2.5));
}

TEST(CollectTest, EndsWhenItIsToldToThoughAConnectionIsStillBeingMade) {
  const SilentServer server;
  proto::Job job;
  job.mutable_cluster()->set_servers(1);
  job.mutable_wire()->set_chunk(64);
  proto::View view;
  view.set_number(1);
  view.mutable_layout()->add_parameters()->add_shape(10);
  Placement::Even(SpaceOf(job, view.layout()), 1).AddTo(&view);
  view.mutable_shards(0)->set_address(server.address());
  CollectEnd end;
  std::thread other([&] { end.Set(); });
  EXPECT_THAT(ReadBlocks(job, view, 0, {}, "digest", {}, absl::InfiniteDuration(), &end,
                         [](int64_t, size_t, absl::Span<const float>) { return absl::OkStatus(); }),
              IsError(absl::StatusCode::kCancelled, "the job has ended"));
  other.join();
}

}  // namespace
}  // namespace rubato
