#include "common/wire/reach.h"

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_matchers.h"
#include "common/wire/connection_options.h"
#include "common/wire/listener.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kLong = absl::Seconds(100);        // for what comes
constexpr absl::Duration kShort = absl::Milliseconds(100);  // for what does not

// A port that is bound, listens with this backlog if there is one, and accepts nobody.
class Port {
 public:
  explicit Port(std::optional<int> backlog) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    RUBATO_CHECK(bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    RUBATO_CHECK(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    if (backlog.has_value()) Listen(*backlog);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Port() { close(fd_); }

  const std::string& address() const { return address_; }
  void Listen(int backlog) const { RUBATO_CHECK(listen(fd_, backlog) == 0); }

 private:
  const int fd_;
  std::string address_;
};

// A server of a job, as far as it concerns who looks for it.
absl::StatusOr<Listener> StartServer(grpc::CallbackGenericService* service) {
  return Listener::Listen(
      "127.0.0.1:0", ConnectionOptions(), [](const std::string&) {},
      [service](auto* builder) { builder->RegisterCallbackGenericService(service); });
}

ConnectionOptions WithLease(absl::Duration lease) {
  ConnectionOptions connection;
  connection.lease = lease;
  return connection;
}

TEST(LookForTest, AServerAnswers) {
  grpc::CallbackGenericService service;
  const absl::StatusOr<Listener> listener = StartServer(&service);
  ASSERT_THAT(listener, IsOk());
  EXPECT_THAT(LookFor({listener->address()}, Greeting::kPlain, kLong),
              ElementsAre(Reach::kAnswers));
}

TEST(LookForTest, WhereNobodyListensItIsGone) {
  EXPECT_THAT(LookFor({Port(std::nullopt).address()}, Greeting::kPlain, kLong),
              ElementsAre(Reach::kGone));
}

// As a frozen one: its host takes connections for it.
TEST(LookForTest, AServerThatSaysNothingIsMute) {
  const Port mute(16);
  EXPECT_THAT(LookFor({mute.address()}, Greeting::kPlain, kShort), ElementsAre(Reach::kMute));
}

TEST(LookForTest, WhoHasNoTimeLeftStillSeesWhatHasCome) {
  const Port mute(16);
  EXPECT_THAT(LookFor({mute.address()}, Greeting::kPlain, absl::ZeroDuration()),
              ElementsAre(Reach::kMute));
}

// The kernel drops what a full queue has no place for, as a cut network drops all.
TEST(LookForTest, WhereNothingComesBackItIsSilent) {
  const Port full(0);
  const std::string& address = full.address();
  EXPECT_THAT(LookFor({address, address, address, address}, Greeting::kPlain, kShort),
              testing::Contains(Reach::kSilent));
}

TEST(LookForTest, OfSeveralAddressesTheBestCounts) {
  const Port mute(16), gone(std::nullopt);
  EXPECT_THAT(LookFor({absl::StrCat(gone.address(), ",", mute.address()), gone.address()},
                      Greeting::kPlain, kShort),
              ElementsAre(Reach::kMute, Reach::kGone));
}

TEST(AwaitServersTest, ReturnsWhenAllAnswerOrOneHasEndedOrAllAreFrozen) {
  constexpr absl::Duration kHeard = absl::Hours(1), kSilence = absl::ZeroDuration();
  grpc::CallbackGenericService service;
  const absl::StatusOr<Listener> listener = StartServer(&service);
  ASSERT_THAT(listener, IsOk());
  const std::string& there = listener->address();
  const Port mute(16), gone(std::nullopt);
  const auto await = [](const std::vector<std::string>& addresses, absl::Duration longest_mute,
                        absl::Duration patience, bool cancelled = false) {
    return AwaitServers(addresses, WithLease(kHeard), /*come_back=*/false, longest_mute, patience,
                        [cancelled] { return cancelled; })
        .code();
  };
  using Code = absl::StatusCode;
  EXPECT_EQ(await({there, there}, kSilence, kLong), Code::kOk);
  EXPECT_EQ(await({there, mute.address(), gone.address()}, kHeard, kLong), Code::kUnavailable);
  EXPECT_EQ(await({mute.address(), mute.address()}, kSilence, kLong), Code::kUnavailable);
  // Who has ended for the coordinator's silence is not to blame.
  EXPECT_EQ(await({mute.address(), gone.address()}, kHeard, kLong), Code::kUnavailable);
  EXPECT_EQ(await({gone.address(), mute.address()}, kHeard, kLong), Code::kAborted);
  EXPECT_EQ(await({mute.address(), mute.address()}, kHeard, kShort), Code::kDeadlineExceeded);
  EXPECT_EQ(await({mute.address(), mute.address()}, absl::Milliseconds(500), kLong),
            Code::kUnavailable);
  EXPECT_EQ(await({there, mute.address()}, kSilence, kShort), Code::kDeadlineExceeded);
  EXPECT_EQ(await({there, mute.address()}, kSilence, kLong, true), Code::kCancelled);
}

// What it has not heard meanwhile says nothing of the servers.
TEST(AwaitServersTest, WhoWasCutOffGivesMuteServersALease) {
  const Port port(0);
  const std::string& address = port.address();
  int looks = 0;
  const auto cancelled = [&] {
    port.Listen(16);  // the network is whole again, and the servers are busy
    return ++looks == 4;
  };
  EXPECT_EQ(AwaitServers({address, address, address, address}, WithLease(absl::Hours(1)),
                         /*come_back=*/false, absl::ZeroDuration(), kLong, cancelled)
                .code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(looks, 4);
}

TEST(AwaitServersTest, WaitsForACoordinatorThatComesBackAndNotForShardsThatHaveEnded) {
  grpc::CallbackGenericService service;
  const absl::StatusOr<Listener> listener = StartServer(&service);
  ASSERT_THAT(listener, IsOk());
  const std::string& there = listener->address();
  const Port mute(16), gone(std::nullopt);
  const auto await = [](const std::vector<std::string>& addresses, absl::Duration patience) {
    return AwaitServers(addresses, WithLease(absl::ZeroDuration()), /*come_back=*/true,
                        /*longest_mute=*/absl::ZeroDuration(), patience, [] { return false; })
        .code();
  };
  using Code = absl::StatusCode;
  EXPECT_EQ(await({there, there}, kLong), Code::kOk);
  EXPECT_EQ(await({gone.address(), there}, kLong), Code::kOk);
  // One that is there and silent may be cut off from this process alone.
  EXPECT_EQ(await({mute.address(), there}, kShort), Code::kDeadlineExceeded);
  EXPECT_EQ(await({there, gone.address()}, kShort), Code::kDeadlineExceeded);
  EXPECT_EQ(await({there, mute.address()}, kShort), Code::kDeadlineExceeded);
  EXPECT_EQ(await({gone.address(), mute.address()}, kShort), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace rubato
