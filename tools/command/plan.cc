#include "tools/command/plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/files/init_from.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/job/schema.h"
#include "common/space/job_codec.h"
#include "common/space/modes.h"
#include "common/space/placement.h"
#include "common/wire/channel.h"
#include "server/optimizers/optimizer.h"
#include "server/optimizers/parameter_groups.h"
#include "server/process/server_memory.h"
#include "tools/command/binaries.h"
#include "worker/data/load.h"
#include "worker/model/model.h"
#include "worker/step/compute_device.h"
#include "worker/step/evaluator.h"
#include "worker/step/objective.h"

namespace rubato {
namespace {

constexpr int64_t kValueBytes = sizeof(float);

// Rows of cells as text: each row begins with "# ", numbers stand to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { Add(std::move(header)); }

  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  std::string Text() const {
    std::vector<size_t> widths(rows_[0].size(), 0);
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      std::string line = "#";
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - row[i].size(), ' ');
        // The first column is a name.
        absl::StrAppend(&line, "  ", i == 0 ? row[i] + padding : padding + row[i]);
      }
      absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string WarningText(const std::string& warning) {
  return warning.empty() ? "" : absl::StrCat("#  warning: ", warning, "\n");
}

std::string IdleWorkersText(const proto::Job& job) {
  return WarningText(IdleWorkers(job, FirstMode(job), job.cluster().workers().start()));
}

// Where the optimizer has groups, with what holds for each parameter.
std::string ParametersText(const proto::Layout& layout, const proto::Optimizer& optimizer) {
  const bool grouped = optimizer.groups_size() > 0;
  std::vector<std::string> header = {"parameter", "shape", "values", "bytes"};
  if (grouped) header.insert(header.end(), {"group", "learning_rate", "weight_decay"});
  Table table(header);
  const std::vector<int> groups = GroupsOf(optimizer, layout);
  for (int i = 0; i < layout.parameters_size(); ++i) {
    const proto::Parameter& parameter = layout.parameters(i);
    const int64_t values = ValueCount(parameter);
    std::vector<std::string> row = {parameter.name(),
                                    absl::StrCat("(", absl::StrJoin(parameter.shape(), ", "), ")"),
                                    absl::StrCat(values), absl::StrCat(values * kValueBytes)};
    if (grouped) {
      const proto::Optimizer own = GroupSettings(optimizer, groups[i]);
      const bool frozen = own.learning_rate() == 0;
      row.push_back(groups[i] == kNoGroup ? "-" : absl::StrCat(groups[i]));
      row.push_back(frozen ? "frozen" : absl::StrCat(own.learning_rate()));
      row.push_back(frozen ? "-" : absl::StrCat(own.weight_decay()));
    }
    table.Add(row);
  }
  const int64_t total = ValueCount(layout);
  std::vector<std::string> last = {"total", "", absl::StrCat(total),
                                   absl::StrCat(total * kValueBytes)};
  last.resize(header.size());
  table.Add(last);
  std::string text = table.Text();
  for (const std::string& unused : UnusedGroups(optimizer, layout)) {
    absl::StrAppend(&text, WarningText(unused));
  }
  return text;
}

std::string Interval(const Range& range) {
  return range.empty() ? "none" : absl::StrCat("[", range.begin, ", ", range.end, ")");
}

std::string ShardsText(const Placement& placement) {
  Table table({"shard", "blocks", "values", "bytes"});
  for (int shard = 0; shard < placement.shards(); ++shard) {
    const Range values = placement.Values(shard);
    table.Add({absl::StrCat(shard), Interval(placement.Blocks(shard)), Interval(values),
               absl::StrCat(values.size() * kValueBytes)});
  }
  return table.Text() + WarningText(IdleServers(placement));
}

int64_t BytesOf(const Examples& examples) {
  return static_cast<int64_t>(examples.pixels.size() + kValueBytes * examples.features.size() +
                              sizeof(int32_t) * examples.labels.size() +
                              kValueBytes * examples.values.size());
}

std::string Megabytes(int64_t bytes) {
  return absl::StrFormat("%.1f MB", static_cast<double>(bytes) * 1e-6);
}

// A name in a list of them.
std::string NameText(const std::string& name) {
  const std::string text = absl::StrReplaceAll(absl::Utf8SafeCEscape(name), {{"\\'", "'"}});
  const bool is_plain = !name.empty() && name.find(',') == name.npos;
  return is_plain ? text : absl::StrCat("\"", text, "\"");
}

// Words in lines of comments that are not too long, of many the first.
std::string ListText(absl::string_view title, const std::vector<std::string>& words) {
  constexpr size_t kMost = 1000, kWidth = 100;
  if (words.empty()) return "";
  std::string text, line = absl::StrCat("#  ", title, ":");
  for (size_t i = 0; i < std::min(words.size(), kMost); ++i) {
    const bool is_last = i + 1 == words.size();
    const std::string name = absl::StrCat(words[i], is_last ? "" : ",");
    if (line.size() + 1 + name.size() > kWidth) {
      absl::StrAppend(&text, line, "\n");
      line = "#   ";
    }
    absl::StrAppend(&line, " ", name);
  }
  return absl::StrCat(text, line, words.size() > kMost ? " ..." : "", "\n");
}

// As a list in YAML; each number stands for the same float32 when it is read again.
std::vector<std::string> Listed(const std::vector<float>& numbers) {
  std::vector<std::string> words;
  for (const float number : numbers) words.push_back(absl::StrFormat("%.9g", number));
  if (words.empty()) return words;
  words.front().insert(0, "[");
  words.back().push_back(']');
  return words;
}

// What the model takes and gives, in order, and what people should know of the data.
std::string InputsText(const Plan& plan) {
  std::vector<std::string> inputs, classes;
  for (const std::string& name : plan.columns) inputs.push_back(NameText(name));
  const proto::Loss& loss = plan.job.loss();
  for (size_t i = 0; i < plan.classes.size(); ++i) {
    classes.push_back(NameText(plan.classes[i]));
    if (loss.has_ignore_index() && loss.ignore_index() == static_cast<int64_t>(i)) {
      absl::StrAppend(&classes.back(), " (ignored)");
    } else if (static_cast<int>(i) < loss.class_weights_size()) {
      absl::StrAppend(&classes.back(), " (weight ", loss.class_weights(static_cast<int>(i)), ")");
    }
  }
  std::string text = absl::StrCat(
      ListText(
          absl::StrCat(inputs.size(), inputs.size() == 1 ? " input" : " inputs, in this order"),
          inputs),
      ListText("mean, by normalize: auto", Listed(plan.normalization.mean)),
      ListText("std, by normalize: auto", Listed(plan.normalization.std)),
      ListText(absl::StrCat(classes.size(), " classes, from 0 on"), classes));
  for (const std::string& note : plan.notes) absl::StrAppend(&text, "#  ", note, "\n");
  return text;
}

struct ProcessMemory {
  absl::string_view kind;
  int64_t index;
  int64_t training, most;  // bytes
};

// Of every process, in the order in which they are started. A script's model and data are not known
// before it runs: of such a job, what its workers hold themselves.
std::vector<ProcessMemory> MemoryOfProcesses(const Plan& plan) {
  std::vector<ProcessMemory> all;
  const auto add_server = [&](absl::string_view kind, int64_t index,
                              const absl::StatusOr<ServerMemory>& memory) {
    RUBATO_CHECK(memory.ok());  // MakePlan has tried
    all.push_back({kind, index, memory->training, memory->training + memory->checkpoint});
  };
  if (!IsScript(plan.job)) {
    const Placement placement =
        Placement::Even(SpaceOf(plan.job, plan.layout), plan.job.cluster().servers());
    if (plan.job.cluster().dedicated_coordinator()) {
      add_server("coordinator", 0, PlanCoordinatorMemory(plan.job, placement));
    }
    for (int shard = 0; shard < placement.shards(); ++shard) {
      add_server("server", shard, PlanServerMemory(plan.job, placement, shard));
    }
  }
  for (int64_t index = 0; index < plan.job.cluster().workers().start(); ++index) {
    const WorkerMemory memory = PlanWorkerMemory(plan.job, plan.sizes, index);
    all.push_back({"worker", index, memory.training, memory.training + memory.test});
  }
  return all;
}

// Rows of processes whose numbers follow each other and whose memory is the same are one.
std::string MemoryText(const Plan& plan) {
  Table table({"process", "in training", "at most"});
  const std::vector<ProcessMemory> all = MemoryOfProcesses(plan);
  int64_t training = 0, most = 0;
  for (auto first = all.begin(); first != all.end();) {
    auto end = first;
    for (; end != all.end() && end->kind == first->kind && end->training == first->training &&
           end->most == first->most;
         ++end) {
      training += end->training;
      most += end->most;
    }
    table.Add({first->kind == "coordinator" ? std::string(first->kind)
               : end - first == 1           ? absl::StrCat(first->kind, " ", first->index)
                                            : absl::StrCat(first->kind, "s ", first->index, " to ",
                                                           (end - 1)->index, ", each"),
               Megabytes(first->training), Megabytes(first->most)});
    first = end;
  }
  table.Add({"all of them", Megabytes(training), Megabytes(most)});
  return table.Text();
}

// What else a server may have to hold, for peers that mean it harm.
std::string HostileText(const proto::Cluster& cluster) {
  const int strangers = MaxStrangers(cluster.workers().max(), cluster.servers());
  return absl::StrFormat(
      "#  besides, a server may have to hold up to %s for strangers (%d connections), and up to %s "
      "for each member gone bad\n",
      Megabytes(strangers * kMaxStrangerMemory), strangers,
      Megabytes(kConnectionsOfMember * kMaxConnectionBytes));
}

// The file that Python is to run; empty if it is given otherwise, not at all, or behind options
// that may have a word of their own.
std::string PythonFile(const proto::Job& job) {
  for (int i = 1; i < job.script_size(); ++i) {
    const std::string& word = job.script(i);
    if (!absl::StartsWith(word, "-")) return word;
    if (word == "-" || word[1] == '-' || word.find_first_of("cm") != std::string::npos) return "";
    if (word.back() == 'W' || word.back() == 'X') ++i;
  }
  return "";
}

// python, python3, python3.11.
bool IsPython(absl::string_view name) {
  return absl::ConsumePrefix(&name, "python") &&
         name.find_first_not_of("0123456789.") == absl::string_view::npos;
}

// What to warn of where train.until comes before a mode of consistency.schedule; empty elsewhere,
// and where a time decides.
std::string ModeThatNeverBegins(const proto::Job& job, int64_t samples_per_epoch) {
  const std::vector<ModeSpan> spans = ModesOf(job, samples_per_epoch);
  if (job.train().until().has_time()) return "";
  const int64_t total = spans.back().until_samples;
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i - 1].until_samples < total) continue;
    return absl::StrCat("consistency.schedule[", i, "], ", ModeName(spans[i].mode),
                        ", never begins: train.until comes to ", total, " samples, and ",
                        ModeName(spans[i - 1].mode), " goes on until then");
  }
  return "";
}

