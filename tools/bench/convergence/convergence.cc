#include "tools/bench/convergence/convergence.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/flags.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "tools/bench/convergence/calibration.h"
#include "tools/bench/convergence/cell_pool.h"
#include "tools/bench/convergence/cell_result.h"
#include "tools/bench/convergence/learning_rates.h"
#include "tools/bench/convergence/report.h"
#include "tools/bench/convergence/study.h"
#include "tools/command/plan.h"
#include "tools/command/summary.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

struct Options {
  Study study;
  std::vector<std::string> workers, learning_rates, compute_scales;  // as typed
  std::string target;
  std::string folder;
  int jobs = 0;
  bool dry_run = false;
  std::string command;  // as typed, for the report
};

std::string CommandLine(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "rubato");
  return ShellLine(arguments);
}

// Cells side by side.
size_t JobsOf(const Options& options) {
  return options.jobs > 0 ? static_cast<size_t>(options.jobs)
                          : std::max<size_t>(1, std::thread::hardware_concurrency());
}

std::string CalibrationFile(const std::string& folder) { return folder + "/calibration.json"; }

// That of the study in `folder`, if it has one.
absl::StatusOr<std::optional<Calibration>> KeptCalibration(const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadSmallFile(CalibrationFile(folder));
  if (!text.ok()) return std::nullopt;
  const absl::StatusOr<Calibration> calibration = ParseCalibration(*text);
  if (calibration.ok()) return *calibration;
  return absl::FailedPreconditionError(absl::StrCat(
      CalibrationFile(folder), ": ", calibration.status().message(), "; give another --out"));
}

absl::StatusOr<Calibration> MeasureHere(const Study& study) {
  WriteAll(2, "measuring how long a worker computes here (--compute says it)\n");
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, LoadJob(study.config, study.set));
  return Calibrate(job);
}

// A study under way: which cells are done, in the folder that keeps them.
class Driver {
 public:
  explicit Driver(const Options& options) : options_(options) {}

  // Makes the folder, or takes up the study in it. FailedPrecondition if it holds another study or
  // somebody else runs it.
  absl::Status Open();
  // More cells to run, of which some may be done.
  void Add(const std::vector<Cell>& cells);
  // How long a worker computes: as this study was begun with, or measured now.
  absl::StatusOr<Calibration> Calibrated() const;
  // Runs what is not done. The signal that ended it, or 0.
  absl::StatusOr<int> Run(SignalWatcher* signals);
  // results.jsonl, results.csv, report.md.
  absl::Status WriteResults() const;

  std::vector<DoneCell> Done() const;

 private:
  std::string Path(const std::string& name) const { return options_.folder + "/" + name; }
  std::string RunFolderOf(const Cell& cell) const { return Path("cells/" + cell.name); }
  std::string ResultOf(const Cell& cell) const { return Path("cells/" + cell.name + ".json"); }
  std::string LogOf(const Cell& cell) const { return Path("cells/" + cell.name + ".log"); }

  absl::Status Lock();
  absl::Status StartCell(CellPool* pool, size_t index);
  // Keeps what came of the cell, and drops its large files.
  absl::Status Finish(const CellPool::Ended& ended);
  void Say(const CellPool& pool, const std::string& event) const;

  const Options& options_;
  std::vector<Cell> cells_;
  std::vector<std::optional<CellResult>> results_;
  int lock_ = -1;
  absl::Time begun_;
  size_t done_before_ = 0, done_ = 0;
};

absl::Status Driver::Lock() {
  std::error_code error;
  fs::create_directories(Path("cells"), error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make ", Path("cells"), ": ", error.message()));
  }
  lock_ = open(Path("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);  // until the end
  if (lock_ < 0 || flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.folder, " is in use by another rubato bench convergence"));
  }
  return absl::OkStatus();
}

