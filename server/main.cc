// rubato-server: one shard of a job, or its coordinator.

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/flags.h"
#include "common/base/last_words.h"
#include "common/base/log.h"
#include "common/base/process_exit.h"
#include "common/base/status.h"
#include "common/job/job.h"
#include "common/wire/channel.h"
#include "common/wire/connections.h"
#include "common/wire/find_credentials.h"
#include "common/wire/health.h"
#include "common/wire/refusals.h"
#include "server/process/server.h"

namespace {

constexpr int kMaxIndex = 65535;

// Of the pods of an indexed Job each is a shard, the first of them `first`; negative: that is not
// asked for.
absl::Status FindShard(int first, rubato::ServerOptions* options) {
  if (first < 0) return absl::OkStatus();
  if (options->coordinator || options->shard != rubato::ServerOptions::kNoShard) {
    return absl::InvalidArgumentError("--first-shard stands in place of --shard and --coordinator");
  }
  const char* const text = std::getenv("JOB_COMPLETION_INDEX");
  int index = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &index) || index < 0 || index > kMaxIndex) {
    return absl::InvalidArgumentError(
        absl::StrCat("--first-shard: found JOB_COMPLETION_INDEX=", text == nullptr ? "" : text,
                     ", expected the index of a pod, 0 to ", kMaxIndex));
  }
  options->shard = first + index;
  return absl::OkStatus();
}

absl::Status Serve(const std::string& config, const std::vector<std::string>& overrides,
                   const std::string& health_at, int first_shard, rubato::ServerOptions options,
                   rubato::SignalWatcher* signals, std::optional<rubato::Log>* log) {
  RUBATO_ASSIGN_OR_RETURN(
      const rubato::proto::Job job,
      rubato::LoadJob(config, overrides, rubato::ProcessEnvironment(), &options.sources));
  RUBATO_RETURN_IF_ERROR(FindShard(first_shard, &options));
  log->emplace(options.coordinator ? "coordinator" : "server", options.shard,
               static_cast<rubato::LogLevel>(job.log().level()),
               static_cast<rubato::LogFormat>(job.log().format()));
  options.leaves &= job.cluster().max_restarts() > 0;  // else it has no successor
  options.connection.lease = absl::Seconds(job.cluster().lease());
  RUBATO_ASSIGN_OR_RETURN(
      options.connection.credentials,
      rubato::FindCredentials(static_cast<rubato::SecurityMode>(job.security().mode()),
                              rubato::Role::kServer, std::getenv));
  if (job.cluster().dedicated_coordinator()) options.connection.coordinator = "the coordinator";
  options.connection.connections = std::make_shared<rubato::Connections>(
      rubato::LimitsOfConnections(job.cluster().workers().max(), job.cluster().servers()));
  options.connection.refusals = std::make_shared<rubato::Refusals>(&**log);
  std::unique_ptr<rubato::HealthListener> health;
  if (!health_at.empty()) {
    absl::StatusOr<std::unique_ptr<rubato::HealthListener>> listener =
        rubato::HealthListener::Listen(health_at);
    if (!listener.ok()) {
      return absl::Status(listener.status().code(),
                          absl::StrCat("--health: ", listener.status().message()));
    }
    health = *std::move(listener);
    options.on_ready = [&health](bool is_ready) { health->SetReady(is_ready); };
    (*log)->Info("answers probes", {{"health", health->address()}});
  }
  return rubato::RunServer(job, options, signals);
}

}  // namespace

int main(int argc, char** argv) {
  rubato::InstallLastWords();
  rubato::KeepFreedMemory();
  rubato::UseOneHeap();
  rubato::SilenceGrpc();
  rubato::TuneGrpc();
  rubato::RaiseDescriptorLimit();
  std::string config;
  std::vector<std::string> overrides;
  std::string health_at;
  int first_shard = -1;
  rubato::ServerOptions options;
  rubato::Flags flags(
      "rubato-server",
      "Serves one shard of a job's parameters; shard 0 also coordinates the job, unless a process "
      "of its own does\n(--coordinator, where the job has cluster.dedicated_coordinator).",
      {"rubato-server --config job.yaml --shard 0",
       "rubato-server --config job.yaml --shard 1 --listen 10.0.0.7:29501",
       "rubato-server --config job.yaml --shard 0 --set cluster.address=127.0.0.1:0"});
  flags.Add("config", &config, "FILE", "the job", rubato::Flags::kRequired);
  flags.Add("shard", &options.shard, "K", "which shard this is, from 0 to cluster.servers - 1");
  flags.Add("first-shard", &first_shard, "K",
            "in place of --shard: K plus JOB_COMPLETION_INDEX in the environment, the index of a "
            "Kubernetes pod");
  flags.Add("coordinator", &options.coordinator, "",
            "coordinate the job, in place of serving a shard");
  flags.Add("listen", &options.listen, "HOST:PORT",
            "where to listen; default: cluster.address for shard 0 or the coordinator, any free "
            "port of its host for others, which must be told where that is another machine");
  flags.Add("advertise", &options.advertise, "HOST:PORT",
            "the address that others connect to; default: where it listens, and required where "
            "that is a wildcard such as 0.0.0.0:29501. Here and in --listen, several IP addresses "
            "may be given with commas between");
  flags.Add("health", &health_at, "HOST:PORT",
            "where to answer health probes: grpc.health.v1.Health, for the services live and "
            "ready; default: nowhere");
  flags.Add("set", &overrides, "KEY=VALUE",
            "override a key of the job, and RUBATO__... in the environment; may be repeated");
  flags.Add("run-dir", &options.run_dir, "DIR",
            "of shard 0 or the coordinator: a folder for the run's files, which is made if it does "
            "not exist; default: a new folder under runs/");
  flags.Add("resume", &options.resume, "RUN|CHECKPOINT|auto",
            "of shard 0 or the coordinator: the checkpoint to continue from; default: as "
            "checkpoint.resume says");
  flags.Add("leave-on-sigterm", &options.leaves, "",
            "for pods of Kubernetes: on SIGTERM, write a checkpoint and leave, while the others "
            "wait for the successor (unless cluster.max_restarts is 0); if the run has ended well, "
            "exit with 0. Default: SIGTERM ends the training with a checkpoint");
  flags.Add("record", &options.record, "DIR",
            "a folder in which to record everything that enters this server, for `rubato replay`; "
            "made if it does not exist");
  if (const std::optional<int> code = flags.Handle(argc, argv)) return *code;
  rubato::SignalWatcher signals;
  std::optional<rubato::Log> log;  // once the job says how
  const absl::Status status =
      Serve(config, overrides, health_at, first_shard, options, &signals, &log);
  if (!status.ok()) log.has_value() ? log->Fatal(status) : rubato::PrintError(status);
  return rubato::ExitCode(status);
}
