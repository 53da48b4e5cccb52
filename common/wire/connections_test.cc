#include "common/wire/connections.h"

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/status_matchers.h"
#include "common/wire/channel.h"
#include "common/wire/connection_options.h"
#include "common/wire/listener.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr uint64_t kMaxBytes = 1000, kMaxUnread = 5000;

Connections::Limits Limits(size_t strangers) { return {strangers, kMaxBytes, kMaxUnread}; }

// Both ends of a TCP connection of loopback.
class Connection {
 public:
  Connection() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    RUBATO_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
    RUBATO_CHECK(listen(listener, 1) == 0);
    RUBATO_CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    RUBATO_CHECK(connect(client_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    sockaddr_in own = {};
    RUBATO_CHECK(getsockname(client_, reinterpret_cast<sockaddr*>(&own), &size) == 0);
    peer_ = "ipv4:127.0.0.1:" + std::to_string(ntohs(own.sin_port));
    server_ = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Connection() {
    close(server_);
    if (client_ >= 0) close(client_);
  }
  Connection(const Connection&) = delete;

  int server() const { return server_; }
  const std::string& peer() const { return peer_; }
  void Send(size_t bytes) {
    const std::string text(bytes, 'x');
    RUBATO_CHECK(send(client_, text.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  }
  void Hang() { close(std::exchange(client_, -1)); }
  bool is_broken() const {
    pollfd look = {client_, POLLRDHUP, 0};
    return poll(&look, 1, 0) == 1;
  }

 private:
  int client_ = -1, server_ = -1;
  std::string peer_;
};

TEST(ConnectionsTest, WhoSaysNothingForTooLongIsBroken) {
  Connections connections(Limits(8));
  Connection silent, later, known;
  connections.Add(silent.server(), kStart);
  connections.Add(known.server(), kStart);
  connections.Add(later.server(), kStart + absl::Seconds(1));
  connections.OnKnown(known.peer());
  connections.Look(kStart + Connections::kPatience - absl::Milliseconds(1));
  EXPECT_FALSE(silent.is_broken());
  connections.Look(kStart + Connections::kPatience);
  EXPECT_TRUE(silent.is_broken());
  EXPECT_FALSE(known.is_broken());
  EXPECT_FALSE(later.is_broken());
}

bool IsEmpty(const Connections& connections) {
  return connections.UntilNextLook() == absl::InfiniteDuration();
}

// Bytes of this process that are in memory.
int64_t Resident() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(ConnectionsTest, WhatThoseLeaveWhoHaveSentMuchIsGivenBack) {
  KeepFreedMemory();
  constexpr int64_t kLeft = 100 << 20;
  Connections connections(Limits(8));
  for (const bool much : {false, true}) {
    Connection connection;
    connections.Add(connection.server(), kStart);
    connection.Send(much ? Connections::kMuch + 1 : kMaxBytes + 1);
    {
      std::vector<std::unique_ptr<std::string>> held;
      for (int64_t at = 0; at < kLeft; at += 10'000) {
        held.push_back(std::make_unique<std::string>(10'000, 'x'));
      }
    }
    connections.Look(kStart);
    const int64_t before = Resident();
    EXPECT_EQ(IsEmpty(connections), !much);
    connections.Look(kStart + Connections::kUntilFreed);
    EXPECT_TRUE(IsEmpty(connections));
    EXPECT_EQ(before - Resident() > kLeft / 2, much);
  }
}

TEST(ConnectionsTest, WhoSendsTooMuchIsBroken) {
  Connections connections(Limits(8));
  Connection modest, greedy, known;
  for (const Connection* connection : {&modest, &greedy, &known}) {
    connections.Add(connection->server(), kStart);
  }
  connections.OnKnown(known.peer());
  modest.Send(kMaxBytes);
  greedy.Send(kMaxBytes + 1);
  known.Send(kMaxBytes + 1);
  connections.Look(kStart);
  EXPECT_FALSE(modest.is_broken());
  EXPECT_TRUE(greedy.is_broken());
  EXPECT_FALSE(known.is_broken());
}

TEST(ConnectionsTest, WhoIsKnownMaySendWithoutEndButNotOneMessage) {
  Connections connections(Limits(8));
  Connection honest, greedy;
  for (const Connection* connection : {&honest, &greedy}) {
    connections.Add(connection->server(), kStart);
  }
  const Connections::HasRead has_read = connections.OnKnown(honest.peer());
  connections.OnKnown(greedy.peer());
  absl::Time now = kStart;
  const auto send = [&](size_t bytes) {
    honest.Send(bytes);
    greedy.Send(bytes);
    *has_read = true;
    connections.Look(now += absl::Seconds(1));
  };
  send(kMaxUnread + 1);  // before the first look
  send(kMaxUnread);
  EXPECT_FALSE(greedy.is_broken());
  send(1);
  EXPECT_TRUE(greedy.is_broken());
  EXPECT_FALSE(honest.is_broken());
}

// Whether one of them, of which there are `count`, has something to tell.
bool Tells(const Connections& connections, size_t count) {
  std::vector<pollfd> fds;
  for (const int fd : connections.Silent()) fds.push_back({fd, POLLIN | POLLRDHUP, 0});
  EXPECT_EQ(fds.size(), count);
  return poll(fds.data(), fds.size(), 0) > 0;
}

TEST(ConnectionsTest, SilentOnesNeedNoLookUntilTheyTellSomething) {
  Connections connections(Limits(8));
  Connection first, second;
  absl::Time now = kStart;
  const auto look = [&] { connections.Look(now += absl::Seconds(1)); };
  for (Connection* one : {&first, &second}) {
    connections.Add(one->server(), now);
    EXPECT_TRUE(connections.Silent().empty());  // of a stranger a look is due
    connections.OnKnown(one->peer());
  }
  look();
  EXPECT_FALSE(Tells(connections, 2));
  first.Send(100);
  EXPECT_TRUE(Tells(connections, 2));
  look();  // it has come
  EXPECT_TRUE(connections.Silent().empty());
  look();  // it waits to be read, and may go on
  EXPECT_TRUE(connections.Silent().empty());
  char bytes[100];
  ASSERT_EQ(recv(first.server(), bytes, sizeof bytes, MSG_WAITALL), 100);
  look();
  EXPECT_FALSE(Tells(connections, 2));
  first.Send(100);
  ASSERT_EQ(recv(first.server(), bytes, sizeof bytes, MSG_WAITALL), 100);
  look();  // it has come, and does not wait any more
  EXPECT_TRUE(connections.Silent().empty());
  look();
  EXPECT_FALSE(Tells(connections, 2));
  // Woken by something else, before a look at known ones is due.
  connections.Look(now + absl::Milliseconds(1));
  EXPECT_TRUE(connections.Silent().empty());
  look();
  second.Hang();
  EXPECT_TRUE(Tells(connections, 2));
  look();
  look();
  EXPECT_FALSE(Tells(connections, 1));
  first.Send(kMaxUnread + 1);
  look();
  EXPECT_TRUE(first.is_broken());
}

TEST(ConnectionsTest, OfTooManyTheOldestIsBroken) {
  Connections connections(Limits(2));
  Connection known, first, second, third;
  for (const Connection* connection : {&known, &first, &second}) {
    connections.Add(connection->server(), kStart);
    connections.OnKnown(known.peer());
  }
  EXPECT_FALSE(first.is_broken());
  connections.Add(third.server(), kStart);
  EXPECT_FALSE(known.is_broken());
  EXPECT_TRUE(first.is_broken());
  EXPECT_FALSE(second.is_broken());
  EXPECT_FALSE(third.is_broken());
}

TEST(ConnectionsTest, WhoHasGoneIsForgotten) {
  Connections connections(Limits(8));
  Connection gone;
  connections.Add(gone.server(), kStart);
  connections.Look(kStart);
  EXPECT_FALSE(IsEmpty(connections));
  gone.Hang();
  connections.Look(kStart);
  EXPECT_TRUE(IsEmpty(connections));
}

// Says who has called, and nothing.
class Service : public grpc::CallbackGenericService {
 public:
  explicit Service(Connections* connections) : connections_(connections) {}

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { Finish(grpc::Status::OK); }
    void OnDone() override { delete this; }
  };
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    EXPECT_EQ(connections_->UntilNextLook(), Connections::kBetweenLooks);
    connections_->OnKnown(context->peer());
    return new Reactor;
  }

  Connections* const connections_;
};

// By the name that gRPC gives a peer its connection is found again.
TEST(ConnectionsTest, KnowsPeersByTheNameThatGrpcGivesThem) {
  for (const std::string host : {"127.0.0.1", "[::1]", "localhost"}) {
    ConnectionOptions connection;
    connection.connections =
        std::make_shared<Connections>(Connections::Limits{8, 1 << 20, 1 << 20});
    Service service(connection.connections.get());
    absl::StatusOr<Listener> listener = Listener::Listen(
        host + ":0", connection, [](const std::string&) {},
        [&](auto* builder) { builder->RegisterCallbackGenericService(&service); });
    RUBATO_ASSERT_OK(listener);
    grpc::GenericStub stub(MakeChannel(listener->address(), ConnectionOptions()));
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, "/x", &queue);
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(&tag);
    ASSERT_TRUE(queue.Next(&tag, &ok));
    call->Finish(&status, &tag);
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(connection.connections->UntilNextLook(),
              Connections::kBetweenLooks + Connections::kForEachKnown)
        << host << ": one is known, and none a stranger";
    queue.Shutdown();
    listener->Shutdown();
  }
}

}  // namespace
}  // namespace rubato
