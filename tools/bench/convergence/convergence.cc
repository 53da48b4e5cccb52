#include "tools/bench/convergence/convergence.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/flags.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "tools/bench/convergence/calibration.h"
#include "tools/bench/convergence/cost.h"
#include "tools/bench/convergence/driver.h"
#include "tools/bench/convergence/kept_calibration.h"
#include "tools/bench/convergence/learning_rates.h"
#include "tools/bench/convergence/report.h"
#include "tools/bench/convergence/study.h"
#include "tools/bench/convergence/study_file.h"
#include "tools/bench/convergence/verify.h"
#include "tools/command/binaries.h"
#include "tools/command/plan.h"
#include "tools/command/summary.h"
#include "worker/step/compute_device.h"

namespace rubato {
namespace {

struct Options {
  Study study;
  std::vector<std::string> workers, learning_rates, compute_scales;  // as typed
  std::string target;
  std::string folder;
  int jobs = 0;
  bool dry_run = false;
  int verify = 0;  // cells
  bool simulated = false;
  std::string verify_seed;
  std::string command;  // as typed, for the report
};

std::string CommandLine(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "rubato");
  return ShellLine(arguments);
}

// Cells side by side. Real processes would wait for each other.
size_t JobsOf(const Options& options) {
  if (options.study.processes) return 1;
  return options.jobs > 0 ? static_cast<size_t>(options.jobs)
                          : std::max<size_t>(1, std::thread::hardware_concurrency());
}

// What the bits of the study's runs depend on here. Their kernels are those of this process, too,
// which measures how long computing takes. Those of a script are its own.
absl::StatusOr<std::string> NumericsHere(const Study& study) {
  if (study.target.is_script) return "";
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, LoadJob(study.config, study.set));
  RUBATO_RETURN_IF_ERROR(FixIsa(job.device()));
  RUBATO_ASSIGN_OR_RETURN(const ComputeDevice device, ComputeDevice::Choose(job.device()));
  return device.numerics();
}

absl::StatusOr<std::string> DryRun(Options options) {
  std::optional<Calibration> here;
  if (!options.study.target.is_script) {
    RUBATO_ASSIGN_OR_RETURN(here, CalibrationOf(options.study, options.folder));
    if (options.study.processes) RUBATO_RETURN_IF_ERROR(CheckCores(options.study, *here));
    Calibrated(*here, &options.study);
  }
  RUBATO_ASSIGN_OR_RETURN(const std::vector<Cell> trials, TrialsOf(options.study));
  RUBATO_ASSIGN_OR_RETURN(const std::vector<Cell> cells, CellsOf(options.study));
  std::string text = "# how long a run takes, only the script knows; one runs after the other\n";
  if (here.has_value()) {
    RUBATO_ASSIGN_OR_RETURN(
        text, TimeText(options.study, *here, trials.size() + cells.size(), JobsOf(options)));
  }
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

// Adds the entries of lists such as "4,8" to `values`; `parse` says whether one is sound.
template <typename T, typename Parse>
absl::Status ReadLists(const char* flag, const std::vector<std::string>& lists,
                       const char* expected, Parse parse, std::vector<T>* values) {
  for (const std::string& list : lists) {
    for (const absl::string_view text : absl::StrSplit(list, ',')) {
      T value = T();
      if (!parse(text, &value)) {
        return absl::InvalidArgumentError(
            absl::StrCat(flag, ": found ", text, ", expected ", expected));
      }
      values->push_back(std::move(value));
    }
  }
  return absl::OkStatus();
}

absl::Status Complete(Options* options) {
  Study& study = options->study;
  if (options->target.empty()) {
    return absl::InvalidArgumentError("--target is missing, such as eval/accuracy=0.88");
  }
  RUBATO_ASSIGN_OR_RETURN(study.target, ParseTarget(options->target));
  if (study.baseline.empty() && !study.modes.empty()) study.baseline = study.modes[0];
  RUBATO_RETURN_IF_ERROR(ReadLists(
      "--workers", options->workers, "numbers such as 4,8",
      [](absl::string_view text, int* count) { return absl::SimpleAtoi(text, count); },
      &study.workers));
  if (options->simulated && study.processes) {
    return absl::InvalidArgumentError("found --simulated and --processes, expected one of them");
  }
  if (study.processes && options->verify > 0) {
    return absl::InvalidArgumentError(
        "--verify: found --processes, whose times differ from run to run; expected a simulated "
        "study");
  }
  if (study.processes && options->jobs > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--jobs: found %d with --processes, expected 1: runs would wait for each other",
        options->jobs));
  }
  if (!options->verify_seed.empty() && options->verify == 0) {
    return absl::InvalidArgumentError("--verify-seed: expected --verify N as well");
  }
  // The delay is given, and each run takes its time.
  if (study.processes) study.compute_scales = {1};
  if (!options->compute_scales.empty()) study.compute_scales.clear();
  RUBATO_RETURN_IF_ERROR(ReadLists("--compute-scales", options->compute_scales,
                                   "numbers such as 1,0.5,2", absl::SimpleAtod,
                                   &study.compute_scales));
  RUBATO_RETURN_IF_ERROR(ReadLists(
      "--learning-rates", options->learning_rates, "numbers such as 0.01,0.1",
      [](absl::string_view text, std::string* rate) {
        *rate = std::string(text);  // CellsOf looks at it
        return true;
      },
      &study.learning_rates));
  if (options->jobs < 0) return absl::InvalidArgumentError("--jobs: expected 1 or more");
  if (options->verify < 0) return absl::InvalidArgumentError("--verify: expected 1 or more");
  return absl::OkStatus();
}

