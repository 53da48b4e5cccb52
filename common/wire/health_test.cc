#include "common/wire/health.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <string>

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

TEST(HealthTest, APortInUseIsSaid) {
  const auto health = HealthListener::Listen("127.0.0.1:0");
  ASSERT_THAT(health, IsOk());
  EXPECT_THAT(HealthListener::Listen((*health)->address()),
              IsError(absl::StatusCode::kUnavailable, testing::HasSubstr("cannot listen at")));
}

}  // namespace
}  // namespace rubato
