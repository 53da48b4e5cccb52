#include "tools/command/simulate.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/flags.h"
#include "common/base/host_memory.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/init_from.h"
#include "common/files/resume_point.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "common/job/mixed_splits.h"
#include "common/pace/quantity.h"
#include "common/space/modes.h"
#include "server/optimizers/resumed_slots.h"
#include "tools/command/binaries.h"
#include "tools/command/loss_text.h"
#include "tools/command/plan.h"
#include "tools/simulator/link.h"
#include "tools/simulator/real_worker.h"
#include "tools/simulator/simulated_run.h"
#include "worker/data/load.h"
#include "worker/step/compute_device.h"

namespace rubato {
namespace {

// What was typed.
struct Options {
  std::string config;
  std::vector<std::string> set;
  std::string workers;
  std::string servers;
  std::string speeds = "fixed";
  std::string compute = "10ms";
  std::string latency = "100us";
  std::string bandwidth = "10Gbit";
  std::vector<std::string> link;
  std::string jitter = "0";
  std::string apply = "unlimited";
  bool sizes_only = false;
  int64_t seed = 0;
  std::string run_dir;
};

std::string Text(const SimulatedFigures& figures, const Options& options, const proto::Job& job,
                 double wall_seconds, const std::string& path) {
  const nlohmann::json json = ParseJson(figures.summary_json);
  const double seconds = NumberAt(json, "seconds");
  const double steps = NumberAt(json, "steps");
  double updates = 0, staleness = 0, most = 0;
  if (json.is_object() && json.contains("blocks")) {
    for (const nlohmann::json& block : json["blocks"]) {
      updates += NumberAt(block, "updates");
      staleness += NumberAt(block, "staleness_sum");
      most = std::max(most, NumberAt(block, "staleness_max"));
    }
  }
  std::string text = absl::StrFormat(
      "workers        %d on %d shards, %s, speeds %s\n"
      "time           %.6g s of training, %.6g ms a step (%.0f steps)\n"
      "speed          %.0f samples/s\n"
      "computing      %.1f %% of a worker's time on average, %.1f %% of the least busy one's\n"
      "shards' cards  %.1f %% busy receiving, %.1f %% busy sending (the busiest one)\n",
      job.cluster().workers().start(), job.cluster().servers(), figures.modes, options.speeds,
      seconds, steps > 0 ? 1000 * seconds / steps : 0, steps, NumberAt(json, "samples_per_second"),
      100 * figures.computing, 100 * figures.slowest, 100 * figures.in_share,
      100 * figures.out_share);
  if (figures.on_arrival && updates > 0) {
    absl::StrAppend(&text, absl::StrFormat("staleness      %.2f on average, %.0f at most\n",
                                           staleness / updates, most));
  }
  if (!options.sizes_only) {
    if (json.contains("test_accuracy")) {
      absl::StrAppend(
          &text, absl::StrFormat("test accuracy  %.2f %%  (loss %s)\n",
                                 100 * NumberAt(json, "test_accuracy"), LossAt(json, "test_loss")));
    } else {
      absl::StrAppend(&text, "test loss      ", LossAt(json, "test_loss"), "\n");
    }
  }
  absl::StrAppend(&text, absl::StrFormat("simulated      %d events, %.2f GB sent, in %.2f s\n",
                                         figures.events, figures.bytes * 1e-9, wall_seconds));
  return absl::StrCat(text, "files          ", path, "\n");
}

// Unless it is empty.
void Warn(const std::string& warning) {
  if (!warning.empty()) WriteAll(2, absl::StrCat("warning: ", warning, "\n"));
}

// What the job goes on from, if it does not begin with initial values of its own.
absl::Status ReadStart(const proto::Job& job, const proto::Layout& layout,
                       SimulationSetting* setting) {
  std::vector<std::string> warnings;
  RUBATO_ASSIGN_OR_RETURN(const std::string checkpoint,
                          ResumePoint(job, /*flag=*/"", "runs", &warnings));
  for (const std::string& warning : warnings) Warn(warning);
  TrainingState state;
  if (!checkpoint.empty()) {
    RUBATO_ASSIGN_OR_RETURN(setting->resume, CheckCheckpoint(checkpoint));
    RUBATO_ASSIGN_OR_RETURN(const std::string note, MatchSlots(job, &*setting->resume));
    Warn(note);
    for (const std::string& sentence : MixedSplits(checkpoint + "/job.yaml", job)) Warn(sentence);
    RUBATO_ASSIGN_OR_RETURN(state, ReadTrainingState(checkpoint, *setting->resume, layout));
  } else if (!job.model().init_from().empty()) {
    RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader file,
                            OpenInitialParameters(job.model().init_from(), layout));
    state.parameters.resize(ValueCount(layout));
    RUBATO_RETURN_IF_ERROR(ReadInitialValues(file, layout, 0, absl::MakeSpan(state.parameters)));
  } else {
    return absl::OkStatus();
  }
  setting->initial = std::make_shared<const TrainingState>(std::move(state));
  return absl::OkStatus();
}

// Refuses workers whose real gradients have no place in this process.
absl::Status CheckMemory(const Plan& plan) {
  const double bytes =
      static_cast<double>(RealWorker::Memory(plan.job, plan.sizes.values,
                                             plan.sizes.training_bytes + plan.sizes.test_bytes)) +
      static_cast<double>(plan.sizes.data_bytes + 2 * plan.result_bytes);
  const std::optional<int64_t> available = AvailableMemory();
  if (!available.has_value() || bytes <= static_cast<double>(*available)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "found %d workers, whose parameters and gradients take some %.1f GB, expected no more than "
      "the %.1f GB of memory that this process may still take: --sizes-only computes nothing, "
      "--workers N takes fewer",
      plan.job.cluster().workers().start(), bytes * 1e-9, *available * 1e-9));
}

