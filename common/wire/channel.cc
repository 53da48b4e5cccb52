#include "common/wire/channel.h"

#include <grpc/compression.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/address.h"
#include "common/base/lease.h"

namespace rubato {
namespace {

// What an HTTP/2 frame may hold: a message of a data stream, 768 KiB or one block of at most 1 MiB,
// goes in one or two. With gRPC's 16 KiB both ends need some 5 % more processor time.
constexpr int kHttp2FrameBytes = 2 << 20;

int InMilliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// By what gRPC says of the connection that it tried last; OK if it is of something else.
absl::Status WhyNoHandshake(absl::string_view said) {
  constexpr absl::string_view kVerifier = "check failed with error: UNAUTHENTICATED: ";
  if (const size_t at = said.find(kVerifier); at != absl::string_view::npos) {
    return absl::UnauthenticatedError(said.substr(at + kVerifier.size()));
  }
  if (absl::StrContains(said, "certificate verify failed")) {
    return absl::UnauthenticatedError(
        "the server's certificate is not of this job's authority (ca.crt), or not valid now");
  }
  if (absl::StrContains(said, "wrong version number")) {
    return absl::UnauthenticatedError(
        "the server asks for no certificate, and this process has one: give it the job's, too, or "
        "unset RUBATO_CERTIFICATES here");
  }
  if (absl::StrContains(said, "Trying to connect an http1.x server")) {
    return absl::UnavailableError("the server is none of Rubato's: it speaks HTTP/1");
  }
  // By a reset, where it has not read all that it was sent.
  if (absl::StrContains(said, "Socket closed") ||
      absl::StrContains(said, "Connection reset by peer")) {
    return absl::UnavailableError(
        "the server closes the connection as it begins: it is ending, or wants a certificate other "
        "than this process has (RUBATO_CERTIFICATES)");
  }
  return absl::OkStatus();
}

// How a connection has ended, in gRPC's words and in ours; others stay as they are.
std::string InOurWords(absl::string_view said) {
  constexpr std::pair<absl::string_view, absl::string_view> kEnds[] = {
      {"keepalive watchdog timeout", "it has not answered for almost cluster.lease"},
      {"Cancelling all calls", "it has ended all calls"},
      {"Socket closed", "it has closed the connection"},
      {"Connection reset by peer", "its connection was reset"},
      {"Connection timed out", "its connection timed out"},
      {"Broken pipe", "its connection is broken"},
  };
  absl::string_view end = said;
  if (!absl::ConsumePrefix(&end, "recvmsg:")) absl::ConsumePrefix(&end, "sendmsg:");
  for (const auto& [theirs, ours] : kEnds) {
    if (end == theirs) return std::string(ours);
  }
  const size_t why = said.rfind(": ");
  if (absl::StartsWith(said, "DNS resolution failed") && why != absl::string_view::npos) {
    return absl::StrCat("its name is not known here (", said.substr(why + 2), ")");
  }
  return std::string(said);
}

}  // namespace

grpc::ChannelArguments ChannelArgumentsOf(const ConnectionOptions& connection) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // Also the time that one attempt to connect is given: a loaded machine may need it.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20000);
  // A name may stand for another address at any time: who failed to connect looks it up again. gRPC
  // would wait for 30 s.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 500);
  // A peer that does not answer (its host is gone, or it is frozen) breaks the connection.
  const KeepAlive keep_alive(connection.lease);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, InMilliseconds(keep_alive.ask));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, InMilliseconds(keep_alive.answer));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return arguments;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ConnectionOptions& connection) {
  if (connection.own_channel != nullptr && address == connection.own_address) {
    return connection.own_channel;
  }
  const absl::StatusOr<std::vector<HostPort>> addresses = ParseAddresses(address);
  const std::string target = addresses.ok() ? ChannelTarget(*addresses) : address;
  return grpc::CreateCustomChannel(target, connection.credentials.OfChannel(),
                                   ChannelArgumentsOf(connection));
}

void ConfigureServer(const ConnectionOptions& connection, grpc::ServerBuilder* builder) {
  const KeepAlive keep_alive(connection.lease);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, InMilliseconds(keep_alive.server_asks));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, InMilliseconds(keep_alive.answer));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              InMilliseconds(keep_alive.ask / 2));
  // The limit on messages would be checked only after unpacking: refuse what is compressed.
  builder->AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                              1 << GRPC_COMPRESS_NONE);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Who connects speaks HTTP/2 soon, and one without calls may connect again.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMilliseconds);
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCalls);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
}

Connections::Limits LimitsOfConnections(int workers, int servers) {
  Connections::Limits limits;
  limits.strangers = static_cast<size_t>(MaxStrangers(workers, servers));
  limits.stranger_bytes = kMaxStrangerBytes;
  limits.unread_bytes = kMaxConnectionBytes;
  return limits;
}

void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

void TuneGrpc() {
  // A question to a name server that gets lost is asked again after 1 s, by the C library and by
  // gRPC's; they would wait for 5.
  setenv("RES_OPTIONS", "timeout:1 attempts:5 retrans:1000 retry:5", /*overwrite=*/0);
  setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

void KeepFreedMemory() {
  constexpr int kHuge = 1 << 30;
  mallopt(M_TRIM_THRESHOLD, kHuge);
  mallopt(M_MMAP_THRESHOLD, kHuge);
  mallopt(M_TOP_PAD, 16 << 20);
}

void UseOneHeap() { mallopt(M_ARENA_MAX, 1); }

void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);  // else it stays as it is
}

gpr_timespec DeadlineIn(absl::Duration after) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(after), GPR_TIMESPAN));
}

bool IsFromConnecting(absl::string_view message) {
  return absl::StartsWith(message, "failed to connect to all addresses");
}

absl::Status FromGrpc(const grpc::Status& status) {
  const std::string& said = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    const absl::Status why = IsFromConnecting(said) ? WhyNoHandshake(said) : absl::OkStatus();
    return why.ok() ? absl::UnavailableError(InOurWords(said)) : why;
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), said);
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace rubato
