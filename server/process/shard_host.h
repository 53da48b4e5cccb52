// The part that every server process has: its shard's protocol behind the data service, on one
// listener.
#ifndef RUBATO_SERVER_PROCESS_SHARD_HOST_H_
#define RUBATO_SERVER_PROCESS_SHARD_HOST_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/log.h"
#include "common/wire/connection_options.h"
#include "common/wire/data_service.h"
#include "common/wire/listener.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/record.pb.h"
#include "server/process/engine_watch.h"
#include "server/process/part_files.h"
#include "server/process/server_options.h"
#include "server/run/recording.h"
#include "server/shard/buffer_pool.h"
#include "server/shard/shard_protocol.h"

namespace rubato {

class ShardHost {
 public:
  // Says something to the coordinator, from the data service's thread.
  using Reporter = std::function<void(const proto::PeerMessage& message)>;

  // What a ShardHost leaves to the next one in this process, which may continue with its values.
  struct Remains {
    std::optional<KeptShard> kept;
    std::optional<BlockMemory> memory;  // in which they lie
  };

  // `recording` may be null. `log` must outlive it.
  ShardHost(const proto::Job& job, const std::string& job_digest,
            const ConnectionOptions& connection, const Log* log, Reporter report,
            std::unique_ptr<RecordingWriter> recording, Remains remains = {});
  ~ShardHost() { Stop(); }

  // Writes and reads no parts of checkpoints any more.
  void StopParts();
  // Breaks all calls and takes no more.
  void Stop();
  // After that, once.
  Remains TakeRemains();

  // Releases `asked` as soon as a component has completed a round.
  using Ask = std::function<void(std::shared_ptr<void> asked)>;

  // Registers what is served beside the data service.
  using AddServices = std::function<void(grpc::ServerBuilder* builder)>;

  // Listens at `listen`. If `add_cluster` is given, what it adds is served, too; `ask_cluster`
  // checks that it is not stuck, and callers wait until Accept. Unavailable if the address is in
  // use.
  absl::Status Start(int shard, const std::string& listen, const AddServices& add_cluster = nullptr,
                     Ask ask_cluster = nullptr);
  void Accept() { listener_->Accept(); }

  const std::string& address() const { return listener_->address(); }
  // To this server, without a socket.
  std::shared_ptr<grpc::Channel> OwnChannel() const { return listener_->OwnChannel(); }

  // For how long something has waited for the engine.
  absl::Duration busy() const { return watch_->busy(); }

  // What the coordinator asks of the shard. Never blocks.
  void OnMessage(const proto::CoordinatorMessage& message);

 private:
  absl::Status Handle(const ShardEvent& event);
  void Do(const ShardOutcome& outcome);
  // Reports it and ends the process: anything that waits for the engine would wait forever.
  void OnStuck();

  const proto::Job job_;
  const ConnectionOptions connection_;
  const Log& log_;
  const Reporter report_;
  const std::unique_ptr<RecordingWriter> recording_;
  std::optional<KeptShard> kept_;       // until it has been started
  std::optional<ShardProtocol> shard_;  // from then on
  std::unique_ptr<PartFiles> parts_;    // likewise
  const BlockMemory memory_;
  DataService data_;
  std::optional<Listener> listener_;
  std::atomic<bool> has_opened_{false};  // the first view
  std::optional<EngineWatch> watch_;
};

// What the shard registers with, but for where others reach it.
proto::Registration ShardRegistration(const std::string& job_digest, int shard,
                                      const std::optional<KeptShard>& kept);

// The beginning of a recording.
proto::RecordHeader MakeRecordHeader(const proto::Job& job, const std::string& job_digest);
// None if nothing is to be recorded. Of one that may go on with what is `kept`.
absl::StatusOr<std::unique_ptr<RecordingWriter>> RecordShard(const proto::Job& job,
                                                             const ServerOptions& options,
                                                             const std::string& job_digest,
                                                             const std::optional<KeptShard>& kept,
                                                             const Log& log);

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_SHARD_HOST_H_