// What would be found out only once servers wait for it.
absl::Status CheckScript(const proto::Job& job) {
  RUBATO_ASSIGN_OR_RETURN(const std::string program, FindProgram(job.script(0)));
  const std::string name = std::filesystem::path(program).filename().string();
  std::error_code error;
  for (const std::string& file : {program, IsPython(name) ? PythonFile(job) : ""}) {
    if (file.empty() || access(file.c_str(), F_OK) == 0) continue;
    return absl::NotFoundError(absl::StrCat(
        "script: found no file ", file,
        std::filesystem::path(file).is_absolute()
            ? ""
            : absl::StrCat(" (`script` is relative to the folder in which `rubato train` runs, ",
                           std::filesystem::current_path(error).string(), ")")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> MakePlan(proto::Job job) {
  // What convolutions need depends on it. If this processor lacks it, the workers' is near its own.
  static_cast<void>(FixIsa(job.device()));
  Plan plan;
  if (IsScript(job)) {
    if (job.script().empty()) {
      return absl::FailedPreconditionError(
          "model: found script, and no `script` to start, such as [python3, train.py]");
    }
    RUBATO_RETURN_IF_ERROR(CheckScript(job));
    plan.job = std::move(job);
    return plan;
  }
  proto::Job small = job;
  const bool drawn = job.data().format() == proto::Data::FORMAT_GLYPHS;
  if (drawn) {
    // Sizes are known; one drawing tells the shape. The workers draw the rest.
    small.mutable_data()->set_train_size(1);
    small.mutable_data()->set_test_size(1);
    small.mutable_data()->clear_validation();
  }
  RUBATO_ASSIGN_OR_RETURN(const Data data, LoadData(small));
  const int64_t drawings = job.data().train_size();
  if (drawn) RUBATO_RETURN_IF_ERROR(CheckValidation(job.data(), drawings));
  plan.validation_samples = drawn ? ValidationSize(job.data(), drawings) : data.validation.size();
  plan.train_samples = drawn ? drawings - plan.validation_samples : data.train.size();
  plan.test_samples = drawn ? job.data().test_size() : data.test.size();
  const ExampleShape& shape = data.train.shape();
  RUBATO_ASSIGN_OR_RETURN(const Objective objective, ObjectiveOf(job, data));
  RUBATO_ASSIGN_OR_RETURN(plan.layout, LayoutOf(job.model(), shape.dimensions(), objective));
  if (const absl::Status fits = CheckLayout(plan.layout); !fits.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("model: ", fits.message()));
  }
  const int64_t micro_batch = job.train().batch_size() / job.train().micro_batches();
  RUBATO_ASSIGN_OR_RETURN(
      plan.sizes.training_bytes,
      MemoryOf(job.model(), shape.dimensions(), objective, micro_batch, Purpose::kTraining));
  // On the CPU. The worker's one model for tests takes batches of the larger split.
  const int64_t tested = std::max(plan.validation_samples, plan.test_samples);
  RUBATO_ASSIGN_OR_RETURN(
      plan.sizes.test_bytes,
      MemoryOf(job.model(), shape.dimensions(), objective,
               EvaluationBatch(tested, ComputeDevice(), micro_batch), Purpose::kEvaluation));
  plan.sizes.values = ValueCount(plan.layout);
  plan.sizes.example_values = shape.size();
  for (const Dataset* split : {&data.train, &data.validation, &data.test}) {
    plan.sizes.data_bytes += BytesOf(split->examples());
  }
  if (drawn) {
    plan.sizes.data_bytes = BytesOf(data.train.examples()) * (drawings + plan.test_samples);
  }
  if (job.model().has_init_from()) {
    const absl::Status fits = OpenInitialParameters(job.model().init_from(), plan.layout).status();
    if (!fits.ok()) {
      return absl::Status(fits.code(), absl::StrCat("model.init_from: ", fits.message()));
    }
  }
  const Placement placement = Placement::Even(SpaceOf(job, plan.layout), job.cluster().servers());
  RUBATO_RETURN_IF_ERROR(PlanServerMemory(job, placement, 0).status());
  RUBATO_RETURN_IF_ERROR(ParameterGroups::Create(ServerOptimizer(job), plan.layout).status());
  RUBATO_ASSIGN_OR_RETURN(const Optimizer optimizer, Optimizer::Create(ServerOptimizer(job)));
  plan.result_bytes =
      plan.sizes.values * kValueBytes * (2 + static_cast<int64_t>(optimizer.slots().size()));
  plan.notes = data.notes;
  if (std::string never = ModeThatNeverBegins(job, plan.train_samples); !never.empty()) {
    plan.notes.push_back(absl::StrCat("warning: ", never));
  }
  plan.columns = data.columns;
  if (!drawn) plan.normalization = data.normalization;  // one drawing does not tell it
  plan.classes = data.classes;
  plan.job = std::move(job);
  return plan;
}

bool UseGpus(const proto::Job& job) {
  if (job.device().type() != proto::Device::TYPE_AUTO) {
    return job.device().type() == proto::Device::TYPE_CUDA;
  }
  return job.cluster().gpus_per_worker() > 1 || access("/dev/nvidiactl", F_OK) == 0 ||
         access("/dev/dxg", F_OK) == 0;  // of Windows, with Linux in it
}

std::string IgnoredPrecision(const proto::Job& job) {
  const proto::Device::Precision precision = job.device().precision();
  if (precision == proto::Device::PRECISION_FLOAT32 || IsScript(job) || UseGpus(job)) return "";
  return absl::StrCat(
      "device.precision: ",
      YamlName(*proto::Device::Precision_descriptor()->FindValueByNumber(precision)),
      " is for GPUs: on the CPU workers compute in float32");
}

std::vector<std::string> WarningsOf(const Plan& plan) {
  std::vector<std::string> warnings;
  const auto add = [&](std::string warning) {
    if (!warning.empty()) warnings.push_back(std::move(warning));
  };
  const proto::Mode mode = FirstMode(plan.job);
  add(IdleWorkers(plan.job, mode, plan.job.cluster().workers().start()));
  if (IsScript(plan.job)) return warnings;
  add(ShortUnits(plan.job, mode, plan.train_samples));
  add(IdleServers(Placement::Even(SpaceOf(plan.job, plan.layout), plan.job.cluster().servers())));
  for (std::string& unused : UnusedGroups(plan.job.optimizer(), plan.layout)) {
    add(std::move(unused));
  }
  return warnings;
}

int64_t MemoryInTraining(const Plan& plan) {
  int64_t bytes = 0;
  for (const ProcessMemory& process : MemoryOfProcesses(plan)) bytes += process.training;
  return bytes;
}

int64_t TotalSamples(const Plan& plan) {
  // How many samples a script's epoch has, it tells when it registers.
  if (plan.job.train().until().has_time() || plan.job.script_size() > 0) return 0;
  return TotalSamples(plan.job, plan.train_samples);
}

std::string DryRunText(const Plan& plan) {
  if (plan.job.script_size() > 0) {
    return absl::StrCat(ResolvedYaml(plan.job, plan.sources),
                        "\n#  parameters, data and optimizer are the script's, told when it runs\n",
                        InputsText(plan), IdleWorkersText(plan.job),
                        HostileText(plan.job.cluster()));
  }
  const proto::Train& train = plan.job.train();
  const FlatSpace space = SpaceOf(plan.job, plan.layout);
  const Placement placement = Placement::Even(space, plan.job.cluster().servers());
  const int64_t micro_batch = train.batch_size() / train.micro_batches();
  const int64_t contribution =
      std::max<int64_t>(1, train.micro_batches() / plan.job.cluster().workers().start());
  const int64_t trainable = TrainableCount(plan.layout);
  int64_t pushed = 0, pulled = 0;
  for (int64_t block = 0; block < space.blocks(); ++block) {
    pushed += PushedBytes(plan.job, space.BlockValues(block), trainable);
    pulled += PulledBytes(plan.job, space.BlockValues(block), trainable);
  }
  const auto micro_batches = [&](int64_t count) {
    return absl::StrCat(count * micro_batch, " samples, ", count,
                        count == 1 ? " micro-batch" : " micro-batches", " of ", micro_batch);
  };
  return absl::StrCat(
      ResolvedYaml(plan.job, plan.sources), "\n", ParametersText(plan.layout, plan.job.optimizer()),
      "#\n", ShardsText(placement), "#\n", "#  ", space.blocks(),
      space.blocks() == 1 ? " block" : " blocks", " of ", space.block_values(), " values, ",
      space.block_values() * kValueBytes, " bytes\n",                                            //
      "#  on the wire: a gradient sum takes ", pushed, " bytes, the parameters ", pulled, "\n",  //
      "#  data: ", plan.train_samples, " training samples, ",
      plan.validation_samples > 0 ? absl::StrCat(plan.validation_samples, " for validation, ") : "",
      plan.test_samples, " test samples\n", InputsText(plan),
      "#  step: ", micro_batches(train.micro_batches()),
      "\n",  //
      "#  async contribution: ", micro_batches(contribution), "\n",
      WarningText(ShortUnits(plan.job, FirstMode(plan.job), plan.train_samples)),
      IdleWorkersText(plan.job), "#  memory of a worker's activations and gradients: ",
      plan.sizes.training_bytes *
          std::min<int64_t>(plan.job.device().threads(), train.micro_batches()),
      " bytes in training, ", plan.sizes.test_bytes, " in tests\n", "#\n", MemoryText(plan),
      "#  resident memory on one host; at most: while a checkpoint is written, and where "
      "parameters have been tested\n",
      HostileText(plan.job.cluster()));
}

}  // namespace rubato
