#include "tools/bench/wire_shard.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/space/modes.h"
#include "common/space/placement.h"
#include "common/wire/data_service.h"
#include "common/wire/listener.h"
#include "common/wire/shared_arena.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "server/shard/float_values.h"
#include "server/shard/shard_protocol.h"
#include "tools/bench/peer.h"
#include "tools/bench/wire_security.h"

namespace rubato {
namespace {

constexpr int64_t kBlockBytes = 256 << 10;

}  // namespace

FlatSpace BenchSpace(int64_t bytes) {
  const int64_t values = bytes / static_cast<int64_t>(sizeof(float));
  const int64_t block = std::min(bytes, kBlockBytes) / static_cast<int64_t>(sizeof(float));
  return FlatSpace(values + kReceiptValues, block);
}

std::string BenchShard::Role() const {
  return absl::StrJoin(
      std::make_tuple("shard", bytes, path, workers, sync ? 1 : 0, momentum, threads), ":");
}

std::optional<BenchShard> BenchShard::FromRole(const std::string& role) {
  const std::vector<std::string> words = absl::StrSplit(role, ':');
  BenchShard shard;
  int sync = 0;
  if (words.size() != 7 || words[0] != "shard" || !absl::SimpleAtoi(words[1], &shard.bytes) ||
      !absl::SimpleAtoi(words[3], &shard.workers) || !absl::SimpleAtoi(words[4], &sync) ||
      !absl::SimpleAtof(words[5], &shard.momentum) || !absl::SimpleAtoi(words[6], &shard.threads)) {
    return std::nullopt;
  }
  shard.path = words[2];
  shard.sync = sync != 0;
  return shard;
}

int ServeBenchShard(const BenchShard& bench) {
  const absl::StatusOr<ConnectionOptions> connection = BenchServerSecurity(bench.path);
  RUBATO_CHECK(connection.ok());
  const FlatSpace space = BenchSpace(bench.bytes);
  proto::Job job;
  job.mutable_cluster()->set_servers(1);
  job.mutable_wire()->set_chunk(space.block_values() * static_cast<int64_t>(sizeof(float)));
  job.mutable_optimizer()->set_learning_rate(1);
  if (bench.momentum > 0) job.mutable_optimizer()->set_momentum(bench.momentum);
  job.mutable_cluster()->mutable_workers()->set_start(bench.workers);
  job.mutable_cluster()->set_server_threads(bench.threads);
  job.mutable_train()->set_batch_size(1);
  job.mutable_train()->mutable_until()->set_steps(1 << 30);
  proto::CoordinatorMessage message;
  proto::View& view = *message.mutable_view();
  view.set_number(1);
  *view.mutable_mode() = bench.sync ? SyncMode() : AsyncMode();
  view.set_leaves(bench.sync ? bench.workers : 1);
  view.set_samples_per_epoch(1);
  view.set_until_step(1 << 30);
  for (int rank = 0; rank < bench.workers; ++rank) {
    view.add_members()->set_incarnation(1);
    view.mutable_members(rank)->set_rank(rank);
  }
  proto::Parameter* parameter = view.mutable_layout()->add_parameters();
  parameter->set_name("weight");
  parameter->add_shape(space.values());
  parameter->mutable_init();

  Placement::Even(space, 1).AddTo(&view);

  const Log log("server", 0, LogLevel::kWarning);
  absl::StatusOr<std::shared_ptr<SharedArena>> arena = SharedArena::Create();
  RUBATO_CHECK(arena.ok());
  DataService data(kBenchDigest, /*share_memory=*/true, &log, *arena, *connection);
  absl::StatusOr<std::unique_ptr<FloatValues>> values =
      FloatValues::Create(job, 0, BlockMemory(*arena));
  RUBATO_CHECK(values.ok());
  ShardProtocol shard(*std::move(values), [&data](const ShardOutcome& outcome) {
    if (const auto* sent = std::get_if<shard_outcome::Sent>(&outcome)) {
      data.Send(sent->stream, sent->frame, sent->payload);
    } else if (const auto* said = std::get_if<shard_outcome::Said>(&outcome)) {
      RUBATO_CHECK(!said->message.has_failure());
    }
  });
  RUBATO_CHECK(shard.Handle(shard_event::Message{message}).ok());
  absl::StatusOr<Listener> listener = Listener::Listen(
      "127.0.0.1:0", *connection, [](const std::string&) {},
      [&data](grpc::ServerBuilder* builder) { data.Register(builder); });
  RUBATO_CHECK(listener.ok());
  DataService::Callbacks callbacks;
  callbacks.on_frame = [&shard](uint64_t stream, const Frame& frame,
                                const ReceivedValues& payload) {
    return shard.Handle(shard_event::Arrival{stream, frame, payload});
  };
  callbacks.on_gone = [&shard](uint64_t stream) {
    shard.Handle(shard_event::StreamGone{stream}).IgnoreError();
  };
  data.Start(std::move(callbacks));
  ServeUntilTold(listener->address());
  listener->Shutdown();
  data.Stop();
  return 0;
}

}  // namespace rubato
