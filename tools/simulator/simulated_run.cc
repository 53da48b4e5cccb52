#include "tools/simulator/simulated_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/bytes.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/checkpoint_part.h"
#include "common/files/safetensors.h"
#include "common/space/modes.h"
#include "server/optimizers/optimizer.h"
#include "server/run/journal.h"
#include "server/run/kept_checkpoints.h"
#include "server/run/metrics_file.h"
#include "server/run/tensorboard_file.h"

namespace rubato {
namespace {

// `summary`, and what each worker's time went into.
Summary WithWorkers(const Simulation& simulation, Summary summary) {
  for (const auto& worker : simulation.workers()) {
    const VirtualNetwork& network = simulation.network();
    const int card = simulation.worker_card(worker->index());
    WorkerTime time;
    time.computing = static_cast<double>(worker->computing_time()) * 1e-9;
    time.sending =
        static_cast<double>(network.bytes_out(card)) / network.card(card).bytes_per_second;
    time.waiting = std::max(0.0, summary.seconds - time.computing - time.sending);
    summary.workers.push_back(time);
  }
  return summary;
}

// The files of one run.
class Files {
 public:
  Files(const proto::Job& job, bool has_floats, RunFolder folder)
      : job_(job), has_floats_(has_floats), folder_(std::move(folder)) {}

  absl::Status Open(const Sources& sources) {
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder_.JobFile(), ResolvedYaml(job_, sources)));
    RUBATO_ASSIGN_OR_RETURN(metrics_, MetricsFile::Create(folder_.MetricsFile()));
    if (job_.metrics().tensorboard()) {
      RUBATO_ASSIGN_OR_RETURN(tensorboard_,
                              TensorboardFile::Create(folder_.path(), SimStart(), "simulated"));
    }
    return absl::OkStatus();
  }

  void Record(const MetricsLine& line, absl::Time now) {
    Keep(metrics_->Append(line));
    if (tensorboard_.has_value()) Keep(tensorboard_->Append(line, now));
  }

  void Record(const proto::View& view, const std::string& reason, absl::Time now) {
    views_ += JournalLine(view, reason, now);
    if (view.lineage() == lineage_) return;
    lineage_ = view.lineage();
    const proto::Mode& mode = view.mode();
    on_arrival_ = on_arrival_ || OnArrival(mode);
    if (modes_.empty()) {
      modes_ = ModeName(mode);
    } else {
      absl::StrAppendFormat(&modes_, "; from epoch %.2f on %s",
                            static_cast<double>(view.origin_samples()) / view.samples_per_epoch(),
                            ModeName(mode));
    }
  }

  void Say(LogLevel level, const std::string& text, absl::Time now) {
    log_ += Log("server", 0).Line(now, level, text, {});
  }

  absl::Status WriteResult(const Simulation& simulation, const Summary& summary) {
    std::string digest;
    if (has_floats_) {
      RUBATO_ASSIGN_OR_RETURN(const TrainingState state, simulation.ReadState(0, 0));
      RUBATO_ASSIGN_OR_RETURN(
          digest, WriteParameters(simulation.coordinator().view().layout(), state.parameters));
    }
    summary_ = ToJson(WithWorkers(simulation, summary), digest);
    return WriteFileAtomically(folder_.SummaryFile(), summary_);
  }

  // Returns their digest.
  absl::StatusOr<std::string> WriteParameters(const proto::Layout& layout,
                                              const std::vector<float>& parameters) const {
    RUBATO_ASSIGN_OR_RETURN(
        SafetensorsWriter writer,
        SafetensorsWriter::Create(folder_.ParametersFile(), VectorTensors(layout, ""),
                                  {{"format", "pt"}}));
    RUBATO_RETURN_IF_ERROR(writer.Append(AsBytes(absl::MakeConstSpan(parameters))));
    RUBATO_RETURN_IF_ERROR(writer.Finish());
    return FileDigest(folder_.ParametersFile());
  }

  // Of a job that has diverged: there are no parameters.
  absl::Status WriteSummary(const Simulation& simulation) const {
    return WriteFileAtomically(
        folder_.SummaryFile(),
        ToJson(WithWorkers(simulation, simulation.coordinator().summary()), ""));
  }

