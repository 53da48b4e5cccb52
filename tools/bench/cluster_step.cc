#include "tools/bench/cluster_step.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "tools/bench/median.h"
#include "tools/bench/operations.h"
#include "tools/bench/yardsticks.h"
#include "tools/command/binaries.h"
#include "worker/model/graph.h"
#include "worker/model/presets.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

// A step of many batches is long.
int64_t StepsOfALine(const ClusterStepBench& bench) {
  const int64_t usual = bench.accumulate > 1 ? 4 : 20;
  return bench.steps > 0 ? std::min(usual, bench.steps / 2) : usual;
}

// Of the model on one example.
absl::StatusOr<double> OperationsOf(const BenchSetup& setup) {
  RUBATO_ASSIGN_OR_RETURN(const proto::Model model,
                          ExpandPreset(setup.model, setup.shape, setup.objective.outputs));
  RUBATO_ASSIGN_OR_RETURN(const Graph graph,
                          BuildGraph(model, setup.shape, setup.objective.outputs));
  return OperationsOf(graph);
}

// A character of a text of many: one that needs no escapes, below UTF-8's gap.
void AppendCharacter(int64_t number, std::string* text) {
  const int64_t code = number < 0x5e ? 0x21 + number : 0x100 + number;
  if (code < 0x80) {
    text->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    text->push_back(static_cast<char>(0xc0 | code >> 6));
    text->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    text->push_back(static_cast<char>(0xe0 | code >> 12));
    text->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    text->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}
constexpr int64_t kMaxCharacters = 0xd800 - 0x100;

// Writes what the model is trained on, enough for `samples` of a step. Returns the job's `data`.
absl::StatusOr<std::string> MakeExamples(const BenchSetup& setup, int64_t samples,
                                         const std::string& folder) {
  const int64_t classes = setup.objective.outputs;
  RandomStream random(1);
  if (setup.objective.places > 1 && classes <= kMaxCharacters) {
    std::string text;
    for (int64_t i = 0; i < classes; ++i) AppendCharacter(i, &text);
    for (int64_t i = (2 * samples + 10) * setup.objective.places; i > 0; --i) {
      AppendCharacter(random.Below(static_cast<uint32_t>(classes)), &text);
    }
    std::ofstream(folder + "/text.txt") << text;
    return absl::StrCat("{format: text, path: ", folder, "/text.txt, context: ", setup.shape[0],
                        ", test_fraction: 0.1}");
  }
  if (setup.shape == std::vector<int64_t>{3, 32, 32} && classes == 10) {
    for (const std::string name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
                                   "data_batch_5", "test_batch"}) {
      std::ofstream file(absl::StrCat(folder, "/", name, ".bin"), std::ios::binary);
      for (int64_t i = name == "test_batch" ? 10 : samples; i > 0; --i) {
        file.put(static_cast<char>(random.Below(10)));
        for (int pixel = 0; pixel < 3 * 32 * 32; ++pixel) {
          file.put(static_cast<char>(random.Below(256)));
        }
      }
    }
    return absl::StrCat("{format: cifar10, path: ", folder, "}");
  }
  if (setup.shape == std::vector<int64_t>{1, 28, 28} && classes == 10) {
    return std::string("{format: glyphs, test_size: 100}");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found examples of ", absl::StrJoin(setup.shape, ","), " and ", classes,
                   " classes, expected 1,28,28 or 3,32,32 and 10, or a text of at most ",
                   kMaxCharacters, " characters: through servers, examples are files"));
}

