#include "tools/bench/wire_workers.h"

#include <thread>

#include "common/base/status.h"
#include "tools/bench/yardsticks.h"

namespace rubato {

WireWorkers::WireWorkers(const BenchShard& shard, const Peer* server,
                         const ConnectionOptions& connection)
    : server_(*server) {
  for (int rank = 0; rank < shard.workers; ++rank) {
    workers_.push_back(std::make_unique<WireLoad>(server->address(), shard, rank, connection));
  }
}

absl::StatusOr<WireWorkers::Took> WireWorkers::Run(WireOp op, Codec codec, int64_t count) {
  std::vector<absl::Status> statuses(workers_.size());
  const auto run = [&](size_t i) { statuses[i] = workers_[i]->Run(op, codec, count); };
  Took took;
  const double own_before = OwnCpuSeconds(), server_before = server_.CpuSeconds();
  const int64_t switches_before = OwnSwitches() + server_.Switches();
  took.seconds = SecondsOf([&] {
    std::vector<std::thread> others;
    for (size_t i = 1; i < workers_.size(); ++i) others.emplace_back(run, i);
    run(0);
    for (std::thread& other : others) other.join();
  });
  took.worker_cpu_seconds = OwnCpuSeconds() - own_before;
  took.server_cpu_seconds = server_.CpuSeconds() - server_before;
  took.switches = OwnSwitches() + server_.Switches() - switches_before;
  for (const absl::Status& status : statuses) RUBATO_RETURN_IF_ERROR(status);
  for (const std::unique_ptr<WireLoad>& worker : workers_) {
    RUBATO_RETURN_IF_ERROR(worker->Check(op, codec));
  }
  return took;
}

}  // namespace rubato