absl::Status Driver::Open() {
  RUBATO_RETURN_IF_ERROR(Lock());
  const std::string study = StudyJson(options_.study) + "\n";
  const absl::StatusOr<std::string> before = ReadSmallFile(Path("study.json"));
  if (before.ok() && *before != study) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.folder, " holds another study, which ", Path("study.json"),
                     " describes: give another --out"));
  }
  if (!before.ok()) RUBATO_RETURN_IF_ERROR(WriteFileAtomically(Path("study.json"), study));
  return absl::OkStatus();
}

absl::StatusOr<Calibration> Driver::Calibrated() const {
  RUBATO_ASSIGN_OR_RETURN(const std::optional<Calibration> kept, KeptCalibration(options_.folder));
  if (kept.has_value()) return *kept;
  RUBATO_ASSIGN_OR_RETURN(const Calibration calibration, MeasureHere(options_.study));
  RUBATO_RETURN_IF_ERROR(
      WriteFileAtomically(CalibrationFile(options_.folder), CalibrationJson(calibration) + "\n"));
  return calibration;
}

void Driver::Add(const std::vector<Cell>& cells) {
  done_before_ += std::exchange(done_, 0);
  for (const Cell& cell : cells) {
    cells_.push_back(cell);
    results_.emplace_back();
    const absl::StatusOr<std::string> text = ReadSmallFile(ResultOf(cell));
    if (!text.ok()) continue;
    const absl::StatusOr<CellResult> result = ParseResult(*text);
    // One that failed is tried again.
    if (result.ok() && result->error.empty()) {
      results_.back() = *result;
      ++done_before_;
    }
  }
}

absl::Status Driver::StartCell(CellPool* pool, size_t index) {
  const Cell& cell = cells_[index];
  std::error_code error;
  fs::remove_all(RunFolderOf(cell), error);  // of a run that was broken off
  std::vector<std::string> arguments = cell.arguments;
  arguments.insert(arguments.end(), {"--run-dir", RunFolderOf(cell)});
  fs::create_directories(RunFolderOf(cell), error);
  return pool->Start(index, arguments, LogOf(cell));
}

absl::Status Driver::Finish(const CellPool::Ended& ended) {
  const Cell& cell = cells_[ended.cell];
  const std::string log = ReadSmallFile(LogOf(cell)).value_or("");
  const bool diverged = ended.exit_code == 1 && absl::StrContains(log, "not finite");
  CellResult result;
  if (ended.exit_code == 0 || diverged) {
    const absl::StatusOr<CellResult> read =
        ReadCell(RunFolderOf(cell), options_.study.target, diverged);
    if (read.ok()) {
      result = *read;
    } else {
      result.error = std::string(read.status().message());
    }
  } else {
    const size_t last = log.rfind("error: ");
    result.error = last == std::string::npos
                       ? absl::StrCat("exited with code ", ended.exit_code)
                       : std::string(absl::StripAsciiWhitespace(log.substr(last + 7)));
  }
  nlohmann::ordered_json measured;
  measured["wall_seconds"] = ended.wall_seconds;
  measured["cpu_seconds"] = ended.cpu_seconds;
  measured["peak_bytes"] = ended.peak_bytes;
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(Path("cells/" + cell.name + ".measured.json"),
                                             JsonText(measured) + "\n"));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(ResultOf(cell), ResultJson(result, "") + "\n"));
  std::error_code error;
  for (const char* large : {"/checkpoints", "/parameters.safetensors"}) {
    fs::remove_all(RunFolderOf(cell) + large, error);
  }
  results_[ended.cell] = std::move(result);
  return absl::OkStatus();
}

void Driver::Say(const CellPool& pool, const std::string& event) const {
  const size_t all = done_before_ + done_;
  std::string left;
  if (done_ > 0) {
    const absl::Duration each = (absl::Now() - begun_) / static_cast<int64_t>(done_);
    left = absl::StrCat(", some ",
                        absl::FormatDuration(absl::Trunc(
                            each * static_cast<int64_t>(cells_.size() - all), absl::Seconds(1))),
                        " left");
  }
  WriteAll(2, absl::StrFormat("%d of %d cells are done, %d run%s: %s\n", all, cells_.size(),
                              pool.running(), left, event));
}

