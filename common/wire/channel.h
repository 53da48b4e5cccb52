// gRPC's settings, the same for all channels and servers of a job.
#ifndef RUBATO_COMMON_WIRE_CHANNEL_H_
#define RUBATO_COMMON_WIRE_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/wire/connection_options.h"
#include "common/wire/connections.h"

namespace rubato {

// What a server takes: a block (wire.chunk is at most 1 MiB) or a control message, of which the
// longest are a layout and what a shard says of its blocks, some 30 bytes each. It bounds what
// nonsense can claim, with the calls that a connection may have at a time; ours have one or two.
constexpr int kMaxRequestBytes = 8 << 20;
constexpr int kMaxCalls = 4;

// What the peers of a server may make it hold by messages that they begin and never finish, or that
// are longer than a server takes, which gRPC finds only when they are whole: so much a connection
// (connections.h), of which members have three each (calls, heartbeat, data).
constexpr int64_t kMaxConnectionBytes = 2 * kMaxRequestBytes;
constexpr int kConnectionsOfMember = 3;
// On a connection of which it is not known who calls (connections.h): a hello and the beginning of
// a call take less than 2 KB, of TLS some 6 KB. As many may be there as may well come at once.
constexpr int64_t kMaxStrangerBytes = 32 << 10;
// What these can be made to hold: calls that are reset at once, of 24 bytes and 10 KB each.
constexpr int64_t kMaxStrangerMemory = 14 << 20;
inline int MaxStrangers(int workers, int servers) { return workers + servers + 16; }
// Of a server of so many workers at most.
Connections::Limits LimitsOfConnections(int workers, int servers);

// Messages of a data stream that a server reads at once, and how long until it reads one more: no
// worker of ours comes near. Who sends more is read later. Of control messages it is
// ControlCall::kMaxMessages.
constexpr int kMaxMessagesAtOnce = 8192;
constexpr absl::Duration kBetweenMessages = absl::Microseconds(5);

// How long a connection may take to speak HTTP/2 (and then to show who calls, see connections.h),
// and be without calls.
constexpr int kHandshakeMilliseconds = 10'000;
constexpr int kIdleMilliseconds = 60'000;

// What a process takes of the servers that it has called: views of any cluster.
constexpr int kMaxReplyBytes = 64 << 20;

// Bytes of a stream that may be under way, which bounds what a receiver holds. gRPC would measure
// how much the network takes and grow this to tens of MB on one machine, where data that wait leave
// the caches: with 4 MiB the bench of the wire moves a quarter to a half more. Between machines it
// is enough for 1 GB/s and round trips of 4 ms.
constexpr int kWindowBytes = 4 << 20;

// What MakeChannel says to gRPC.
grpc::ChannelArguments ChannelArgumentsOf(const ConnectionOptions& connection);

// A channel of its own connection (not shared with others to the same address), never through a
// proxy.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ConnectionOptions& connection);

// Settings of a server (listener.h): an address in use is an error, not shared.
void ConfigureServer(const ConnectionOptions& connection, grpc::ServerBuilder* builder);

// Settings of a process that moves much; call it before anything of gRPC. Each of gRPC's threads
// waits for its own connections only: by default they wait for each other's too and hand over what
// they find, for a third more processor time a byte and twice the round trip (unless
// GRPC_POLL_STRATEGY is set). Abseil's mutexes, which gRPC uses too, do not look for deadlocks, as
// distributions build them to do: 1.5 % of the processor's time.
void TuneGrpc();

// Keeps freed memory in the process instead of giving it back to the system and asking again:
// without this, messages of 256 KiB cost twice the time. Call it first in main.
void KeepFreedMemory();

// One heap for all threads, from which all that is free can be given back (Connections::Look): of
// others the C library keeps their ends. Call it first in main of a server.
void UseOneHeap();

// Raises the limit on this process's descriptors, of which each connection takes one, to what the
// system allows it. Call it early in main.
void RaiseDescriptorLimit();

// What goes wrong reaches us as a status and is told in one sentence: gRPC's own log lines are
// dropped, unless GRPC_VERBOSITY is set. Call it early in main.
void SilenceGrpc();

// Whether that is what gRPC says of a call for which it found no connection.
bool IsFromConnecting(absl::string_view message);

// The same code and message; but where no connection has come about because the two ends do not
// take each other's certificates, Unauthenticated with a sentence that says so, and Unavailable
// with one where it may be so.
absl::Status FromGrpc(const grpc::Status& status);
// The same code and message.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CHANNEL_H_
