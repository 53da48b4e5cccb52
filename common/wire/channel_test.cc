#include "common/wire/channel.h"

#include <grpc/grpc.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/server_builder_option.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/lease.h"
#include "common/wire/reach.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr double kLeases[] = {0.2, 1, 2, 5, 3600};  // seconds; cluster.lease is 0.2 s at least

int ValueOf(const grpc::ChannelArguments& arguments, const std::string& name) {
  const grpc_channel_args all = arguments.c_channel_args();
  int found = -1;
  for (size_t i = 0; i < all.num_args; ++i) {
    if (all.args[i].key == name) found = all.args[i].value.integer;
  }
  return found;
}

// Keeps what a server is built with.
class Arguments : public grpc::ServerBuilderOption {
 public:
  explicit Arguments(grpc::ChannelArguments* out) : out_(out) {}
  void UpdateArguments(grpc::ChannelArguments* arguments) override { *out_ = *arguments; }
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*) override {}

 private:
  grpc::ChannelArguments* const out_;
};

// What a server gives to gRPC.
grpc::ChannelArguments ServerArgumentsOf(const ConnectionOptions& connection) {
  grpc::ChannelArguments server;
  grpc::ServerBuilder builder;
  grpc::CallbackGenericService service;
  builder.RegisterCallbackGenericService(&service);
  ConfigureServer(connection, &builder);
  builder.SetOption(std::make_unique<Arguments>(&server));
  EXPECT_NE(builder.BuildAndStart(), nullptr);
  return server;
}

ConnectionOptions WithLease(double seconds) {
  ConnectionOptions connection;
  connection.lease = absl::Seconds(seconds);
  return connection;
}

// Within the lease behind the last that came through; and of a worker that has one, the coordinator
// says before that it was not heard of. What counts is what gRPC is told. Whoever waits for a
// frozen server ends soon behind that, having looked whether it is cut off itself.
TEST(KeepAliveTest, ASilentPeerIsGivenUpWithinTheLease) {
  for (const double seconds : kLeases) {
    const absl::Duration lease = absl::Seconds(seconds);
    const ConnectionOptions connection = WithLease(seconds);
    for (const grpc::ChannelArguments& arguments :
         {ChannelArgumentsOf(connection), ServerArgumentsOf(connection)}) {
      const auto in_milliseconds = [&arguments](const char* name) {
        return absl::Milliseconds(ValueOf(arguments, name));
      };
      const absl::Duration answer = in_milliseconds(GRPC_ARG_KEEPALIVE_TIMEOUT_MS);
      EXPECT_LE(in_milliseconds(GRPC_ARG_KEEPALIVE_TIME_MS) + answer, lease);
      EXPECT_GT(answer, BorneSilence(lease) + LeaseTick(lease));
    }
    EXPECT_LE(kLookAtServers + kLookAgain, absl::Milliseconds(500));
  }
}

TEST(KeepAliveTest, BothEndsOfAConnectionKeepIt) {
  for (const double seconds : kLeases) {
    const KeepAlive keep_alive(absl::Seconds(seconds));
    const ConnectionOptions connection = WithLease(seconds);
    const grpc::ChannelArguments server = ServerArgumentsOf(connection);
    for (const grpc::ChannelArguments& arguments : {ChannelArgumentsOf(connection), server}) {
      EXPECT_LE(ValueOf(arguments, GRPC_ARG_KEEPALIVE_TIME_MS),
                absl::ToInt64Milliseconds(keep_alive.ask));
      EXPECT_EQ(ValueOf(arguments, GRPC_ARG_KEEPALIVE_TIMEOUT_MS),
                absl::ToInt64Milliseconds(keep_alive.answer));
      EXPECT_EQ(ValueOf(arguments, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA), 0);  // no limit
    }
    // A client that asks cannot do so again for a second: while the server lives, it need not.
    EXPECT_LT(ValueOf(server, GRPC_ARG_KEEPALIVE_TIME_MS),
              ValueOf(ChannelArgumentsOf(connection), GRPC_ARG_KEEPALIVE_TIME_MS));
    // Else the server would take its clients' questions for abuse.
    EXPECT_LT(ValueOf(server, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS),
              absl::ToInt64Milliseconds(keep_alive.ask));
  }
}

// An end says how long the frames may be that it takes.
TEST(ChannelTest, BothEndsTakeALargeBlockInOneFrameOfHttp2) {
  constexpr int kLargestBlock = 1 << 20;  // of wire.chunk
  for (const grpc::ChannelArguments& arguments :
       {ChannelArgumentsOf(ConnectionOptions()), ServerArgumentsOf(ConnectionOptions())}) {
    EXPECT_GT(ValueOf(arguments, GRPC_ARG_HTTP2_MAX_FRAME_SIZE), kLargestBlock);
  }
}

// What the kernel and gRPC say of a connection that has ended.
TEST(FromGrpcTest, HowAConnectionEndedIsSaidForPeople) {
  const std::pair<const char*, const char*> kSaid[] = {
      {"keepalive watchdog timeout", "it has not answered for almost cluster.lease"},
      {"Cancelling all calls", "it has ended all calls"},
      {"Socket closed", "it has closed the connection"},
      {"recvmsg:Connection reset by peer", "its connection was reset"},
      {"recvmsg:Connection timed out", "its connection timed out"},
      {"sendmsg:Broken pipe", "its connection is broken"},
      {"DNS resolution failed for nobody.test:1: C-ares status is not ARES_SUCCESS qtype=A "
       "name=nobody.test is_balancer=0: Domain name not found",
       "its name is not known here (Domain name not found)"},
      {"the training is over", "the training is over"},
      {"recvmsg:what nobody knows", "recvmsg:what nobody knows"},
  };
  for (const auto& [said, told] : kSaid) {
    EXPECT_EQ(FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, said)),
              absl::UnavailableError(told));
  }
  EXPECT_EQ(FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "Socket closed")),
            absl::InternalError("Socket closed"));
}

}  // namespace
}  // namespace rubato
