#include "tools/replay/replay.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/exit_code.h"
#include "common/base/flags.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/files/checkpoint.h"
#include "common/files/run_folder.h"
#include "common/files/safetensors.h"
#include "common/space/placement.h"
#include "server/run/metrics_file.h"
#include "server/run/recording.h"
#include "server/shard/shard_record.h"
#include "tools/replay/coordinator_replay.h"
#include "tools/replay/shard_replay.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

// Of a summary's text: a recording has no checkpoints.
std::optional<BestCheckpoint> BestIn(const std::string& summary) {
  const nlohmann::json json = ParseJson(summary);
  if (!json.is_object() || !json.contains("best_checkpoint")) return std::nullopt;
  const nlohmann::json& best = json["best_checkpoint"];
  return BestCheckpoint{TextAt(best, "path"), TextAt(best, "metric"), NumberAt(best, "value")};
}
using Json = nlohmann::json;

// What a coordinator's core and the shards have recorded of one term.
struct Term {
  CoordinatorReplay coordinator;
  std::vector<ShardReplay> shards;  // those that opened a view

  std::vector<const ReplayedPart*> Parts() const {
    std::vector<const ReplayedPart*> parts = {&coordinator.part};
    for (const ShardReplay& shard : shards) parts.push_back(&shard.part);
    return parts;
  }
};

// A recorded run that has been run again, beside the files that the run left.
class Replay {
 public:
  explicit Replay(RunFolder folder) : folder_(std::move(folder)) {}

  // Runs all cores again. NotFound, InvalidArgument if recordings are missing, damaged or of
  // different jobs.
  absl::Status Run() {
    std::error_code error;
    if (!fs::is_directory(folder_.path(), error)) {
      return absl::NotFoundError(
          absl::StrCat("found no ", folder_.path(), ", expected a run's folder"));
    }
    const std::string record = folder_.RecordFolder();
    if (!fs::is_directory(record, error)) {
      return absl::NotFoundError(
          absl::StrCat(folder_.path(), " holds no record: `rubato train --record` makes one"));
    }
    RUBATO_RETURN_IF_ERROR(ReplayTerms(record));
    for (int shard = 0; shard < last().coordinator.header.job().cluster().servers(); ++shard) {
      RUBATO_RETURN_IF_ERROR(ReplayShards(ShardRecording(record, shard), shard));
    }
    return absl::OkStatus();
  }

  // Compares with the run's files. Errors if these cannot be read.
  absl::Status Compare() {
    if (!differences_.empty()) return absl::OkStatus();
    RUBATO_RETURN_IF_ERROR(CompareViews());
    RUBATO_RETURN_IF_ERROR(CompareCheckpoints());
    RUBATO_RETURN_IF_ERROR(CompareResult());
    return absl::OkStatus();
  }

  const std::vector<std::string>& differences() const { return differences_; }