// Speeds, times and the network.
absl::Status ReadVirtualCluster(const Options& options, SimulationSetting* setting) {
  setting->seed = static_cast<uint64_t>(options.seed);
  RUBATO_ASSIGN_OR_RETURN(setting->speeds, Speeds::Parse(options.speeds, setting->seed));
  RUBATO_ASSIGN_OR_RETURN(setting->micro_batch_time, ParseTime("--compute", options.compute));
  RUBATO_ASSIGN_OR_RETURN(setting->card.latency, ParseTime("--latency", options.latency));
  RUBATO_ASSIGN_OR_RETURN(setting->card.bytes_per_second,
                          ParseBandwidth("--bandwidth", options.bandwidth));
  RUBATO_ASSIGN_OR_RETURN(setting->jitter, ParseTime("--jitter", options.jitter));
  if (options.apply == "unlimited") return absl::OkStatus();
  RUBATO_ASSIGN_OR_RETURN(setting->change_bytes_per_second,
                          ParseBandwidth("--apply", options.apply));
  return absl::OkStatus();
}

// A test goes forward only, a third of the work of a micro-batch for as many samples.
SimTime TestTime(const SimulationSetting& setting, int64_t samples) {
  const proto::Train& train = setting.job.train();
  const double micro_batch = static_cast<double>(train.batch_size()) / train.micro_batches();
  return static_cast<SimTime>(
      std::min(static_cast<double>(setting.micro_batch_time) * samples / micro_batch / 3,
               static_cast<double>(kLongest)));
}

absl::StatusOr<std::string> Simulate(Options options) {
  const absl::Time start = absl::Now();
  if (!options.workers.empty()) {
    options.set.push_back(absl::StrCat("cluster.workers=", options.workers));
  }
  if (!options.servers.empty()) {
    options.set.push_back(absl::StrCat("cluster.servers=", options.servers));
  }
  Sources sources;
  RUBATO_ASSIGN_OR_RETURN(proto::Job job,
                          LoadJob(options.config, options.set, ProcessEnvironment(), &sources));
  SimulationSetting setting;
  RUBATO_RETURN_IF_ERROR(ReadVirtualCluster(options, &setting));
  RUBATO_ASSIGN_OR_RETURN(Plan plan, MakePlan(std::move(job)));
  setting.job = plan.job;
  setting.layout = plan.layout;
  setting.train_samples = plan.train_samples;
  setting.test_samples = plan.test_samples;
  setting.one_block_for_each_shard = options.sizes_only;
  if (plan.job.evaluation().split() == proto::Evaluation::SPLIT_TEST) {
    setting.test_time = TestTime(setting, plan.test_samples);
  } else {
    setting.test_time = TestTime(setting, plan.validation_samples);
    setting.final_test_time = TestTime(setting, plan.test_samples);
  }
  RUBATO_RETURN_IF_ERROR(setting.speeds.CheckWorkers(plan.job.cluster().workers().max()));
  for (const std::string& link : options.link) {
    RUBATO_ASSIGN_OR_RETURN(LinkSetting parsed, ParseLink(link, plan.job.cluster().workers().max(),
                                                          plan.job.cluster().servers()));
    setting.links.push_back(parsed);
  }
  Warn(IdleWorkers(plan.job, FirstMode(plan.job), plan.job.cluster().workers().start()));
  std::optional<Data> data;
  if (options.sizes_only && plan.job.checkpoint().resume() == proto::Checkpoint::RESUME_REQUIRED) {
    return absl::InvalidArgumentError(
        "checkpoint.resume is required, and with --sizes-only nothing is resumed: set it to never");
  }
  if (!options.sizes_only) {
    RUBATO_RETURN_IF_ERROR(FixIsa(plan.job.device()));  // or the bits would be others
    RUBATO_RETURN_IF_ERROR(CheckMemory(plan));
    RUBATO_RETURN_IF_ERROR(ReadStart(plan.job, plan.layout, &setting));
    RUBATO_ASSIGN_OR_RETURN(data, LoadData(plan.job));
    setting.data = &*data;
    setting.data_digest = data->digest;
  }
  RUBATO_ASSIGN_OR_RETURN(const RunFolder folder,
                          RunFolder::Create(plan.job.name(), options.run_dir, absl::Now(),
                                            static_cast<Readers>(plan.job.security().readers())));
  const absl::StatusOr<SimulatedFigures> figures =
      RunSimulation(std::move(setting), sources, folder);
  if (!figures.ok()) {
    std::error_code error;
    const bool has_begun = std::filesystem::file_size(folder.ViewsFile(), error) > 0 && !error;
    if (!has_begun) folder.Abandon();
    return figures.status();
  }
  return Text(*figures, options, plan.job, absl::ToDoubleSeconds(absl::Now() - start),
              folder.path());
}

}  // namespace

