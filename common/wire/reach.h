// Looks whether servers are still there, before a process that has lost them waits for them: a
// server that has ended, one that is frozen and a network that is cut are told apart by what the
// kernel at the other end answers.
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

// How long AwaitServers looks; and when it looks again, or the coordinator has been silent for a
// lease. With what keep-alive takes (common/base/lease.h) and the grace of a stream that breaks
// (worker_session.cc) a lease and a second at most.
constexpr absl::Duration kLookAtServers = absl::Milliseconds(400);
constexpr absl::Duration kLookAgain = absl::Milliseconds(100);

// What a server is spoken to in: HTTP/2, or TLS before it.
enum class Greeting { kPlain, kTls };

// Of each of `addresses` (one or several behind commas, as ParseAddresses takes them: the best of
// those), asked all at once; who has not said more within `patience` is kMute or kSilent.
std::vector<Reach> LookFor(const std::vector<std::string>& addresses, Greeting greeting,
                           absl::Duration patience);

// Waits until the servers of a job, which have all been there before, the coordinator the last of
// them, answer again. DeadlineExceeded if some are not reached within `patience`, Cancelled if
// `cancelled` becomes true.
//
// Servers that `come_back` are started again when they have ended, perhaps at another address: of
// them the coordinator is waited for, and those that do not answer though their hosts may be there.
// Where they do not come back, the job is over when one has ended: Unavailable as soon as that is
// so, or all have been mute for `longest_mute`, or for as long as `connection` bears silence once
// the network was found cut, since who was cut off cannot know for how long they have been mute:
// they are frozen. Aborted, naming the coordinator, if it is mute and another has ended, which has
// done so for that.
absl::Status AwaitServers(const std::vector<std::string>& addresses,
                          const ConnectionOptions& connection, bool come_back,
                          absl::Duration longest_mute, absl::Duration patience,
                          const std::function<bool()>& cancelled);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_REACH_H_