  // A recording without an end, of a run that has one.
  absl::Status CheckWhole() const {
    std::error_code error;
    if (!fs::exists(folder_.SummaryFile(), error)) return absl::OkStatus();
    for (const ReplayedPart* part : last().Parts()) {
      if (part->has_end) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s is truncated: it ends after event %d, and the run went on to its end (or the disk "
          "was full); up to there it replays to the same bits",
          part->path, part->events));
    }
    return absl::OkStatus();
  }

  std::string Text(absl::Duration time) const {
    std::string text;
    if (last().coordinator.header.version() != kVersion) {
      absl::StrAppend(&text, "recorded      by rubato ", last().coordinator.header.version(),
                      ", replayed by ", kVersion, "\n");
    }
    for (const Term& term : terms_) {
      if (terms_.size() > 1) {
        absl::StrAppend(&text, "term          ", term.coordinator.header.state().term(), "\n");
      }
      Line(term.coordinator.part, absl::StrCat("up to view ", term.coordinator.views.size()),
           &text);
      for (const ShardReplay& shard : term.shards) {
        Line(shard.part,
             absl::StrFormat("%d updates of %d blocks", shard.updates, shard.blocks.size()), &text);
      }
    }
    for (const std::string& line : same_) absl::StrAppend(&text, line, "\n");
    return absl::StrCat(
        text, absl::StrFormat("replayed      %.1f MB in %.2f s\n",
                              static_cast<double>(bytes_) * 1e-6, absl::ToDoubleSeconds(time)));
  }

 private:
  const Term& last() const { return terms_.back(); }

  void Add(const ReplayedPart& part, uint32_t term) {
    bytes_ += part.bytes;
    if (!part.difference.has_value()) return;
    differences_.push_back(terms_.size() == 1
                               ? *part.difference
                               : absl::StrCat("term ", term, ": ", *part.difference));
  }

  absl::Status ReplayTerms(const std::string& record) {
    const std::string first = CoordinatorRecording(record);
    std::vector<std::string> paths = Recordings(first);
    if (paths.empty()) paths = {first};  // which tells that it is missing
    for (const std::string& path : paths) {
      RUBATO_ASSIGN_OR_RETURN(CoordinatorReplay coordinator, ReplayCoordinator(path));
      terms_.push_back({std::move(coordinator), {}});
    }
    for (const Term& term : terms_) {
      Add(term.coordinator.part, term.coordinator.header.state().term());
    }
    return absl::OkStatus();
  }

  // Of one shard, in all terms.
  absl::Status ReplayShards(const std::string& first, int shard) {
    std::vector<std::string> paths = Recordings(first);
    if (paths.empty()) paths = {first};
    std::optional<KeptShard> kept;
    for (const std::string& path : paths) {
      RUBATO_ASSIGN_OR_RETURN(ShardReplay replay, ReplayShard(path, shard, &kept));
      if (replay.header.job_digest() != last().coordinator.header.job_digest()) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, " is of another job than ", last().coordinator.part.path));
      }
      const auto term = std::find_if(terms_.begin(), terms_.end(), [&](const Term& one) {
        return one.coordinator.header.state().term() == replay.term;
      });
      // One that has got no view has done nothing, if it is not all that there is.
      Term& its = term == terms_.end() ? terms_.back() : *term;
      if (term == terms_.end() && terms_.size() > 1) continue;
      Add(replay.part, replay.term);
      if (&its != &terms_.back()) replay.parameters.clear();
      its.shards.push_back(std::move(replay));
    }
    return absl::OkStatus();
  }

  static void Line(const ReplayedPart& part, const std::string& what, std::string* text) {
    absl::StrAppend(
        text, absl::StrFormat("%-14s%d events, %s: %s\n", part.name, part.events, what,
                              part.difference.has_value() ? "differs"
                              : part.has_end              ? "as recorded"
                                             : "as recorded, up to where the record ends early"));
  }

  void Same(absl::string_view what, const std::string& text) {
    same_.push_back(absl::StrFormat("%-14s%s", what, text));
  }

  static Json WithoutTime(const std::string& line) {
    Json json = ParseJson(line);
    if (json.is_object()) json.erase("time");
    return json;
  }

  absl::Status CompareViews() {
    std::error_code error;
    if (!fs::exists(folder_.ViewsFile(), error)) return absl::OkStatus();
    RUBATO_ASSIGN_OR_RETURN(std::string text, ReadSmallFile(folder_.ViewsFile()));
    const std::string before = absl::StrCat(folder_.ViewsFile(), ".1");
    const bool is_cut = fs::exists(before, error);
    if (is_cut) {
      RUBATO_ASSIGN_OR_RETURN(const std::string earlier, ReadSmallFile(before));
      text.insert(0, earlier);
    }
    std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
    std::optional<std::string> from;  // the first view that has a line, where that is not the first
    for (const Term& term : terms_) {
      const uint32_t number = term.coordinator.header.state().term();
      const auto end =
          std::stable_partition(lines.begin(), lines.end(),
                                [&](const std::string& line) { return TermOf(line) == number; });
      const std::vector<std::string> its(lines.begin(), end);
      lines.erase(lines.begin(), end);
      absl::Span<const std::string> views = term.coordinator.views;
      size_t first = 0;
      if (is_cut && !from.has_value()) {
        if (its.empty()) continue;
        first = FirstOf(its[0], views);
        from = first == 0 ? "" : absl::StrFormat(", from view %d on", first + 1);
      }
      if (!CompareViews(term, its, views.subspan(first), first)) return absl::OkStatus();
    }
    if (!lines.empty()) {
      differences_.push_back(absl::StrFormat("%s: a view of no recorded term: %s",
                                             folder_.ViewsFile(), JsonText(WithoutTime(lines[0]))));
      return absl::OkStatus();
    }
    if (terms_.front().coordinator.views.empty()) return absl::OkStatus();
    Same("views", absl::StrCat("those of ", folder_.ViewsFile(), from.value_or("")));
    return absl::OkStatus();
  }

  static uint32_t TermOf(const std::string& line) {
    const Json json = ParseJson(line);
    const auto found = json.is_object() ? json.find("term") : json.end();
    return json.is_object() && found != json.end() && found->is_number_unsigned()
               ? found->get<uint32_t>()
               : 0;
  }

  // Which of the views the line is of; 0 if of none.
  static size_t FirstOf(const std::string& line, absl::Span<const std::string> views) {
    const auto found = std::find_if(views.begin(), views.end(), [&](const std::string& view) {
      return WithoutTime(view) == WithoutTime(line);
    });
    return found == views.end() ? 0 : static_cast<size_t>(found - views.begin());
  }

  // Of a term, behind `skipped` views. Whether they are the same.
  bool CompareViews(const Term& term, const std::vector<std::string>& lines,
                    absl::Span<const std::string> views, size_t skipped) {
    const size_t count = term.coordinator.part.has_end ? std::max(lines.size(), views.size())
                                                       : std::min(lines.size(), views.size());
    for (size_t i = 0; i < count; ++i) {
      if (i < lines.size() && i < views.size() && WithoutTime(lines[i]) == WithoutTime(views[i])) {
        continue;
      }
      differences_.push_back(
          absl::StrFormat("%s, view %d: is %s; replayed: %s", folder_.ViewsFile(), skipped + i + 1,
                          i < lines.size() ? JsonText(WithoutTime(lines[i])) : "missing",
                          i < views.size() ? JsonText(WithoutTime(views[i])) : "no such view"));
      return false;
    }
    return true;
  }

  // Those that are still there, of which all shards were asked for their part.
  absl::Status CompareCheckpoints() {
    // One at the end of a run on arrival may be written over one of the same step: the last counts.
    std::map<std::string, std::pair<const Term*, uint32_t>> snapshots;
    for (const Term& term : terms_) {
      for (const CoordinatorReplay::Checkpoint& written : term.coordinator.checkpoints) {
        snapshots[fs::path(written.path).filename()] = {&term, written.snapshot};
      }
    }
    std::vector<std::string> names;
    for (const auto& [name, taken] : snapshots) {
      const std::string path = absl::StrCat(folder_.CheckpointFolder(), "/", name);
      std::error_code error;
      if (!fs::exists(path, error)) continue;
      RUBATO_ASSIGN_OR_RETURN(const proto::Manifest manifest, CheckCheckpoint(path));
      RUBATO_ASSIGN_OR_RETURN(const TrainingState state,
                              ReadTrainingState(path, manifest, last().coordinator.view.layout()));
      if (const auto difference = CheckpointDifference(*taken.first, taken.second, state)) {
        differences_.push_back(absl::StrCat(path, ": ", *difference));
        return absl::OkStatus();
      }
      names.push_back(name);
    }
    if (!names.empty()) {
      Same("checkpoints", absl::StrCat("bit for bit, with slots: ", absl::StrJoin(names, ", ")));
    }
    return absl::OkStatus();
  }

  std::optional<std::string> CheckpointDifference(const Term& term, uint32_t snapshot,
                                                  const TrainingState& state) const {
    const FlatSpace space = SpaceOf(term.coordinator.header.job(), term.coordinator.view.layout());
    for (const ShardReplay& shard : term.shards) {
      const auto found = shard.snapshots.find(snapshot);
      for (int64_t block = shard.blocks.begin; block < shard.blocks.end; ++block) {
        const Range values = space.BlockValues(block);
        for (uint32_t slot = 0; slot <= state.slots.size(); ++slot) {
          const std::vector<float>& vector = slot == 0 ? state.parameters : state.slots[slot - 1];
          const uint32_t bits =
              BitsOf(absl::MakeConstSpan(vector).subspan(values.begin, values.size()));
          if (found == shard.snapshots.end() || found->second.count({block, slot}) == 0) {
            if (!shard.part.has_end) continue;
            return absl::StrFormat("%s never sent block %d of it", shard.part.name, block);
          }
          const uint32_t replayed = found->second.at({block, slot});
          if (replayed == bits) continue;
          return absl::StrFormat("block %d, slot %d has bits %08x; replayed: %08x", block, slot,
                                 bits, replayed);
        }
      }
    }
    return std::nullopt;
  }

  // The final parameters and figures, if the run came so far.
  absl::Status CompareResult() {
    std::error_code error;
    const CoordinatorReplay& coordinator = last().coordinator;
    for (const ReplayedPart* part : last().Parts()) {
      if (!part->has_end) return absl::OkStatus();
    }
    if (!fs::exists(folder_.ParametersFile(), error) || !coordinator.summary.has_value()) {
      return absl::OkStatus();
    }
    const proto::Layout& layout = coordinator.view.layout();
    RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader file,
                            SafetensorsReader::Open(folder_.ParametersFile()));
    RUBATO_ASSIGN_OR_RETURN(const std::vector<float> parameters,
                            rubato::ReadParameters(file, layout));
    const FlatSpace space = SpaceOf(coordinator.header.job(), coordinator.view.layout());
    for (const ShardReplay& shard : last().shards) {
      for (const auto& [block, values] : shard.parameters) {
        const Range range = space.BlockValues(block);
        if (std::memcmp(values.data(), parameters.data() + range.begin,
                        values.size() * sizeof(float)) == 0) {
          continue;
        }
        differences_.push_back(absl::StrFormat("%s: block %d, of %s, has other bits than replayed",
                                               folder_.ParametersFile(), block, shard.part.name));
        return absl::OkStatus();
      }
    }
    RUBATO_ASSIGN_OR_RETURN(const std::string digest, TensorsDigest(file));
    Same("parameters", absl::StrFormat("bit for bit those of %s (digest %s)",
                                       folder_.ParametersFile(), digest.substr(0, 12)));
    if (!fs::exists(folder_.SummaryFile(), error)) return absl::OkStatus();
    RUBATO_ASSIGN_OR_RETURN(const std::string summary, ReadSmallFile(folder_.SummaryFile()));
    const std::string replayed = ToJson(*coordinator.summary, digest, BestIn(summary));
    if (replayed != summary) {
      differences_.push_back(
          absl::StrFormat("%s is %s; replayed: %s", folder_.SummaryFile(), summary, replayed));
    } else {
      Same("figures", absl::StrCat("those of ", folder_.SummaryFile()));
    }
    return absl::OkStatus();
  }

  const RunFolder folder_;
  std::vector<Term> terms_;  // in order
  int64_t bytes_ = 0;
  std::vector<std::string> same_;  // what else was found equal
  std::vector<std::string> differences_;
};