absl::StatusOr<int> Driver::Run(SignalWatcher* signals) {
  CellPool pool(signals);
  begun_ = absl::Now();
  size_t next = 0;
  const size_t jobs = JobsOf(options_);
  if (done_before_ > 0) {
    WriteAll(2, absl::StrFormat("%d of %d cells are done already\n", done_before_, cells_.size()));
  }
  while (true) {
    for (; next < cells_.size() && pool.running() < jobs; ++next) {
      if (!results_[next].has_value()) RUBATO_RETURN_IF_ERROR(StartCell(&pool, next));
    }
    if (pool.running() == 0) return 0;
    const CellPool::Ended ended = pool.Wait(absl::Seconds(3600));
    if (ended.what == CellPool::Ended::What::kSignal) return ended.signal;
    if (ended.what == CellPool::Ended::What::kTimeout) continue;
    RUBATO_RETURN_IF_ERROR(Finish(ended));
    ++done_;
    const std::string& error = results_[ended.cell]->error;
    Say(pool, absl::StrCat(cells_[ended.cell].name, error.empty() ? "" : " failed: ", error));
  }
}

std::vector<DoneCell> Driver::Done() const {
  std::vector<DoneCell> done;
  for (size_t i = 0; i < cells_.size(); ++i) {
    if (results_[i].has_value()) done.push_back({cells_[i], *results_[i]});
  }
  return done;
}

absl::Status Driver::WriteResults() const {
  const std::vector<DoneCell> done = Done();
  std::string measured;
  for (const DoneCell& cell : done) {
    const absl::StatusOr<std::string> text =
        ReadSmallFile(Path("cells/" + cell.cell.name + ".measured.json"));
    if (!text.ok()) continue;
    absl::StrAppend(&measured, "{\"cell\":", JsonText(nlohmann::json(cell.cell.name)), ",",
                    text->substr(1));
  }
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(Path("measured.jsonl"), measured));
  RUBATO_RETURN_IF_ERROR(
      WriteFileAtomically(Path("results.jsonl"), ResultsJsonl(options_.study, done)));
  RUBATO_RETURN_IF_ERROR(
      WriteFileAtomically(Path("results.csv"), ResultsCsv(options_.study, done)));
  return WriteFileAtomically(Path("report.md"),
                             ReportMarkdown(options_.study, done, options_.command));
}

// What all cells together compute, on `jobs` cores.
absl::StatusOr<std::string> TimeText(const Study& study, const Calibration& calibration,
                                     size_t cells, size_t jobs) {
  RUBATO_ASSIGN_OR_RETURN(proto::Job job, LoadJob(study.config, study.set));
  RUBATO_ASSIGN_OR_RETURN(const Plan plan, MakePlan(std::move(job)));
  const double micro_batches = static_cast<double>(TotalSamples(plan)) *
                               static_cast<double>(cells) /
                               static_cast<double>(calibration.samples);
  const absl::Duration time =
      absl::Seconds(micro_batches * calibration.micro_batch_seconds / static_cast<double>(jobs));
  return absl::StrFormat(
      "# %s of computing on %d cores (%.3g ms for a micro-batch of %d samples)\n",
      absl::FormatDuration(absl::Ceil(time, absl::Seconds(1))), jobs,
      calibration.micro_batch_seconds * 1e3, calibration.samples);
}

