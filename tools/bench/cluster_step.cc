#include "tools/bench/cluster_step.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "tools/bench/yardsticks.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

std::string JobYaml(const ClusterStepBench& bench) {
  return absl::StrFormat(
      "version: 1\n"
      "name: bench\n"
      "cluster: {servers: %d, workers: %d, address: \"127.0.0.1:0\"}\n"
      "device: {type: %s, precision: %s, threads: %d}\n"
      "data: {format: glyphs, test_size: 100}\n"
      "model: %s\n"
      "optimizer: {name: sgd, learning_rate: 0.01, momentum: 0.9}\n"
      "consistency: {mode: %s}\n"
      "train: {batch_size: %d, micro_batches: %d, until: {time: %ds}, on_non_finite: %s}\n"
      "metrics: {every: {steps: 20}, tensorboard: false}\n"
      "evaluation: {every: {epochs: 1000}}\n",
      bench.servers, bench.workers, bench.device, bench.precision, bench.threads, bench.model,
      bench.mode, bench.batch * bench.workers, bench.workers * bench.threads, bench.seconds,
      bench.precision == "fp16" ? "skip" : "stop");
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// This program again, what it says in `log`. Its exit code.
absl::StatusOr<int> RunSelf(std::vector<std::string> arguments, const std::string& log) {
  arguments.insert(arguments.begin(), "rubato");
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", &files, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return absl::InternalError(absl::StrCat("cannot start rubato train: ", std::strerror(error)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

absl::StatusOr<std::string> BenchClusterStep(const ClusterStepBench& bench, bool json) {
  std::string folder = fs::temp_directory_path() / "rubato-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", std::strerror(errno)));
  }
  const absl::Cleanup remove = [&] {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  };
  const std::string job = folder + "/job.yaml", log = folder + "/log", run = folder + "/run";
  std::ofstream(job) << JobYaml(bench);
  RUBATO_ASSIGN_OR_RETURN(const int code, RunSelf({"train", job, "--run-dir", run}, log));
  if (code != 0) {
    const std::string said = ReadText(log);
    const size_t at = said.rfind("error: ");
    const std::string reason(
        absl::StripSuffix(at == std::string::npos ? said : said.substr(at + 7), "\n"));
    return code == 2 ? absl::InvalidArgumentError(reason) : absl::UnavailableError(reason);
  }
  std::vector<double> speeds, hidden, waiting;
  std::ifstream lines(run + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json metrics = nlohmann::json::parse(line, nullptr, /*exceptions=*/false);
    if (metrics.is_object() && metrics.value("kind", "") == "train") {
      speeds.push_back(metrics.value("samples_per_second", 0.0));
      hidden.push_back(metrics.value("communication_hidden", 0.0));
      waiting.push_back(metrics.value("waiting_seconds", 0.0));
    }
  }
  // The first also tells how long all took to begin.
  if (speeds.size() > 1) speeds.erase(speeds.begin());
  if (speeds.empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat("no 20 steps in ", bench.seconds, " s; expected more --seconds"));
  }
  const double rate = Median(speeds);
  const double milliseconds = 1e3 * static_cast<double>(bench.batch * bench.workers) / rate;
  if (json) {
    nlohmann::ordered_json object;
    object["model"] = bench.model;
    object["batch"] = bench.batch;
    object["threads"] = bench.threads;
    object["device"] = bench.device;
    object["precision"] = bench.precision;
    object["servers"] = bench.servers;
    object["workers"] = bench.workers;
    object["mode"] = bench.mode;
    object["samples_per_second"] = rate;
    object["milliseconds"] = milliseconds;
    object["waiting_milliseconds"] = Median(waiting) * 1e3;
    object["communication_hidden"] = Median(hidden);
    return object.dump() + "\n";
  }
  return absl::StrFormat(
      "cluster  %d workers with batch %d each, %d servers, %s\nstep     %.3f ms, %.0f samples/s\n"
      "waiting  %.3f ms of it for parameters; %.0f %% of the communication is hidden\n",
      bench.workers, bench.batch, bench.servers, bench.mode, milliseconds, rate,
      Median(waiting) * 1e3, Median(hidden) * 100);
}

}  // namespace rubato