// What of the study in the folder is done, by its results.jsonl.
absl::StatusOr<std::vector<KeptLine>> KeptLines(const Options& options) {
  RUBATO_ASSIGN_OR_RETURN(const std::string text,
                          ReadSmallFile(absl::StrCat(options.folder, "/results.jsonl")));
  RUBATO_ASSIGN_OR_RETURN(const std::vector<Cell> trials, TrialsOf(options.study));
  RUBATO_ASSIGN_OR_RETURN(std::vector<KeptLine> lines, LinesOf(options.study, trials, text));
  std::vector<DoneCell> done;
  for (const KeptLine& line : lines) done.push_back(line.cell);
  const RateSearch search = SearchRates(options.study, done);
  RUBATO_ASSIGN_OR_RETURN(const std::vector<Cell> cells,
                          CellsOf(options.study, TakenRates(options.study, search)));
  RUBATO_ASSIGN_OR_RETURN(const std::vector<KeptLine> judged, LinesOf(options.study, cells, text));
  lines.insert(lines.end(), judged.begin(), judged.end());
  return lines;
}

absl::StatusOr<std::string> VerifyStudy(Options options, SignalWatcher* signals, int* code) {
  int64_t seed = absl::ToUnixMillis(absl::Now()) % 1000000;
  if (!options.verify_seed.empty() && !absl::SimpleAtoi(options.verify_seed, &seed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--verify-seed: found ", options.verify_seed, ", expected a number"));
  }
  std::error_code error;
  if (!std::filesystem::exists(options.folder + "/results.jsonl", error)) {
    return absl::FailedPreconditionError(absl::StrCat(
        options.folder,
        " has no results.jsonl to compare with: --verify is for a study that is done"));
  }
  Driver driver(&options.study, options.folder, JobsOf(options));  // nobody else runs it
  RUBATO_RETURN_IF_ERROR(driver.Open());
  if (NeedsCalibration(options.study)) {
    RUBATO_ASSIGN_OR_RETURN(const std::optional<Calibration> kept, KeptCalibration(options.folder));
    if (!kept.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(
          CalibrationFile(options.folder), " is missing: results are a function of it"));
    }
    Calibrated(*kept, &options.study);
  }
  RUBATO_ASSIGN_OR_RETURN(std::vector<KeptLine> lines, KeptLines(options));
  lines = Draw(std::move(lines), static_cast<size_t>(options.verify), static_cast<uint64_t>(seed));
  if (lines.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.folder, "/results.jsonl has no run of this study to repeat"));
  }
  const std::string folder = options.folder + "/verify";
  RUBATO_ASSIGN_OR_RETURN(const Verification verification,
                          Repeat(options.study, lines, folder, JobsOf(options), signals));
  if (verification.signal != 0) {
    *code = 128 + verification.signal;
    return "interrupted\n";
  }
  const size_t differing = verification.differing.size();
  std::string text =
      absl::StrFormat("%d of %d cells, drawn with --verify-seed %d, came out the same\n",
                      lines.size() - differing, lines.size(), seed);
  if (differing == 0) return text;
  *code = 1;
  return absl::StrCat(text, "different: ", absl::StrJoin(verification.differing, "different: "),
                      "what they left is in ", folder, "/cells\n");
}