absl::StatusOr<std::string> DryRun(Options options) {
  RUBATO_ASSIGN_OR_RETURN(std::optional<Calibration> here, KeptCalibration(options.folder));
  if (!here.has_value()) {
    RUBATO_ASSIGN_OR_RETURN(here, MeasureHere(options.study));
  }
  if (options.study.compute.empty()) options.study.compute = ComputeFlag(*here);
  RUBATO_ASSIGN_OR_RETURN(const std::vector<Cell> trials, TrialsOf(options.study));
  RUBATO_ASSIGN_OR_RETURN(const std::vector<Cell> cells, CellsOf(options.study));
  RUBATO_ASSIGN_OR_RETURN(
      std::string text,
      TimeText(options.study, *here, trials.size() + cells.size(), JobsOf(options)));
  const auto list = [&text](const std::vector<Cell>& listed) {
    for (const Cell& cell : listed) absl::StrAppend(&text, CommandLine(cell.arguments), "\n");
  };
  if (!trials.empty()) {
    absl::StrAppend(&text, "# ", trials.size(), " cells that search for learning rates:\n");
    list(trials);
  }
  absl::StrAppend(&text, "# ", cells.size(), " cells, each a command",
                  trials.empty() ? "" : " (and the rate that was found)", ":\n");
  list(cells);
  return text;
}

absl::Status Complete(Options* options) {
  Study& study = options->study;
  RUBATO_ASSIGN_OR_RETURN(study.target, ParseTarget(options->target));
  if (study.baseline.empty() && !study.modes.empty()) study.baseline = study.modes[0];
  for (const std::string& list : options->workers) {
    for (const absl::string_view text : absl::StrSplit(list, ',')) {
      int workers = 0;
      if (!absl::SimpleAtoi(text, &workers)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--workers: found ", text, ", expected numbers such as 4,8"));
      }
      study.workers.push_back(workers);
    }
  }
  if (!options->compute_scales.empty()) study.compute_scales.clear();
  for (const std::string& list : options->compute_scales) {
    for (const absl::string_view text : absl::StrSplit(list, ',')) {
      double scale = 0;
      if (!absl::SimpleAtod(text, &scale)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--compute-scales: found ", text, ", expected numbers such as 1,0.5,2"));
      }
      study.compute_scales.push_back(scale);
    }
  }
  for (const std::string& list : options->learning_rates) {
    for (const absl::string_view rate : absl::StrSplit(list, ',')) {
      study.learning_rates.emplace_back(rate);
    }
  }
  if (options->jobs < 0) return absl::InvalidArgumentError("--jobs: expected 1 or more");
  return absl::OkStatus();
}

// What to print; `code` is the exit code if that is well.
absl::StatusOr<std::string> Bench(Options options, SignalWatcher* signals, int* code) {
  RUBATO_RETURN_IF_ERROR(Complete(&options));
  RUBATO_ASSIGN_OR_RETURN(std::vector<Cell> trials, TrialsOf(options.study));
  RUBATO_ASSIGN_OR_RETURN(std::vector<Cell> cells, CellsOf(options.study));
  if (options.dry_run) return DryRun(std::move(options));
  if (options.folder.empty()) {
    return absl::InvalidArgumentError("--out is missing: the folder for the results");
  }
  Driver driver(options);
  RUBATO_RETURN_IF_ERROR(driver.Open());
  if (options.study.compute.empty()) {
    RUBATO_ASSIGN_OR_RETURN(const Calibration calibration, driver.Calibrated());
    options.study.compute = ComputeFlag(calibration);
    RUBATO_ASSIGN_OR_RETURN(trials, TrialsOf(options.study));
  }
  driver.Add(trials);
  RUBATO_ASSIGN_OR_RETURN(int signal, driver.Run(signals));
  if (signal == 0) {
    const RateSearch search = SearchRates(options.study, driver.Done());
    RUBATO_ASSIGN_OR_RETURN(cells, CellsOf(options.study, TakenRates(options.study, search)));
    driver.Add(cells);
    RUBATO_ASSIGN_OR_RETURN(signal, driver.Run(signals));
  }
  if (signal != 0) {
    *code = 128 + signal;
    return absl::StrCat("interrupted; the same command goes on from here:\n  ", options.command,
                        "\n");
  }
  RUBATO_RETURN_IF_ERROR(driver.WriteResults());
  const std::vector<DoneCell> done = driver.Done();
  const int64_t failed = std::count_if(
      done.begin(), done.end(), [](const DoneCell& cell) { return !cell.result.error.empty(); });
  if (failed > 0) *code = 1;
  return absl::StrCat(
      absl::StrJoin(Verdicts(options.study, done), "\n"), "\n",
      failed > 0 ? absl::StrCat(failed, " cells failed; the report names them\n") : "", "report  ",
      options.folder, "/report.md\n");
}

}  // namespace

