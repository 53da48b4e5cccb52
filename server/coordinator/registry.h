// Part of the coordinator's core: the registered processes of a job, and which processes may
// register.
#ifndef RUBATO_SERVER_COORDINATOR_REGISTRY_H_
#define RUBATO_SERVER_COORDINATOR_REGISTRY_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "server/coordinator/assignments.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/roll_call.h"

namespace rubato {

struct Peer {
  proto::Registration registration;
  bool is_worker = false;
  ShardId shard;    // what it is called, if it is a shard
  WorkerId worker;  // and if it is a worker
  absl::Time last_heard;
  // A shard: its last heartbeat, and when others wanted its place: the last time, and since when
  // again and again.
  absl::Time last_beat = absl::InfinitePast();
  absl::Time contested_at = absl::InfinitePast();
  absl::Time contested_since = absl::InfinitePast();
  double busy_seconds = 0;  // as its last heartbeat said
  int64_t refused = 0;      // likewise, of a shard
  // A worker:
  bool is_member = false;  // of the view that was installed last
  bool idle = false;       // has nothing left to do in that view
  int64_t clock = 0;       // in sync the next step that it computes; on arrival contributions
  double staleness = 0;    // of its last contribution
  bool leaves = false;     // in order: it has done what it had begun
  absl::Time last_progress;
  // Not judged before, for having been silent and for having computed nothing (see Leases).
  absl::Time silence_spared_until = absl::InfinitePast();
  absl::Time stall_spared_until = absl::InfinitePast();
};

class Registry {
 public:
  // See Coordinator.
  Registry(const proto::Job& job, std::string job_digest, std::string version);

  // Why the process is none of this job, or OK.
  absl::Status CheckJob(const proto::Registration& registration) const;

  // Why the process cannot take part, or OK. Unavailable if it may try again later. That includes a
  // shard whose place is taken, if shards are started again: it may be back before its end was
  // noticed, unless the holder of the place has shown since then that it is alive.
  absl::Status Check(const proto::Registration& registration, int max_workers, absl::Time now);
  // Call it after Check. A worker gets the rank that it asks for, if that is free. Warns once for
  // each kind of worker whose arithmetic differs from that of the first worker.
  Peer* Add(PeerId id, const proto::Registration& registration, absl::Time now,
            coordinator::Outcomes* out);
  // Messages of the peer that are still in flight count as late. MarkGone: the same for a peer that
  // was never added.
  void Remove(PeerId id);
  void MarkGone(PeerId id) { gone_.insert(id); }
  bool HasGone(PeerId id) const { return gone_.count(id) > 0; }
  // Its call is broken: nothing comes any more.
  void Forget(PeerId id) { gone_.erase(id); }
  // Before this call, the model is forgotten when the last worker leaves; afterwards it belongs to
  // the job.
  void KeepModel() { keeps_model_ = true; }

  Peer* Find(PeerId id);
  // Null if no worker of that name is here.
  Peer* FindWorker(const WorkerId& worker, PeerId* id = nullptr);
  // The peer that sent this heartbeat; null if it is not registered.
  Peer* FindAlive(const proto::HeartbeatRequest& request);
  // Null if no shard of that number is here.
  Peer* FindShard(int number, PeerId* id = nullptr);
  std::map<PeerId, Peer>& peers() { return peers_; }
  const std::map<PeerId, Peer>& peers() const { return peers_; }
  int workers() const { return static_cast<int>(ranks_.size()); }
  int shards() const { return static_cast<int>(peers_.size()) - workers(); }
  // In order of rank, and of number.
  std::vector<Peer*> Workers();
  std::vector<WorkerId> WorkerIds() const;
  std::vector<ShardId> Shards() const;
  // Whether no member of the view that was installed last has anything left to do.
  bool MembersAreIdle() const;
  // States the shards' names and addresses.
  void AddShards(proto::View* view) const;
  void SendToShards(const proto::CoordinatorMessage& message, coordinator::Outcomes* out) const;
  void SendToMembers(const proto::CoordinatorMessage& message, coordinator::Outcomes* out) const;
  // Adds what only shards are told: the attempts by which they recognise the streams of members.
  void SendViewToShards(const proto::View& view, coordinator::Outcomes* out) const;
  std::vector<int> MissingShards() const;
  // Who has to come, of all shards and `workers` workers.
  std::string Missing(int workers) const;
  // What all workers of the job have shown to be the same.
  const proto::WorkerRegistration& model() const { return model_; }

 private:
  // Why the worker brings too much or too little for a job of a script, or for another; or OK.
  absl::Status CheckScript(const proto::WorkerRegistration& worker) const;
  // Why the process cannot be that shard, or OK.
  absl::Status CheckShard(int shard, absl::Time now);
  void AddNumerics(const proto::Registration& registration, coordinator::Outcomes* out);

  const proto::Job job_;
  const std::string job_digest_;
  const std::string version_;
  std::map<PeerId, Peer> peers_;
  std::map<int, PeerId> ranks_;  // of the workers among them
  std::set<PeerId> gone_;        // whose calls are not broken yet
  // The last ones given, by rank and by number.
  std::map<int, uint32_t> worker_incarnations_, shard_incarnations_;
  proto::WorkerRegistration model_;  // of the first worker
  bool keeps_model_ = false;
  // How workers compute, and who was the first to compute so.
  struct Numerics {
    std::string numerics;
    std::string process;
  };
  std::vector<Numerics> numerics_;
};

// "worker 1 (host pid 123)".
std::string Describe(const Peer& peer);

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_REGISTRY_H_
