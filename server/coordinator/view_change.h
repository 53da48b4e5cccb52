// Part of the coordinator's core: the change from one view to the next, in two phases. Close: the
// shards stop and report the version and the contributions of each block. When all have answered,
// Open: the next view is sent to shards and workers.
#ifndef RUBATO_SERVER_COORDINATOR_VIEW_CHANGE_H_
#define RUBATO_SERVER_COORDINATOR_VIEW_CHANGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "server/coordinator/assignments.h"
#include "server/coordinator/roll_call.h"
#include "server/coordinator/work_ledger.h"

namespace rubato {

class ViewChange {
 public:
  // kPaused: all shards are closed, and there are too few workers to go on.
  enum class State { kOpen, kClosing, kPaused };

  // Why the next view comes, for people.
  void AddReason(const std::string& reason);
  std::string TakeReasons();

  // A lost worker, which is not in the next view.
  void AddLost(const WorkerId& worker) { lost_.push_back(worker); }
  const std::vector<WorkerId>& lost() const { return lost_; }

  // The message that closes view `view`, to `shards`.
  proto::CoordinatorMessage Close(uint32_t view, const std::vector<ShardId>& shards);
  // Whether all have answered with this one.
  bool OnClosed(const ShardId& shard, const proto::ShardClosed& closed);
  void Pause() { state_ = State::kPaused; }
  void Open() {
    state_ = State::kOpen;
    lost_.clear();
  }

  State state() const { return state_; }
  // Who has not answered yet.
  const RollCall& call() const { return call_; }

  // What the shards have answered. Versions of all blocks:
  int64_t lowest() const;
  int64_t highest() const;
  bool has_one_version() const { return lowest() == highest(); }
  // On arrival: all blocks contain the worker's contributions with clocks below this.
  int64_t Clock(int rank) const;
  // On arrival: tells the ledger who is lost.
  void Settle(WorkLedger* ledger) const;

 private:
  State state_ = State::kOpen;
  std::string reasons_;
  std::vector<WorkerId> lost_;
  uint32_t view_ = 0;  // that is being closed
  RollCall call_;
  std::map<ShardId, proto::ShardClosed> closed_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_VIEW_CHANGE_H_
