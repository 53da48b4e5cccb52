// rubato-worker: computes gradients for a job.

#include <optional>
#include <string>
#include <vector>

#include "common/flags.h"
#include "common/job/job.h"
#include "common/log.h"
#include "common/process_exit.h"
#include "common/status.h"
#include "common/wire/channel.h"
#include "worker/worker.h"

namespace {

absl::Status Work(const std::string& config, const std::vector<std::string>& overrides,
                  const rubato::WorkerOptions& options, rubato::SignalWatcher* signals) {
  RUBATO_ASSIGN_OR_RETURN(const rubato::proto::Job job, rubato::LoadJob(config, overrides));
  return rubato::RunWorker(job, options, signals);
}

}  // namespace

int main(int argc, char** argv) {
  rubato::KeepFreedMemory();
  rubato::SilenceGrpc();
  std::string config;
  std::vector<std::string> overrides;
  rubato::WorkerOptions options;
  rubato::Flags flags("rubato-worker",
                      "Computes gradients for a job and pushes them to its servers.",
                      {"rubato-worker --config job.yaml",
                       "rubato-worker --config job.yaml --set cluster.address=10.0.0.7:29500"});
  flags.Add("config", &config, "FILE", "the job", rubato::Flags::kRequired);
  flags.Add("set", &overrides, "KEY=VALUE", "overrides a key of the job");
  flags.Add("rank", &options.rank, "R", "the rank to ask for; default: any free one");
  if (const std::optional<int> code = flags.Handle(argc, argv)) return *code;
  rubato::SignalWatcher signals;
  const absl::Status status = Work(config, overrides, options, &signals);
  if (!status.ok()) rubato::PrintError(status);
  return rubato::ExitCode(status);
}
