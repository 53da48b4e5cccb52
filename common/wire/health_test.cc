#include "common/wire/health.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_matchers.h"
#include "common/wire/channel.h"
#include "common/wire/connection_options.h"
#include "common/wire/listener.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr int kServing = 1, kNotServing = 2;  // grpc.health.v1.HealthCheckResponse.ServingStatus
constexpr int kRefused = -1;

// What the server at `address` says of `service`, as a probe asks: by the bytes of the messages.
int Ask(const std::string& address, const std::string& service) {
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  const std::string question = absl::StrCat("\x0a", std::string(1, char(service.size())), service);
  const grpc::Slice slice(question);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(100)));
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  grpc::Slice answer;
  if (!status.ok() || !reply.TrySingleSlice(&answer).ok() || answer.size() != 2) return kRefused;
  return answer.begin()[1];
}

TEST(HealthTest, SaysWhetherAProcessIsAliveAndTakesPart) {
  const auto health = HealthListener::Listen("127.0.0.1:0");
  ASSERT_THAT(health, IsOk());
  const std::string& address = (*health)->address();
  EXPECT_EQ(Ask(address, "live"), kServing);
  EXPECT_EQ(Ask(address, "ready"), kNotServing);
  (*health)->SetReady(true);
  EXPECT_EQ(Ask(address, "ready"), kServing);
  (*health)->SetReady(false);
  EXPECT_EQ(Ask(address, "ready"), kNotServing);
  EXPECT_EQ(Ask(address, "job"), kRefused);
}

// The port of the job is for those who hold its key.
TEST(HealthTest, OtherServersOfTheProcessSayNothing) {
  const auto health = HealthListener::Listen("127.0.0.1:0");
  ASSERT_THAT(health, IsOk());
  grpc::CallbackGenericService nothing;
  const auto listener = Listener::Listen(
      "127.0.0.1:0", ConnectionOptions(), [](const std::string&) {},
      [&nothing](grpc::ServerBuilder* builder) {
        builder->RegisterCallbackGenericService(&nothing);
      });
  ASSERT_THAT(listener, IsOk());
  EXPECT_EQ(Ask(listener->address(), "live"), kRefused);
}

// One that says nothing, at 127.0.0.1.
int ConnectTo(absl::string_view address) {
  uint32_t port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  return fd;
}

// Reads what there is, or, without MSG_DONTWAIT, all to the end. Whether that has come.
bool HasEnded(int fd, int flags) {
  char bytes[1024];
  ssize_t got;
  while ((got = recv(fd, bytes, sizeof bytes, flags)) > 0) {
  }
  return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

TEST(HealthTest, WhoComesWhenThereAreTooManyTakesThePlaceOfTheOldest) {
  const auto health = HealthListener::Listen("127.0.0.1:0");
  ASSERT_THAT(health, IsOk());
  std::vector<int> connections;
  for (int i = 0; i < 17; ++i) connections.push_back(ConnectTo((*health)->address()));
  EXPECT_TRUE(HasEnded(connections[0], 0));
  for (int i = 1; i < 17; ++i) EXPECT_FALSE(HasEnded(connections[i], MSG_DONTWAIT)) << i;
  EXPECT_EQ(Ask((*health)->address(), "live"), kServing);
  for (const int connection : connections) close(connection);
}

TEST(HealthTest, APortInUseIsSaid) {
  const auto health = HealthListener::Listen("127.0.0.1:0");
  ASSERT_THAT(health, IsOk());
  EXPECT_THAT(HealthListener::Listen((*health)->address()),
              IsError(absl::StatusCode::kUnavailable, testing::HasSubstr("cannot listen at")));
}

}  // namespace
}  // namespace rubato