int BenchConvergenceMain(const std::vector<std::string>& arguments, SignalWatcher& signals) {
  Options options;
  Study& study = options.study;
  Flags flags(
      "rubato bench convergence",
      "Which mode reaches a target first on this job, and what it costs in accuracy. Trains the "
      "job "
      "in every mode with\n"
      "several seeds, with real gradients in virtual time (rubato simulate), compares the modes "
      "seed by seed, and says\n"
      "which are faster, which slower and which cannot be told apart. The same command goes on "
      "where it was broken off.",
      {"rubato bench convergence configs/quickstart.yaml --mode sync --mode async \\\n"
       "      --target eval/accuracy=0.95 --speeds exponential --seeds 6 --out study",
       "rubato bench convergence job.yaml --mode sync --mode bounded,staleness=3 "
       "--mode sync@12%+async \\\n"
       "      --target eval/loss=0.3 --workers 4,8 --out study"});
  flags.AddPositional(&study.config, "CONFIG.yaml", "the job");
  flags.Add("mode", &study.modes, "MODE",
            "sync, async, bounded,staleness=N, or several for parts of the training:\n"
            "                        sync@12%+async; two or more");
  flags.Add("target", &options.target, "METRIC=VALUE",
            "eval/accuracy=0.88 or eval/loss=0.3, of the validation split", Flags::kRequired);
  flags.Add("baseline", &study.baseline, "MODE",
            "that the others are compared with; default: the first");
  flags.Add("seeds", &study.seeds, "N", "runs of each mode, 20 at most");
  flags.Add("workers", &options.workers, "N,N", "numbers of workers; default: the job's");
  flags.Add("learning-rates", &options.learning_rates, "R,R",
            "to search for each mode's own, with three runs of each; default: the job's");
  flags.Add("evaluations", &study.evaluations, "N", "of a run; the target is met between two");
  flags.Add("speeds", &study.speeds, "SPEEDS", "as of rubato simulate");
  flags.Add("compute", &study.compute, "TIME",
            "that a worker takes for a micro-batch; default: measured here, once for a study");
  flags.Add("compute-scales", &options.compute_scales, "X,X",
            "what the computing time is multiplied by: the verdict is the first one's and "
            "repeated at\n"
            "                        the others; default: 1,0.5,2");
  flags.Add("latency", &study.latency, "TIME", "as of rubato simulate");
  flags.Add("bandwidth", &study.bandwidth, "RATE", "likewise");
  flags.Add("out", &options.folder, "DIR",
            "new folder for the results, or one of the same study to go on");
  flags.Add("jobs", &options.jobs, "N", "cells side by side; default: as many as cores");
  flags.Add("dry-run", &options.dry_run, "", "print the cells and run nothing");
  flags.Add("set", &study.set, "KEY=VALUE", "override a key of the job; may be repeated");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  std::vector<std::string> typed = arguments;
  typed.insert(typed.begin(), {"bench", "convergence"});
  options.command = CommandLine(typed);
  int code = 0;
  const absl::StatusOr<std::string> text = Bench(std::move(options), &signals, &code);
  const int printed = PrintResult(text);
  return printed != 0 ? printed : code;
}

}  // namespace rubato
