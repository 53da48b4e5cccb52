#include "tools/kubernetes/render.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/flags.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/job/job.h"
#include "common/job/scalar.h"
#include "common/space/modes.h"
#include "tools/command/binaries.h"
#include "tools/command/plan.h"
#include "tools/command/summary.h"
#include "tools/kubernetes/folders.h"
#include "tools/kubernetes/head.h"
#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/model.h"
#include "tools/kubernetes/predict.h"
#include "tools/kubernetes/yaml_text.h"

namespace rubato {
namespace {

using kubernetes::Files;
using kubernetes::Format;
using kubernetes::Memory;
using kubernetes::Model;
using kubernetes::Options;
using kubernetes::Sizes;

// What was typed.
struct Typed {
  std::string target;
  std::string config;
  std::string format = "plain";
  std::string output;
  std::vector<std::string> set;
  std::string server_memory;
  std::string worker_memory;
  std::string worker_storage;
  std::string runs_size;
  Options options;
};

// What was warned of already.
using Told = std::set<std::string>;

void Warn(const std::string& warning, Told* told) {
  if (warning.empty() || !told->insert(warning).second) return;
  WriteAll(2, absl::StrCat("warning: ", warning, "\n"));
}

absl::StatusOr<Format> FormatOf(const std::string& text) {
  // A folder is made of what is plain.
  if (text == "plain" || text == "helm" || text == "kustomize") return Format::kPlain;
  if (text == "jobset") return Format::kJobSet;
  if (text == "trainingruntime") return Format::kTrainingRuntime;
  return absl::InvalidArgumentError(absl::StrCat(
      "--format: found ", text, ", expected plain, jobset, trainingruntime, helm or kustomize"));
}

bool IsFolder(const Typed& typed) { return typed.format == "helm" || typed.format == "kustomize"; }

// Which flags go with which format.
absl::Status CheckFlags(const Typed& typed) {
  if (IsFolder(typed) && typed.output.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output is missing: the folder that --format ", typed.format, " writes"));
  }
  if (!IsFolder(typed) && !typed.output.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--output: expected with --format helm or kustomize alone, which write a folder; found ",
        typed.format));
  }
  if (!typed.runs_size.empty() && !typed.options.runs_claim.empty()) {
    return absl::InvalidArgumentError(
        "--runs-size: found beside --runs-claim, expected one of them: that claim has its size");
  }
  if (typed.format == "kustomize" && typed.options.gpus != 0) {
    return absl::InvalidArgumentError(
        "--gpus: found with --format kustomize, expected none: its overlays cpu and gpu say it");
  }
  if (typed.options.queue.empty() || typed.options.format == Format::kJobSet) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--queue: expected with --format jobset alone, which is one workload for a queue; found ",
      typed.format));
}

// A process alone takes this; what is less was meant in another unit.
constexpr int64_t kLeastSize = int64_t{32} << 20;

// Zero if nothing was given.
absl::StatusOr<int64_t> SizeOf(absl::string_view flag, const std::string& text) {
  if (text.empty()) return 0;
  // 2Gi, as Kubernetes has it, is 2GiB.
  const std::optional<int64_t> bytes =
      ParseSize(absl::EndsWith(text, "i") ? absl::StrCat(text, "B") : text);
  if (bytes.has_value() && *bytes >= kLeastSize) return *bytes;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": found ", text,
                                                 ", expected a size such as 2Gi or 2GiB",
                                                 bytes.has_value() ? ", and at least 32Mi" : ""));
}

