// Jobs whose workers come and go, or whose mode changes: processes started by hand, of a job that
// has no end until it is stopped, and what must be true of every such job in the end.
#ifndef RUBATO_TESTS_MEMBERSHIP_H_
#define RUBATO_TESTS_MEMBERSHIP_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/cluster.h"
#include "tests/proxy.h"

namespace rubato {

class MembershipJob : public ClusterTest {
 protected:
  // Two shards, and workers of ranks from 0 on; waits until they train. The lease is 1 s. Workers
  // reach the shards by proxies, which can cut off those that were started by AddCuttableWorker.
  void Begin(const Arguments& mode, int workers, const Arguments& more = {});

  // A further worker, with variables for its environment. Its rank is the first that is free.
  Process& AddWorker(const Arguments& environment = {});
  // One that Cut cuts off; after the last AddWorker.
  Process& AddCuttableWorker();
  void Cut();
  void Heal();

  Process& shard_0() { return *shard_0_; }
  Process& worker(int index) { return *workers_[index]; }
  const std::vector<Process*>& workers() const { return workers_; }

  // Waits until shard 0 says, or has said, something.
  bool AwaitSaid(absl::string_view text);
  // Waits until the newest view has so many members.
  bool AwaitMembers(size_t count);
  // The newest view.
  nlohmann::json View() const;
  // Waits until some more steps are done.
  bool AwaitSteps(int64_t more);
  Process::Result Rubato(const Arguments& arguments);
  nlohmann::json Status();

  // `rubato stop`, and the end of the shards, which must be a good one.
  void Stop();
  // That the stopped job, which was in sync all the time, has the bits of the job that nobody
  // disturbed.
  void ExpectBitsOfTheUndisturbed();
  // That a job that was never in sync has applied every sample once to every block, and accounts
  // for every contribution.
  void ExpectEveryContributionOnce();
  void ExpectBalancedLedger();

 private:
  Arguments set_;
  Proxy proxies_[2];
  Process* shard_0_ = nullptr;
  Process* shard_1_ = nullptr;
  std::vector<Process*> workers_;
};

}  // namespace rubato

#endif  // RUBATO_TESTS_MEMBERSHIP_H_