std::string JobYaml(const ClusterStepBench& bench, const std::string& data) {
  const int64_t parts = bench.workers * bench.accumulate;
  return absl::StrFormat(
      "version: 1\n"
      "name: bench\n"
      "cluster: {servers: %d, server_threads: %d, workers: %d, address: \"127.0.0.1:0\"}\n"
      "device: {type: %s, precision: %s, attention: %s, convolution: %s, threads: %d}\n"
      "data: %s\n"
      "model: %s\n"
      "optimizer: {name: sgd, learning_rate: 0.001, momentum: 0.9}\n"
      "consistency: {mode: %s}\n"
      "train: {batch_size: %d, micro_batches: %d, until: {%s}, on_non_finite: %s}\n"
      "metrics: {every: {steps: %d}, tensorboard: false}\n"
      "evaluation: {every: {epochs: 1000000}}\n",
      bench.servers, bench.server_threads, bench.workers, bench.device, bench.precision,
      bench.attention, bench.convolution, bench.threads, data, bench.model, bench.mode,
      bench.batch * parts, parts * bench.threads,
      bench.steps > 0 ? absl::StrCat("steps: ", bench.steps)
                      : absl::StrCat("time: ", bench.seconds, "s"),
      bench.precision == "fp16" ? "skip" : "stop", StepsOfALine(bench));
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// `rubato`, what it says in `log`. Its exit code.
absl::StatusOr<int> RunRubato(std::vector<std::string> arguments, const std::string& log) {
  RUBATO_ASSIGN_OR_RETURN(const std::string program, FindBinary("rubato"));
  arguments.insert(arguments.begin(), "rubato");
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &files, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return absl::InternalError(absl::StrCat("cannot start rubato train: ", std::strerror(error)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailure;
}

// What the run's lines of metrics tell.
struct Lines {
  std::vector<double> speeds, hidden, waiting;
};

absl::StatusOr<Lines> ReadLines(const ClusterStepBench& bench, const std::string& path) {
  Lines lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json metrics = ParseJson(line);
    if (!metrics.is_object() || metrics.value("kind", "") != "train") continue;
    lines.speeds.push_back(metrics.value("samples_per_second", 0.0));
    lines.hidden.push_back(metrics.value("communication_hidden", 0.0));
    lines.waiting.push_back(metrics.value("waiting_seconds", 0.0));
  }
  // The first also tells how long all took to begin.
  if (lines.speeds.size() > 1) lines.speeds.erase(lines.speeds.begin());
  if (lines.speeds.empty()) {
    return absl::DeadlineExceededError(absl::StrCat("no ", StepsOfALine(bench), " steps in ",
                                                    bench.seconds, " s; expected more --seconds"));
  }
  return lines;
}

// `operations`: of a sample. `peak`: operations a second of products of matrices, if known.
std::string Report(const ClusterStepBench& bench, const Lines& lines, double operations,
                   std::optional<double> peak, bool json) {
  const double rate = Median(lines.speeds);
  const double milliseconds =
      1e3 * static_cast<double>(bench.batch * bench.accumulate * bench.workers) / rate;
  const double speed = operations * rate;
  if (json) {
    nlohmann::ordered_json object;
    object["model"] = bench.model;
    object["batch"] = bench.batch;
    object["accumulate"] = bench.accumulate;
    object["threads"] = bench.threads;
    object["device"] = bench.device;
    object["precision"] = bench.precision;
    object["servers"] = bench.servers;
    object["server_threads"] = bench.server_threads;
    object["workers"] = bench.workers;
    object["mode"] = bench.mode;
    object["samples_per_second"] = rate;
    object["milliseconds"] = milliseconds;
    object["gflops"] = speed * 1e-9;
    object["flops_share_of_peak"] = peak ? nlohmann::json(speed / *peak) : nullptr;
    object["peak_gflops"] = peak ? nlohmann::json(*peak * 1e-9) : nullptr;
    object["waiting_milliseconds"] = Median(lines.waiting) * 1e3;
    object["communication_hidden"] = Median(lines.hidden);
    return JsonText(object) + "\n";
  }
  return absl::StrFormat(
      "cluster  %d workers with %d times batch %d each, %d servers, %s\nstep     %.3f ms, %.0f "
      "samples/s\n"
      "speed    %.1f GFLOP/s%s\n"
      "waiting  %.3f ms of it for parameters; %.0f %% of the communication is hidden\n",
      bench.workers, bench.accumulate, bench.batch, bench.servers, bench.mode, milliseconds, rate,
      speed * 1e-9,
      peak ? absl::StrFormat(" of %.1f that products of matrices reach on as many threads (%s)",
                             *peak * 1e-9, ShareOfPeak(speed, *peak))
           : "",
      Median(lines.waiting) * 1e3, Median(lines.hidden) * 100);
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
  RUBATO_ASSIGN_OR_RETURN(const BenchSetup setup, MakeSetup(bench));
  RUBATO_ASSIGN_OR_RETURN(
      const std::string data,
      MakeExamples(setup, bench.batch * bench.accumulate * bench.workers, folder));
  const std::string job = folder + "/job.yaml", log = folder + "/log", run = folder + "/run";
  std::ofstream(job) << JobYaml(bench, data);
  RUBATO_ASSIGN_OR_RETURN(const int code, RunRubato({"train", job, "--run-dir", run}, log));
  if (code != 0) {
    const std::string said = ReadText(log);
    const size_t at = said.rfind("error: ");
    const std::string reason(
        absl::StripSuffix(at == std::string::npos ? said : said.substr(at + 7), "\n"));
    return code == kExitUsage ? absl::InvalidArgumentError(reason) : absl::UnavailableError(reason);
  }
  RUBATO_ASSIGN_OR_RETURN(const Lines lines, ReadLines(bench, run + "/metrics.jsonl"));
  RUBATO_ASSIGN_OR_RETURN(const double operations, OperationsOf(setup));
  std::optional<double> peak;
  if (setup.device.is_cpu()) {
    RUBATO_ASSIGN_OR_RETURN(const double thread, PeakOfAThread());
    peak = thread * static_cast<double>(bench.workers * bench.threads);
  }
  return Report(bench, lines, operations, peak, json);
}

}  // namespace rubato