// What is given, and else predicted, which reads the data.
absl::StatusOr<Sizes> FindSizes(const proto::Job& job, const Typed& typed, Told* told) {
  RUBATO_ASSIGN_OR_RETURN(const int64_t server, SizeOf("--server-memory", typed.server_memory));
  RUBATO_ASSIGN_OR_RETURN(const int64_t worker, SizeOf("--worker-memory", typed.worker_memory));
  RUBATO_ASSIGN_OR_RETURN(const int64_t runs, SizeOf("--runs-size", typed.runs_size));
  RUBATO_ASSIGN_OR_RETURN(const int64_t storage, SizeOf("--worker-storage", typed.worker_storage));
  Sizes sizes;
  const bool all_given =
      server > 0 && worker > 0 && (runs > 0 || !typed.options.runs_claim.empty());
  if (!all_given && job.script_size() > 0) {
    return absl::InvalidArgumentError(
        "script: how large its model is, is known only when it runs: give --server-memory, "
        "--worker-memory and --runs-size (or --runs-claim)");
  }
  if (!all_given) {
    absl::StatusOr<Plan> plan = MakePlan(job);
    if (!plan.ok()) {
      return absl::Status(plan.status().code(),
                          absl::StrCat(plan.status().message(),
                                       "; without the data --server-memory, --worker-memory and "
                                       "--runs-size say what would be predicted by them"));
    }
    for (const std::string& note : plan->notes) {
      if (absl::StartsWith(note, "warning: ")) Warn(note.substr(strlen("warning: ")), told);
    }
    for (const std::string& warning : WarningsOf(*plan)) Warn(warning, told);
    sizes = kubernetes::Predict(*plan, typed.options);
  } else {
    Warn(IdleWorkers(job, FirstMode(job), job.cluster().workers().start()), told);
  }
  if (server > 0) sizes.server = sizes.coordinator = Memory{server, server};
  if (worker > 0) sizes.worker = Memory{worker, worker};
  if (runs > 0) sizes.runs = runs;
  sizes.worker_storage = storage;
  return sizes;
}

absl::StatusOr<Model> MakeModel(const Typed& typed, Told* told) {
  RUBATO_ASSIGN_OR_RETURN(proto::Job job, LoadJob(typed.config, typed.set));
  // The cheap mistakes before the data are read.
  RUBATO_RETURN_IF_ERROR(kubernetes::MakeModel(job, typed.options, Sizes()).status());
  RUBATO_ASSIGN_OR_RETURN(const Sizes sizes, FindSizes(job, typed, told));
  return kubernetes::MakeModel(std::move(job), typed.options, sizes);
}

absl::StatusOr<Files> Kustomize(Typed typed, const std::string& command) {
  typed.set.push_back("device.type=auto");  // the overlays say it
  Told told;
  RUBATO_ASSIGN_OR_RETURN(const Model cpu, MakeModel(typed, &told));
  Typed with_gpu = typed, small = typed;
  with_gpu.options.gpus = 1;
  RUBATO_ASSIGN_OR_RETURN(const Model gpu, MakeModel(with_gpu, &told));
  small.set.push_back("cluster.workers=1");
  small.options.cpu = "100m";
  RUBATO_ASSIGN_OR_RETURN(const Model dev, MakeModel(small, &told));
  return kubernetes::KustomizeFolder(cpu, {{"cpu", cpu}, {"gpu", gpu}, {"dev", dev}}, command);
}

// Into a folder of its own, so that nothing of another rendering stays in it.
absl::StatusOr<std::string> Written(const std::string& folder, const Files& files) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--output: ", folder, " is there, expected a new or empty folder"));
  }
  for (const auto& [name, text] : files) {
    const fs::path path = fs::path(folder) / name;
    fs::create_directories(path.parent_path(), error);
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) return absl::InternalError(absl::StrCat("cannot write ", path.string()));
  }
  return absl::StrCat("wrote ", files.size(), " files to ", folder, "\n");
}

absl::StatusOr<std::string> Render(Typed typed, const std::string& command) {
  if (typed.target != "kubernetes") {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", typed.target, ", expected kubernetes: what to render for"));
  }
  RUBATO_ASSIGN_OR_RETURN(typed.options.format, FormatOf(typed.format));
  RUBATO_RETURN_IF_ERROR(CheckFlags(typed));
  if (typed.format == "kustomize") {
    RUBATO_ASSIGN_OR_RETURN(const Files files, Kustomize(typed, command));
    return Written(typed.output, files);
  }
  Told told;
  RUBATO_ASSIGN_OR_RETURN(const Model model, MakeModel(typed, &told));
  if (typed.format == "helm") return Written(typed.output, kubernetes::HelmChart(model));
  return absl::StrCat(kubernetes::HeadText(model, command),
                      kubernetes::YamlText(kubernetes::Manifests(model)));
}

}  // namespace

