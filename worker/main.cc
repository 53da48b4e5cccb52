// rubato-worker: computes gradients for a job.

#include <sys/socket.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/flags.h"
#include "common/base/last_words.h"
#include "common/base/log.h"
#include "common/base/process_exit.h"
#include "common/base/status.h"
#include "common/job/job.h"
#include "common/pace/delays.h"
#include "common/wire/channel.h"
#include "common/wire/find_credentials.h"
#include "worker/process/worker.h"
#include "worker/script/script_opening.h"
#include "worker/trainer/trainer_client.h"

namespace {

absl::Status Work(const std::string& config, const std::vector<std::string>& overrides,
                  const rubato::DelayFlags& delays, rubato::WorkerOptions options,
                  rubato::ScriptChannel* script, rubato::SignalWatcher* signals,
                  std::optional<rubato::Log>* log) {
  const rubato::Environment environment = rubato::ProcessEnvironment();
  RUBATO_ASSIGN_OR_RETURN(const rubato::proto::Job job,
                          rubato::LoadJob(config, overrides, environment));
  const int most = job.cluster().workers().max();
  if (options.rank >= most) {
    return absl::InvalidArgumentError(absl::StrCat("--rank: found ", options.rank,
                                                   ", expected 0 to ", most - 1,
                                                   ": cluster.workers is at most ", most));
  }
  if (options.rank < 0) {
    RUBATO_ASSIGN_OR_RETURN(const std::optional<int> rank, rubato::WorkerRank(environment));
    options.rank = rank.value_or(-1);
  }
  if (options.local_rank < 0) {
    RUBATO_ASSIGN_OR_RETURN(const std::optional<int> rank, rubato::LocalRank(environment));
    options.local_rank = rank.value_or(0);
  }
  RUBATO_ASSIGN_OR_RETURN(options.delays, rubato::Delays::Of(delays, job));
  log->emplace("worker", options.rank, static_cast<rubato::LogLevel>(job.log().level()),
               static_cast<rubato::LogFormat>(job.log().format()));
  options.connection.lease = absl::Seconds(job.cluster().lease());
  RUBATO_ASSIGN_OR_RETURN(
      options.connection.credentials,
      rubato::FindCredentials(static_cast<rubato::SecurityMode>(job.security().mode()),
                              rubato::Role::kWorker, std::getenv));
  options.trainer = rubato::FindTrainerServer(std::getenv);
  if (job.cluster().dedicated_coordinator()) options.connection.coordinator = "the coordinator";
  rubato::Departure departure;
  signals->OnSignal([&](int signal) { departure.Ask(rubato::InterruptedBy(signal)); });
  const absl::Status status = script != nullptr
                                  ? rubato::RunScriptWorker(job, options, script, &departure)
                                  : rubato::RunWorker(job, options, &departure);
  signals->OnSignal(nullptr);
  return status;
}

// Through another descriptor nobody would be told what is wrong.
absl::Status CheckSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--script-fd: found ", fd, ", expected the descriptor of a stream socket"));
}

// It was asked to, and the others go on: no error.
void SayThatItLeft(const absl::Status& why, const std::optional<rubato::Log>& log) {
  const std::string text = absl::StrCat("left: ", why.message());
  if (log.has_value() && log->format() == rubato::LogFormat::kJson) {
    log->Info(text);
  } else {
    rubato::WriteAll(2, text + "\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  rubato::InstallLastWords();
  rubato::KeepFreedMemory();
  rubato::SilenceGrpc();
  rubato::TuneGrpc();
  rubato::RaiseDescriptorLimit();
  std::string config;
  std::vector<std::string> overrides;
  rubato::WorkerOptions options;
  options.local_rank = -1;
  rubato::Flags flags("rubato-worker",
                      "Computes gradients for a job and pushes them to its servers.",
                      {"rubato-worker --config job.yaml",
                       "rubato-worker --config job.yaml --set cluster.address=10.0.0.7:29500"});
  flags.Add("config", &config, "FILE", "the job", rubato::Flags::kRequired);
  flags.Add("set", &overrides, "KEY=VALUE",
            "override a key of the job, and RUBATO__... in the environment; may be repeated");
  flags.Add("rank", &options.rank, "R",
            "the rank to ask for; default: RANK, JOB_COMPLETION_INDEX or LOCAL_RANK in the "
            "environment, else any free rank");
  flags.Add("local-rank", &options.local_rank, "N",
            "which of this host's workers it is, so that each has GPUs of its own; default: "
            "LOCAL_RANK in the environment, else 0");
  flags.Add("working-gpus", &options.working_gpus, "",
            "of several GPUs (cluster.gpus_per_worker), do with those that can be opened: so "
            "`rubato train` starts a worker again");
  rubato::DelayFlags delays;
  flags.Add("compute", &delays.compute, "TIME",
            "make each micro-batch take this much longer, as if this worker were slower; a time "
            "such as 5ms");
  flags.Add("speeds", &delays.speeds, "SPEEDS",
            "multiply that time by a random factor, as the flag --speeds of rubato simulate does");
  int script_socket = -1, script_memory = -1;
  flags.Add("script-fd", &script_socket, "FD",
            "a socket to the script that computes; a script gives it to the worker that it starts");
  flags.Add("memory-fd", &script_memory, "FD", "the memory that it shares with that script");
  if (const std::optional<int> code = flags.Handle(argc, argv)) return *code;
  delays.AddVariables(std::getenv);  // `rubato train` gives them so, since a script may be between
  rubato::SignalWatcher signals;
  std::optional<rubato::Log> log;  // once the job says how
  if (script_socket >= 0) {
    if (const absl::Status socket = CheckSocket(script_socket); !socket.ok()) {
      rubato::PrintError(socket);
      return rubato::ExitCode(socket);
    }
    rubato::ScriptChannel channel(script_socket, script_memory);
    const absl::Status status = Work(config, overrides, delays, options, &channel, &signals, &log);
    rubato::EndScript(status, &channel);  // who says it
    return rubato::ExitCode(status);
  }
  const absl::Status status = Work(config, overrides, delays, options, nullptr, &signals, &log);
  if (absl::IsCancelled(status) && !rubato::IsStoppedByOthers(status)) {
    SayThatItLeft(status, log);
  } else if (!status.ok()) {
    log.has_value() ? log->Fatal(status) : rubato::PrintError(status);
  }
  return rubato::ExitCode(status);
}