  absl::StatusOr<std::string> WriteSnapshot(const Simulation& simulation, uint32_t snapshot,
                                            proto::Manifest manifest) {
    if (!has_floats_) return "none: nothing is computed";
    RUBATO_ASSIGN_OR_RETURN(const Optimizer optimizer, Optimizer::Create(ServerOptimizer(job_)));
    for (const std::string& slot : optimizer.slots()) manifest.add_slots(slot);
    RUBATO_ASSIGN_OR_RETURN(const TrainingState state,
                            simulation.ReadState(snapshot, manifest.slots_size()));
    RUBATO_ASSIGN_OR_RETURN(
        const std::string path,
        WriteCheckpoint(folder_.CheckpointFolder(), manifest, ResolvedYaml(job_),
                        simulation.coordinator().view().layout(), state));
    return path.substr(folder_.path().size() + 1);  // the log is the same wherever the run lies
  }

  absl::Status Close() {
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder_.ViewsFile(), views_));
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder_.path() + "/logs/simulation.log", log_));
    return failure_;
  }

  const std::string& summary() const { return summary_; }
  const std::string& modes() const { return modes_; }
  bool on_arrival() const { return on_arrival_; }

 private:
  void Keep(const absl::Status& status) { failure_.Update(status); }

  const proto::Job& job_;
  const bool has_floats_;
  const RunFolder folder_;
  std::optional<MetricsFile> metrics_;
  std::optional<TensorboardFile> tensorboard_;
  std::string log_;
  std::string views_;
  uint32_t lineage_ = 0;
  std::string modes_;
  bool on_arrival_ = false;
  std::string summary_;
  absl::Status failure_;
};

SimulatedFigures Figures(const Simulation& simulation, const Files& files) {
  SimulatedFigures figures;
  figures.modes = files.modes();
  figures.on_arrival = files.on_arrival();
  // Of the training: what comes after is the last test.
  figures.seconds = simulation.coordinator().summary().seconds;
  figures.steps = simulation.coordinator().summary().steps;
  figures.events = simulation.queue().happened();
  figures.summary_json = files.summary();
  figures.slowest = 1;
  for (const auto& worker : simulation.workers()) {
    const double share =
        static_cast<double>(worker->computing_time()) * 1e-9 / std::max(figures.seconds, 1e-9);
    figures.computing += share / static_cast<double>(simulation.workers().size());
    figures.slowest = std::min(figures.slowest, share);
  }
  for (int shard = 0; shard < simulation.blocks().placement.shards(); ++shard) {
    const int at = simulation.shard_card(shard);
    const double capacity = simulation.network().card(at).bytes_per_second * figures.seconds;
    figures.in_share = std::max(figures.in_share, simulation.network().bytes_in(at) / capacity);
    figures.out_share = std::max(figures.out_share, simulation.network().bytes_out(at) / capacity);
  }
  for (size_t kind = 0; kind < SimMessage::kKindNames.size(); ++kind) {
    figures.bytes += simulation.network().traffic(static_cast<SimMessage::Kind>(kind)).bytes;
  }
  return figures;
}

}  // namespace

absl::StatusOr<SimulatedFigures> RunSimulation(SimulationSetting setting, const Sources& sources,
                                               const RunFolder& folder) {
  const proto::Job job = setting.job;
  Files files(job, setting.data != nullptr, folder);
  RUBATO_RETURN_IF_ERROR(files.Open(sources));
  Simulation* pointer = nullptr;
  setting.limit = kLongest;
  setting.callbacks.on_metrics = [&files](const MetricsLine& line, absl::Time now) {
    files.Record(line, now);
  };
  setting.callbacks.on_view = [&files](const proto::View& view, const std::string& reason,
                                       absl::Time now) { files.Record(view, reason, now); };
  setting.callbacks.on_text = [&files](bool is_warning, const std::string& text, absl::Time now) {
    files.Say(is_warning ? LogLevel::kWarning : LogLevel::kInfo, text, now);
  };
  setting.callbacks.collect = [&](int64_t, const Summary& summary) {
    return files.WriteResult(*pointer, summary);
  };
  setting.callbacks.checkpoint = [&](uint32_t snapshot, const proto::Manifest& manifest) {
    return files.WriteSnapshot(*pointer, snapshot, manifest);
  };
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Simulation> simulation,
                          Simulation::Create(std::move(setting)));
  pointer = simulation.get();
  const absl::Status status = simulation->Run();
  if (!simulation->coordinator().summary().diverged.empty()) {
    RUBATO_RETURN_IF_ERROR(files.WriteSummary(*simulation));
  }
  if (!status.ok()) {
    files.Say(LogLevel::kError, std::string(status.message()), ToTime(simulation->queue().now()));
  }
  const absl::Status closed = files.Close();
  RUBATO_RETURN_IF_ERROR(status);
  RUBATO_RETURN_IF_ERROR(closed);
  return Figures(*simulation, files);
}

}  // namespace rubato