// What to print; `code` is the exit code if that is well.
absl::StatusOr<std::string> Bench(Options options, SignalWatcher* signals, int* code) {
  // First: where a study's file cannot be read, the flags that it has would be said to be missing.
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, LoadJob(options.study.config, options.study.set));
  RUBATO_RETURN_IF_ERROR(Complete(&options));
  options.study.target.is_script = IsScript(job);
  options.study.micro_batches = job.train().micro_batches();
  RUBATO_ASSIGN_OR_RETURN(std::vector<Cell> trials, TrialsOf(options.study));
  RUBATO_ASSIGN_OR_RETURN(std::vector<Cell> cells, CellsOf(options.study));
  if (IsScript(job)) RUBATO_RETURN_IF_ERROR(MakePlan(job).status());  // is it there?
  RUBATO_ASSIGN_OR_RETURN(options.study.numerics, NumericsHere(options.study));
  if (options.dry_run) return DryRun(std::move(options));
  if (options.folder.empty()) {
    return absl::InvalidArgumentError("--out is missing: the folder for the results");
  }
  if (options.verify > 0) return VerifyStudy(std::move(options), signals, code);
  if (const int needed = SeedsNeeded(options.study); options.study.seeds < needed) {
    WriteAll(2, absl::StrFormat("warning: --seeds %d is too few for a verdict: %d are needed\n",
                                options.study.seeds, needed));
  }
  for (const int count : WorkersOf(options.study, job)) {
    const std::string idle = IdleInSync(options.study, count);
    if (!idle.empty()) WriteAll(2, absl::StrCat("warning: ", idle, "\n"));
  }
  std::optional<Calibration> calibration;
  // Before there is a folder, for delays that are too short.
  if (options.study.processes && !options.study.target.is_script) {
    RUBATO_ASSIGN_OR_RETURN(calibration, CalibrationOf(options.study, options.folder));
    RUBATO_RETURN_IF_ERROR(CheckCores(options.study, *calibration));
  }
  Driver driver(&options.study, options.folder, JobsOf(options));
  RUBATO_RETURN_IF_ERROR(driver.Open());
  if (NeedsCalibration(options.study)) {
    if (!calibration.has_value()) {
      RUBATO_ASSIGN_OR_RETURN(calibration, CalibrationOf(options.study, options.folder));
    }
    RUBATO_RETURN_IF_ERROR(Keep(*calibration, options.folder));
    Calibrated(*calibration, &options.study);
    RUBATO_ASSIGN_OR_RETURN(trials, TrialsOf(options.study));
  }
  if (!trials.empty()) {
    WriteAll(2, absl::StrFormat("%d cells search for learning rates; then %d are judged\n",
                                trials.size(), cells.size()));
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
  RUBATO_RETURN_IF_ERROR(driver.WriteResults(options.command));
  const std::vector<DoneCell> done = driver.Done();
  const int64_t failed = std::count_if(
      done.begin(), done.end(), [](const DoneCell& cell) { return !cell.result.error.empty(); });
  if (failed > 0) *code = 1;
  std::vector<std::string> sentences = Verdicts(options.study, done);
  if (std::string sure = Certainty(GroupsOf(options.study, done)); !sure.empty()) {
    sentences.push_back(std::move(sure));
  }
  return absl::StrCat(
      absl::StrJoin(sentences, "\n"), "\n",
      failed > 0 ? absl::StrCat(failed, " of ", done.size(),
                                " cells failed, which the report names; the same command runs "
                                "them again\n")
                 : "",
      "report  ", options.folder, "/report.html (and report.md)\n");
}