// The exit code, after what there is to print has been printed.
absl::StatusOr<int> ReplayRun(const std::string& run) {
  const absl::Time begin = absl::Now();
  Replay replay{RunFolder(run)};
  RUBATO_RETURN_IF_ERROR(replay.Run());
  RUBATO_RETURN_IF_ERROR(replay.Compare());
  if (const int code = PrintResult(replay.Text(absl::Now() - begin)); code != 0) return code;
  for (const std::string& difference : replay.differences()) {
    PrintError(absl::DataLossError(difference));
  }
  if (!replay.differences().empty()) return kExitFailure;
  RUBATO_RETURN_IF_ERROR(replay.CheckWhole());
  return 0;
}

}  // namespace

int ReplayMain(const std::vector<std::string>& arguments) {
  std::string run = "runs/latest";
  Flags flags("rubato replay",
              "Runs the servers of a run that was recorded (`rubato train --record`) once more, "
              "without network, threads\n"
              "or clock: the same cores, the same arithmetic. All decisions and bits must be as "
              "recorded, and those of the\n"
              "run's files; the first difference is named, and the exit code is then 1.",
              {"rubato replay runs/latest"});
  flags.AddPositional(&run, "RUN", "a run folder; default: runs/latest", Flags::kOptional);
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  const absl::StatusOr<int> code = ReplayRun(run);
  if (code.ok()) return *code;
  return PrintFailure(code.status());
}

}  // namespace rubato
