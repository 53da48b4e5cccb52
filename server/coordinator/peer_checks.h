// Validates messages of peers. Each message of proto/cluster.proto from a worker or a shard that
// may send it at that time (server/rules/allowed.h) is checked here completely, before the
// coordinator or one of its parts sees it: every number against the current state, every list and
// text against what a correct peer can need. An invalid message ends that peer's call. The limits
// are listed in docs/wire.md.
#ifndef RUBATO_SERVER_COORDINATOR_PEER_CHECKS_H_
#define RUBATO_SERVER_COORDINATOR_PEER_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/base/range.h"
#include "proto/cluster.pb.h"

namespace rubato {

// Contributions that a worker may have been given and not computed; an honest one computes one
// while it asks for the next few (worker/session/worker_session.h).
constexpr int64_t kMaxAsked = 64;

// What the checks compare with.
struct PeerTerms {
  uint32_t view = 0;      // the last one
  uint32_t snapshot = 0;  // the last one
  bool is_member = false;
  bool tests_last = false;  // the final test has been asked of it
  bool reports = false;     // the shards have been asked for their reports
  bool in_step = true;
  int64_t origin = 0;       // of the lineage: its first unit
  int64_t until = 0;        // and the first that is not its
  int64_t done = 0;         // sync: steps of which all has been told
  int64_t leaves = 0;       // of a unit
  int64_t micro_batch = 0;  // samples of a leaf, at most
  bool is_script = false;   // what a micro-batch weighs is its script's
  Range blocks;             // that the shard holds
  int64_t values = 0;       // of the flat vector
};

// InvalidArgument, naming the field, what was found and what was expected.
// Of anybody: the texts.
absl::Status CheckRegistration(const proto::Registration& registration);
// Of a process that has shown the job's digest.
absl::Status CheckWorker(const proto::WorkerRegistration& worker);
// Of a worker that takes part.
absl::Status CheckWorkerMessage(const proto::PeerMessage& message, const PeerTerms& terms);
// Of a shard. Failures and requests to stop need no terms.
absl::Status CheckShardMessage(const proto::PeerMessage& message, const PeerTerms& terms);

// A peer's text for people, cut to the length that a correct peer may need.
std::string PeerText(const std::string& text);

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_PEER_CHECKS_H_
