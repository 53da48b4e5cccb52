// gRPC's settings, the same for all channels and servers of a job.
#ifndef RUBATO_COMMON_WIRE_CHANNEL_H_
#define RUBATO_COMMON_WIRE_CHANNEL_H_

#include <grpc/support/time.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/wire/connection_options.h"
#include "common/wire/connections.h"
#include "common/wire/grpc_types.h"

namespace rubato {

// The largest request that a server accepts: a block (wire.chunk is at most 1 MiB) or a control
// message; the longest of these are a layout and a shard's report on its blocks, some 30 bytes
// each. Together with the number of calls that a connection may have at a time (ours have one or
// two), it bounds the memory that invalid input can take.
constexpr int kMaxRequestBytes = 8 << 20;
constexpr int kMaxCalls = 4;

// The most memory per connection (connections.h) that a peer can make a server hold, with messages
// that it never finishes or that are too long, which gRPC notices only when they are complete.
// Members have three connections each (calls, heartbeat, data).
constexpr int64_t kMaxConnectionBytes = 2 * kMaxRequestBytes;
constexpr int kConnectionsOfMember = 3;
// The same for a connection whose caller is not known yet (connections.h): a hello and the
// beginning of a call take less than 2 KB, with TLS some 6 KB. There may be as many strangers as
// can reasonably arrive at once.
constexpr int64_t kMaxStrangerBytes = 32 << 10;
// The memory that strangers can make a server hold, with calls that are reset at once: each is 24
// bytes on the wire and 10 KB of memory.
constexpr int64_t kMaxStrangerMemory = 14 << 20;
inline int MaxStrangers(int workers, int servers) { return workers + servers + 16; }
// The limits of a server with at most this many workers.
Connections::Limits LimitsOfConnections(int workers, int servers);

// The rate limit for messages of a data stream: how many a server reads at once, and the interval
// after which it reads one more. Our workers stay far below it; messages beyond it are read later.
// For control messages the limit is ControlCall::kMaxMessages.
constexpr int kMaxMessagesAtOnce = 8192;
constexpr absl::Duration kBetweenMessages = absl::Microseconds(5);

// How long a connection may take for the HTTP/2 handshake (and then to authenticate, see
// connections.h), and how long it may be idle.
constexpr int kHandshakeMilliseconds = 10'000;
constexpr int kIdleMilliseconds = 60'000;

// The largest reply that a client accepts from a server: enough for the view of any cluster.
constexpr int kMaxReplyBytes = 64 << 20;

// The flow-control window of a stream in bytes. By default gRPC measures the network and grows the
// window to tens of MB on one machine, where waiting data are evicted from the caches: with a fixed
// one the wire benchmark is a quarter to a half faster. Less than twice a full message: gRPC
// announces the rest of a message at once only if that is more than half of the window
// (docs/wire.md).
constexpr int kWindowBytes = 512 << 10;

// What MakeChannel says to gRPC.
grpc::ChannelArguments ChannelArgumentsOf(const ConnectionOptions& connection);

// A channel of its own connection (not shared with others to the same address), never through a
// proxy.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ConnectionOptions& connection);

// Settings of a server (listener.h): an address in use is an error, not shared.
void ConfigureServer(const ConnectionOptions& connection, grpc::ServerBuilder* builder);

// Settings for a process that transfers much data; call it before any use of gRPC. Each of gRPC's
// threads waits for its own connections only: by default they also wait for each other's and hand
// over events, which costs a third more processor time per byte and doubles the round trip.
// (GRPC_POLL_STRATEGY, if set, takes precedence.) Deadlock detection in Abseil's mutexes, which
// gRPC uses too, is switched off; distributions enable it, and it costs 1.5 % of the processor's
// time.
void TuneGrpc();

// Keeps freed memory in the process instead of returning it to the system and requesting it again:
// without this, large messages take twice the time. Call it first in main.
void KeepFreedMemory();

// Uses one heap (malloc arena) for all threads, so that all free memory can be returned to the
// system (Connections::Look); with several, the C library keeps the end of each. Call it first in
// main of a server.
void UseOneHeap();

// Raises the limit on this process's descriptors, of which each connection takes one, to what the
// system allows it. Call it early in main.
void RaiseDescriptorLimit();

// Drops gRPC's own log lines, unless GRPC_VERBOSITY is set: errors are returned as a status and
// reported in one sentence. Call it early in main.
void SilenceGrpc();

// Whether `message` is gRPC's error for a call that could not connect.
bool IsFromConnecting(absl::string_view message);

// When gRPC is to stop waiting: `after` from now, by a clock that nobody sets.
gpr_timespec DeadlineIn(absl::Duration after);

// The same code and message. But if the connection failed because one end refused the other's
// certificate, Unauthenticated with a sentence that says so; if that is only possible, Unavailable
// with such a sentence. How a connection ended is said in words for people, as far as they are
// known.
absl::Status FromGrpc(const grpc::Status& status);
// The same code and message.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CHANNEL_H_
