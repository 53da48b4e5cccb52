// Checks whether servers are still there, before a process that has lost them waits for them. The
// answer of the kernel at the other end distinguishes a server that has ended, one that is frozen
// and a network that is cut.
#ifndef RUBATO_COMMON_WIRE_REACH_H_
#define RUBATO_COMMON_WIRE_REACH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/wire/connection_options.h"

namespace rubato {

enum class Reach {
  kAnswers,  // a gRPC server is there
  kMute,     // its host takes the connection, the process says nothing: it is frozen, or very busy
  kGone,     // its host says that nobody listens there, or its name stands for nothing any more
  kSilent,   // nothing comes back: the network is cut, or the host is lost
};

// How long AwaitServers checks; and how long when it checks again, or when the coordinator has been
// silent for a lease. Together with the time of keep-alive (common/base/lease.h) and the grace
// period for a broken stream (worker_session.cc), this is at most a lease and a second.
constexpr absl::Duration kLookAtServers = absl::Milliseconds(400);
constexpr absl::Duration kLookAgain = absl::Milliseconds(100);

// What a server is spoken to in: HTTP/2, or TLS before it.
enum class Greeting { kPlain, kTls };

// Checks all `addresses` in parallel. Each may be a list in the syntax of ParseAddresses; then its
// best result counts. A server that has not answered within `patience` is kMute or kSilent.
std::vector<Reach> LookFor(const std::vector<std::string>& addresses, Greeting greeting,
                           absl::Duration patience);

// Waits until the servers of a job, which have all been there before, the coordinator the last of
// them, answer again. DeadlineExceeded if some are not reached within `patience`, Cancelled if
// `cancelled` becomes true.
//
// If servers `come_back`, they are started again when they have ended, perhaps at another address.
// Then this waits for the coordinator, and for servers that do not answer although their hosts may
// be there. If they do not come back, the job is over when one has ended: Unavailable as soon as
// one has, or when all have been mute, that is frozen, for `longest_mute`. If the network was found
// cut, the silence that `connection` tolerates replaces `longest_mute`, since a process that was
// cut off cannot know how long they have been mute. Aborted, naming the coordinator, if it is mute
// and another server has ended because of that.
absl::Status AwaitServers(const std::vector<std::string>& addresses,
                          const ConnectionOptions& connection, bool come_back,
                          absl::Duration longest_mute, absl::Duration patience,
                          const std::function<bool()>& cancelled);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_REACH_H_