Flags FlagsOf(Options* options) {
  Study& study = options->study;
  Flags flags(
      "rubato bench convergence",
      "Compares modes: which reaches a target first on this job, and what it costs in "
      "accuracy. Trains the job in every mode with several seeds, with real gradients in "
      "virtual time (rubato simulate), compares the modes seed by seed, and says which are "
      "faster, which slower and which cannot be told apart. A job whose model is in a script "
      "needs --processes. After an interruption the same command goes on where it stopped.",
      {"rubato bench convergence configs/bench/straggler.yaml --out study",
       "rubato bench convergence configs/quickstart.yaml --mode sync --mode async \\\n"
       "      --target eval/accuracy=0.95 --speeds exponential --seeds 6 --out study",
       "rubato bench convergence job.yaml --mode sync --mode bounded,staleness=3 "
       "--mode sync@12%+async \\\n"
       "      --target eval/loss=0.3 --workers 4,8 --out study"});
  flags.AddPositional(&study.config, "CONFIG.yaml",
                      "the job; or a study: a file with the key config, which names the job, and "
                      "keys named as these flags; flags that are typed, too, take precedence");
  flags.Add("mode", &study.modes, "MODE",
            "sync, async, bounded,staleness=N, or several for parts of the training: "
            "sync@12%+async; may be repeated, and two are needed");
  flags.Add("target", &options->target, "METRIC=VALUE",
            "the target: eval/accuracy=0.88 or eval/loss=0.3, on the validation split; or another "
            "figure of a script's tests: eval/f1,at_least=0.9 or eval/error,at_most=0.1");
  flags.Add("baseline", &study.baseline, "MODE",
            "the mode that the others are compared with; default: the first");
  flags.Add("seeds", &study.seeds, "N", "runs of each mode, 20 at most");
  flags.Add("workers", &options->workers, "N,N", "numbers of workers; default: the job's");
  flags.Add("learning-rates", &options->learning_rates, "R,R",
            "learning rates from which each mode gets its own, with three runs of each; default: "
            "the rate of the job");
  flags.Add("evaluations", &study.evaluations, "N",
            "evaluations in a run; the target is reached between two of them");
  flags.Add("simulated", &options->simulated, "", "simulate in virtual time, which is the default");
  flags.Add("processes", &study.processes, "",
            "train in real processes of this machine, one run after the other; --compute is then a "
            "delay beside the computing itself, long enough that processes do not wait for cores");
  flags.Add("speeds", &study.speeds, "SPEEDS",
            "as in rubato simulate; may be repeated, to compare the modes at each of them");
  flags.Add(
      "compute", &study.compute, "TIME",
      "the time that a worker needs for a micro-batch; default: measured here, once for a study");
  flags.Add("apply", &study.apply, "RATE",
            "bytes per second that a shard can sum and apply, or unlimited; default: measured "
            "here, once for a study");
  flags.Add("compute-scales", &options->compute_scales, "X,X",
            "factors of the computing time at which the study is repeated; the verdict is that of "
            "1; default: 1,0.5,2");
  flags.Add("latency", &study.latency, "TIME", "as in rubato simulate");
  flags.Add("bandwidth", &study.bandwidth, "RATE", "as in rubato simulate");
  flags.Add("out", &options->folder, "DIR",
            "a new folder for the results, or that of the same study, to continue it");
  flags.Add("jobs", &options->jobs, "N", "runs at the same time; default: one for each core");
  flags.Add("dry-run", &options->dry_run, "", "print the runs, and run nothing");
  flags.Add("verify", &options->verify, "N",
            "repeat N randomly drawn runs of a study that is done, and compare their lines in "
            "results.jsonl byte by byte");
  flags.Add("verify-seed", &options->verify_seed, "N",
            "the seed of that draw; default: a random one");
  flags.Add("set", &study.set, "KEY=VALUE", "override a key of the job; may be repeated");
  return flags;
}

// `options`, as typed in `arguments`; where they name a study's file, what that says as well.
absl::Status AddStudyFile(const std::vector<std::string>& arguments, Options* options) {
  RUBATO_ASSIGN_OR_RETURN(const std::optional<StudyFile> file,
                          ReadStudyFile(options->study.config));
  if (!file.has_value()) return absl::OkStatus();
  Options both;
  const std::vector<std::string> words = WithStudyFile(*file, arguments);
  const absl::StatusOr<Flags::Request> request = FlagsOf(&both).Parse(words);
  RUBATO_RETURN_IF_ERROR(request.status());
  both.study.config = file->config;
  *options = std::move(both);
  return absl::OkStatus();
}

}  // namespace

int BenchConvergenceMain(const std::vector<std::string>& arguments, SignalWatcher& signals) {
  Options options;
  if (const std::optional<int> code = FlagsOf(&options).Handle(arguments)) return *code;
  options.study.config = FindConfig(options.study.config);
  if (const absl::Status read = AddStudyFile(arguments, &options); !read.ok()) {
    return PrintFailure(read);
  }
  std::vector<std::string> typed = arguments;
  typed.insert(typed.begin(), {"bench", "convergence"});
  options.command = CommandLine(typed);
  int code = 0;
  const absl::StatusOr<std::string> text = Bench(std::move(options), &signals, &code);
  const int printed = PrintResult(text);
  return printed != 0 ? printed : code;
}

}  // namespace rubato