int RenderMain(const std::vector<std::string>& arguments) {
  Typed typed;
  Options& options = typed.options;
  Flags flags(
      "rubato render",
      "Prints the manifests with which Kubernetes runs the job in CONFIG.yaml: Jobs for servers "
      "and "
      "workers and\nwhat they need. Comments at their head say what to type.",
      {"rubato render kubernetes configs/quickstart.yaml --image example.org/rubato:0.1.0 > "
       "job.yaml",
       "rubato render kubernetes job.yaml --image IMAGE --gpus 1 --data-claim datasets:/data",
       "rubato render kubernetes job.yaml --image IMAGE --format jobset --queue team-a"});
  flags.AddPositional(&typed.target, "kubernetes", "what to render for");
  flags.AddPositional(&typed.config, "CONFIG.yaml", "the job");
  flags.Add("image", &options.image, "IMAGE", "that has rubato, rubato-server and rubato-worker",
            Flags::kRequired);
  flags.Add("worker-image", &options.worker_image, "IMAGE",
            "of the workers, that has rubato-worker and, for a script, all that it needs; default: "
            "the same");
  flags.Add("format", &typed.format, "FORMAT",
            "plain: Jobs; jobset: one JobSet; trainingruntime: a TrainingRuntime for TrainJobs; "
            "helm: a chart; kustomize: a base with overlays cpu, gpu and dev");
  flags.Add("output", &typed.output, "DIR", "the folder that --format helm or kustomize writes");
  flags.Add("queue", &options.queue, "NAME", "Kueue's queue that the JobSet waits in");
  flags.Add("gpus", &options.gpus, "N", "GPUs of each worker, 0 or 1");
  flags.Add("data-claim", &options.data_claim, "NAME[:PATH]",
            "a claim with the data, which workers mount at PATH (/data) to read them");
  flags.Add("data-command", &options.data_command, "COMMAND",
            "what each worker's pod runs first, in a shell in /data, to get the data there");
  flags.Add("data-path", &options.data_path, "PATH",
            "data.path as the workers see it; default: by its last name, in the folder above");
  flags.Add("runs-claim", &options.runs_claim, "NAME",
            "an existing claim for the run's folder; default: one is rendered");
  flags.Add(
      "resume", &options.resume, "RUN|CHECKPOINT|auto",
      "continue from a checkpoint of a run in that claim, as runs/NAME; auto: from the newest "
      "run of the job's name, if there is one; required: the same, and an error if there is "
      "none; never. Takes precedence over checkpoint.resume");
  flags.Add("runs-size", &typed.runs_size, "SIZE",
            "of the claim that is rendered; default: as predicted");
  flags.Add("server-memory", &typed.server_memory, "SIZE", "of each server; default: as predicted");
  flags.Add("worker-memory", &typed.worker_memory, "SIZE", "of each worker; default: as predicted");
  flags.Add(
      "worker-storage", &typed.worker_storage, "SIZE",
      "of its node's disk, of each worker, for /tmp, data and the log; default: what a worker "
      "of Rubato needs, and no limit for a script or --data-command");
  flags.Add("priority-class", &options.priority_class, "NAME", "of all pods");
  flags.Add("disruption-budget", &options.disruption_budget, "",
            "no server is evicted, which keeps nodes from being drained");
  flags.Add("monitoring-namespace", &options.monitoring_namespace, "NS",
            "a namespace whose pods, too, may reach the servers' health port");
  flags.Add("name", &options.name, "NAME", "of all that is rendered; default: the job's");
  flags.Add("set", &typed.set, "KEY=VALUE",
            "override a key of the job, as optimizer.learning_rate=0.1; may be repeated");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  typed.config = FindConfig(typed.config);
  std::vector<std::string> words = {"rubato", "render"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return PrintResult(Render(typed, ShellLine(words)));
}

}  // namespace rubato
