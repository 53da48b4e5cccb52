#include "common/wire/control_client.h"

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/base/check.h"
#include "common/base/status_matchers.h"
#include "common/wire/listener.h"
#include "common/wire/reach.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// A name whose address changes: of a table of hosts that this process alone has, and asks alone.
class ControlClientTest : public testing::Test {
 protected:
  // Before there are threads.
  static void SetUpTestSuite() {
    const std::string user = absl::StrCat(getuid()), group = absl::StrCat(getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    SetHosts("127.0.0.2 coordinator.test");
    const std::string names = testing::TempDir() + "/nsswitch.conf";
    std::ofstream(names) << "hosts: files\n";
    has_hosts_ = mount(HostsFile().c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0 &&
                 mount(names.c_str(), "/etc/nsswitch.conf", nullptr, MS_BIND, nullptr) == 0;
  }

  void SetUp() override {
    if (!has_hosts_) GTEST_SKIP() << "no user namespaces";
  }

  static std::string HostsFile() { return testing::TempDir() + "/hosts"; }
  static void SetHosts(const std::string& hosts) { std::ofstream(HostsFile()) << hosts << "\n"; }

  static inline bool has_hosts_ = false;
};

// Listens at 127.0.0.2, where callers wait for a word.
int ListenMutely(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = inet_addr("127.0.0.2");
  RUBATO_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  RUBATO_CHECK(listen(fd, 8) == 0);
  return fd;
}

// Of gRPC one attempt takes 20 s, in which it does not look the name up again.
TEST_F(ControlClientTest, ANameThatStandsForAnotherAddressIsFollowedAtOnce) {
  const ConnectionOptions connection;
  grpc::CallbackGenericService service;
  const absl::StatusOr<Listener> listener = Listener::Listen(
      "127.0.0.1:0", connection, [](const std::string&) {},
      [&service](auto* builder) { builder->RegisterCallbackGenericService(&service); });
  ASSERT_THAT(listener, IsOk());
  const int port = ParseAddress(listener->address())->port;
  const int mute = ListenMutely(port);
  int caller = -1;  // stays open: gRPC would try again where it is closed
  std::thread mover([&] {
    caller = accept(mute, nullptr, nullptr);
    SetHosts("127.0.0.1 coordinator.test");
  });
  EXPECT_THAT(ControlClient::Connect(
                  absl::StrCat("coordinator.test:", port), absl::Seconds(15), proto::Registration(),
                  [] { return false; }, connection),
              IsOk());
  mover.join();
  close(caller);
  close(mute);
}

TEST_F(ControlClientTest, AHostWhoseNameStandsForNothingIsGone) {
  EXPECT_THAT(LookFor({"nobody.test:1"}, Greeting::kPlain, absl::ZeroDuration()),
              testing::ElementsAre(Reach::kGone));
  EXPECT_THAT(
      ControlClient::Connect(
          "nobody.test:1", absl::Milliseconds(200), proto::Registration(), [] { return false; },
          ConnectionOptions())
          .status(),
      IsError(absl::StatusCode::kDeadlineExceeded,
              testing::HasSubstr("at nobody.test:1 within 200ms: its name is not known here")));
}

// Ends the first connection as who wants a certificate does, before or after it has read what it
// was sent, or as a server of HTTP/1. Then a new channel, to whoever takes connections there by
// now, has nothing to tell of.
TEST(ConnectTest, WhatAServerHasSaidIsToldAlsoIfItThenSaysNothing) {
  enum class End { kReset, kClose, kAnswer };
  constexpr char kCloses[] = "the server closes the connection as it begins: it is ending, or wa";
  const std::pair<End, const char*> kEnds[] = {{End::kReset, kCloses},
                                               {End::kClose, kCloses},
                                               {End::kAnswer, "the server is none of Rubato's"}};
  for (const auto& [end, says] : kEnds) {
    const int listener = ListenMutely(/*port=*/0);
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    int caller = -1;
    std::thread closes([&, end = end] {
      char byte;
      caller = accept(listener, nullptr, nullptr);
      recv(caller, &byte, 1, MSG_PEEK);
      constexpr absl::string_view kBad = "HTTP/1.0 400 Bad Request\r\n\r\n";
      if (end == End::kAnswer) send(caller, kBad.data(), kBad.size(), 0);
      end == End::kReset ? close(caller) : shutdown(caller, SHUT_WR);
    });
    std::vector<std::string> told;
    EXPECT_THAT(ControlClient::Connect(
                    absl::StrCat("127.0.0.2:", ntohs(address.sin_port)), absl::Seconds(3),
                    proto::Registration(), [] { return false; }, ConnectionOptions(),
                    [&told](const std::string& why) { told.push_back(why); })
                    .status(),
                IsError(absl::StatusCode::kDeadlineExceeded,
                        testing::HasSubstr(absl::StrCat("within 3s: ", says))));
    EXPECT_THAT(told, testing::ElementsAre(
                          testing::AllOf(testing::HasSubstr(absl::StrCat("within 1.5s: ", says)),
                                         testing::EndsWith("; tries for 3s in all"))));
    closes.join();
    if (end != End::kReset) close(caller);
    close(listener);
  }
}

// A coordinator that listens to one peer and says nothing.
class Listening : public proto::Coordination::Service {
 public:
  Listening() {
    const ConnectionOptions connection;
    absl::StatusOr<Listener> listener = Listener::Listen(
        "127.0.0.1:0", connection, [](const std::string&) {},
        [this](auto* builder) { builder->RegisterService(this); });
    EXPECT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
    absl::StatusOr<std::unique_ptr<ControlClient>> client = ControlClient::Connect(
        listener_->address(), absl::Seconds(30), proto::Registration(), [] { return false; },
        connection);
    EXPECT_THAT(client, IsOk());
    client_ = *std::move(client);
    client_->Start({[](const proto::CoordinatorMessage&) {}, [](const absl::Status&) {}});
  }
  ~Listening() override {
    client_.reset();
    listener_->Shutdown();
  }

  ControlClient& client() { return *client_; }
  // Those that came together in one each, when `enough` says that no more are to be waited for.
  std::vector<proto::PeerMessage> Await(std::function<bool(const proto::PeerMessage&)> enough) {
    const auto is_there = [this, &enough]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !heard_.empty() && enough(heard_.back());
    };
    absl::MutexLock lock(&mutex_, absl::Condition(&is_there));
    return heard_;
  }

 private:
  using Stream = grpc::ServerReaderWriter<proto::CoordinatorMessage, proto::PeerMessage>;
  grpc::Status Join(grpc::ServerContext*, Stream* stream) override {
    stream->SendInitialMetadata();
    for (proto::PeerMessage message; stream->Read(&message);) {
      absl::MutexLock lock(&mutex_);
      heard_.push_back(message);
    }
    return grpc::Status::OK;
  }

  absl::Mutex mutex_;
  std::vector<proto::PeerMessage> heard_ ABSL_GUARDED_BY(mutex_);
  std::optional<Listener> listener_;
  std::unique_ptr<ControlClient> client_;
};

proto::PeerMessage ProgressOf(int64_t unit) {
  proto::PeerMessage message;
  message.mutable_progress()->set_unit(unit);
  return message;
}

// Of those that have come together.
const proto::PeerMessage& Last(const proto::PeerMessage& message) {
  return message.then_size() > 0 ? *message.then().rbegin() : message;
}

std::vector<proto::PeerMessage> OneByOne(const std::vector<proto::PeerMessage>& together) {
  std::vector<proto::PeerMessage> messages;
  for (const proto::PeerMessage& message : together) {
    messages.push_back(message);
    for (const proto::PeerMessage& next : message.then()) messages.push_back(next);
  }
  return messages;
}

TEST(ControlClientBatchesTest, WhatMayComeLaterComesTogetherInOrder) {
  constexpr int kMany = 2000;
  Listening coordinator;
  const absl::Time begin = MonotonicNow();
  for (int unit = 0; unit < kMany; ++unit) coordinator.client().Send(ProgressOf(unit));
  proto::PeerMessage idle;
  idle.mutable_idle()->set_view(1);
  coordinator.client().Send(idle);
  const std::vector<proto::PeerMessage> heard =
      coordinator.Await([](const auto& message) { return Last(message).has_idle(); });
  const double seconds = absl::ToDoubleSeconds(MonotonicNow() - begin);
  EXPECT_LT(heard.size(), kMany / 10);
  const std::vector<proto::PeerMessage> messages = OneByOne(heard);
  ASSERT_EQ(messages.size(), 1 + kMany + 1);
  EXPECT_TRUE(messages[0].has_registration());
  for (int unit = 0; unit < kMany; ++unit) {
    const proto::PeerMessage& message = messages[1 + unit];
    ASSERT_TRUE(message.has_progress());
    EXPECT_EQ(message.progress().unit(), unit);
    EXPECT_TRUE(message.has_held_seconds());
    EXPECT_LE(message.held_seconds(), seconds);
  }
  EXPECT_FALSE(messages.back().has_held_seconds());
}

TEST(ControlClientBatchesTest, NothingThatFollowsIsNeededForItToCome) {
  Listening coordinator;
  for (int unit = 0; unit < 3; ++unit) {
    coordinator.client().Send(ProgressOf(unit));
    const auto heard = coordinator.Await([unit](const auto& message) {
      return Last(message).has_progress() && Last(message).progress().unit() == unit;
    });
    EXPECT_GE(heard.back().held_seconds(), absl::ToDoubleSeconds(ControlClient::kHeldFor));
  }
}

TEST(ControlClientBatchesTest, WhatIsLargeIsNotHeldBack) {
  constexpr size_t kSize = 10'000, kMost = 64 << 10;
  Listening coordinator;
  proto::PeerMessage large = ProgressOf(0);
  for (size_t i = 0; i < kSize / sizeof(double); ++i) large.mutable_progress()->add_loss_sum(1);
  for (int unit = 1; unit <= 100; ++unit) {
    large.mutable_progress()->set_unit(unit);
    coordinator.client().Send(large);
  }
  const auto heard =
      coordinator.Await([](const auto& message) { return Last(message).progress().unit() == 100; });
  EXPECT_EQ(OneByOne(heard).size(), 1 + 100);
  for (const auto& message : heard) EXPECT_LT(message.ByteSizeLong(), kMost + 2 * kSize);
}

}  // namespace
}  // namespace rubato