int SimulateMain(const std::vector<std::string>& arguments) {
  Options options;
  Flags flags(
      "rubato simulate",
      "Runs the job in CONFIG.yaml in virtual time, in this process: the cores of server and "
      "worker, as they are, on\n"
      "a virtual network, with workers as fast as you say. Answers what the job would do on a "
      "cluster that is not\n"
      "there. Leaves the run folder that `rubato train` would; the same seed gives the same bytes.",
      {"rubato simulate configs/quickstart.yaml --workers 8 --speeds exponential",
       "rubato simulate configs/quickstart.yaml --workers 64 --speeds "
       "lognormal:sigma=0.3+straggler:factor=4 --sizes-only \\\n"
       "      --set consistency.mode=async --set train.micro_batches=64",
       "rubato simulate configs/quickstart.yaml --speeds transient:p=0.05,factor=10 --latency 50us "
       "--bandwidth 25Gbit"});
  flags.AddPositional(&options.config, "CONFIG.yaml", "the job");
  flags.Add("workers", &options.workers, "N", "workers; default: cluster.workers of the job");
  flags.Add("servers", &options.servers, "N", "shards; default: cluster.servers of the job");
  flags.Add(
      "speeds", &options.speeds, "SPEEDS",
      "a random factor for the time of each computation: fixed, exponential, lognormal:sigma=0.5, "
      "jitter:width=0.01, transient:p=0.05,factor=10, straggler:factor=4,worker=0, or trace:FILE "
      "with lines `worker,seconds`; several may be joined by +");
  flags.Add("compute", &options.compute, "TIME",
            "the time that a worker needs for one micro-batch, before that factor");
  flags.Add("latency", &options.latency, "TIME",
            "the time that a message needs between two machines");
  flags.Add("bandwidth", &options.bandwidth, "RATE",
            "the bandwidth of each machine in each direction, or unlimited");
  flags.Add(
      "link", &options.link, "MACHINE,SETTINGS",
      "other latency or bandwidth for one machine, or between two: "
      "worker=3,latency=5ms,bandwidth=1Gbit; shard=0,...; worker=3,shard=0,...; may be repeated");
  flags.Add("jitter", &options.jitter, "TIME", "the mean of a random delay of each message");
  flags.Add("apply", &options.apply, "RATE",
            "bytes per second that a shard can sum and apply, or unlimited");
  flags.Add("sizes-only", &options.sizes_only, "",
            "compute nothing: messages take their time, but carry no values; all blocks of a "
            "worker on a shard travel in one");
  flags.Add("seed", &options.seed, "N",
            "of speeds and jitter; the seed of the training is in the job");
  flags.Add("run-dir", &options.run_dir, "DIR",
            "new or empty folder for the run (default runs/NAME-TIME-XXXX)");
  flags.Add("set", &options.set, "KEY=VALUE", "override a key of the job; may be repeated");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  options.config = FindConfig(options.config);
  const absl::StatusOr<std::string> text = Simulate(std::move(options));
  return PrintResult(text);
}

}  // namespace rubato
