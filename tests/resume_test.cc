// Runs that stop, in whatever way, and go on from a checkpoint.
// Long because every way to stop is followed by the same ways to go on.
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "common/files/run_folder.h"
#include "common/files/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ResumeTest : public ClusterTest {
 protected:
  // Goes on from `from` in the new folder `run_dir`, until its end.
  Process::Result Resume(const std::string& from, const std::string& run_dir,
                         const Arguments& set = {}) {
    Arguments arguments = {"tools/rubato", "train", "job.yaml",
                           "--resume",     from,    "--run-dir",
                           run_dir,        "--set", "cluster.address=127.0.0.1:0"};
    for (const std::string& override : set) arguments.insert(arguments.end(), {"--set", override});
    return Start(arguments).Wait();
  }

  // Trains in the new folder `run_dir`, from the checkpoint `from` on if it is not empty, and kills
  // the run when it has written a checkpoint.
  void TrainUntilACheckpointAndKill(const std::string& run_dir, const std::string& from,
                                    const Arguments& set) {
    Arguments arguments = {"tools/rubato",
                           "train",
                           "job.yaml",
                           "--run-dir",
                           run_dir,
                           "--set",
                           "cluster.address=127.0.0.1:0"};
    if (!from.empty()) arguments.insert(arguments.end(), {"--resume", from});
    for (const std::string& override : set) arguments.insert(arguments.end(), {"--set", override});
    fs::create_directory(Path(run_dir));
    Process& train = Start(arguments);
    ASSERT_TRUE(AwaitTraining(run_dir, train));
    ASSERT_TRUE(AwaitText(Path(run_dir + "/logs/server-0.log"), "server 0 checkpoint ", train));
    train.Signal(SIGKILL);
    train.Wait();
  }

  std::vector<std::string> Checkpoints(const std::string& run_dir) {
    std::vector<std::string> names;
    for (const std::string& path : ListCheckpoints(Path(run_dir + "/checkpoints"))) {
      names.push_back(fs::path(path).filename().string());
    }
    return names;
  }
};

// Killed at ten random moments, each time going on with other numbers of shards and workers.
TEST_F(ResumeTest, EndsWithTheBitsOfTheRunThatNeverStopped) {
  // Long enough that ten first checkpoints do not reach the end.
  const std::string until = "train.until={steps: 600}";
  Train("undisturbed", {until});
  std::mt19937 random(5);
  std::string from;
  for (int i = 0; i < 10; ++i) {
    const std::string run = absl::StrCat("run", i);
    Arguments set = {absl::StrCat("cluster.workers=", 1 + random() % 3),
                     absl::StrCat("cluster.servers=", 1 + random() % 3),
                     absl::StrCat("wire.chunk=", 16384 << random() % 4),
                     absl::StrCat("checkpoint.every={steps: ", 1 + random() % 3, "}"),
                     "checkpoint.keep_last=1000",
                     until};
    TrainUntilACheckpointAndKill(run, from, set);
    if (HasFatalFailure()) return;
    const std::vector<std::string> checkpoints = Checkpoints(run);
    // An early one of those it has left: what came later is lost, and computed again.
    if (!checkpoints.empty()) {
      from = absl::StrCat(run, "/checkpoints/",
                          checkpoints[random() % std::min<size_t>(3, checkpoints.size())]);
    }
  }
  ASSERT_FALSE(from.empty());
  const Process::Result result = Resume(from, "last", {until});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Summary("last")["digest"], Summary("undisturbed")["digest"]);
  EXPECT_EQ(Summary("last")["test_loss"], Summary("undisturbed")["test_loss"]);
}

TEST_F(ResumeTest, ScheduledCheckpointsAreOfTheirStepsAndTheCurveGoesOn) {
  Train("full", {"checkpoint.every={steps: 20}", "checkpoint.keep_last=2"});
  EXPECT_THAT(Checkpoints("full"), ElementsAre("step-00000020", "step-00000040"));
  const Process::Result result = Resume("full/checkpoints/step-00000020", "again",
                                        {"cluster.workers=2", "optimizer.momentum=0.9"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("goes on from full/checkpoints/step-00000020: step 20"));
  EXPECT_THAT(result.err, HasSubstr("cluster.workers.start: 1 -> 2"));
  // From wherever somebody goes on from this run.
  const absl::StatusOr<std::string> state = ReadSmallFile(Path("again/state.json"));
  RUBATO_ASSERT_OK(state);
  EXPECT_THAT(*state, HasSubstr("/full/checkpoints/step-00000020\""));
  const auto full = Metrics("full", "train"), again = Metrics("again", "train");
  ASSERT_EQ(full.size(), again.size());
  for (size_t i = 0; i < full.size(); ++i) EXPECT_EQ(full[i]["loss"], again[i]["loss"]) << i;
}

TEST_F(ResumeTest, ADryRunTellsWhatWouldGoOnAndRefusesWhatWouldNot) {
  Train("first", {"consistency=async", "cluster.workers=2", "train.until={steps: 20}"});
  const auto resume = [&](const Arguments& more) {
    Arguments arguments = {"tools/rubato", "train", "--resume", "first", "--run-dir", "second"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Start(arguments).Wait();
  };
  const Process::Result dry = resume({"--dry-run", "--set", "train.until={steps: 40}"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.err, AllOf(HasSubstr("goes on from first/checkpoints/step-"),
                             HasSubstr("changed: train.until.steps: 20 -> 40")));
  for (const bool is_dry : {true, false}) {
    Arguments set = {"--set", "cluster.workers=1"};
    if (is_dry) set.push_back("--dry-run");
    const Process::Result refused = resume(set);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("error: the checkpoint counts in contributions of 32 "
                                       "samples, this job in contributions of 64: "));
    EXPECT_THAT(refused.err, HasSubstr("(cluster.workers.max alone lets more workers join)"));
    EXPECT_FALSE(fs::exists(Path("second")));
  }
}

TEST_F(ResumeTest, TimeGoesOnOverARunThatHadNothingLeftToTrain) {
  Train("first", {"train.until={steps: 20}"});
  const Process::Result nothing = Resume("first", "nothing", {"train.until={steps: 20}"});
  EXPECT_EQ(nothing.code, 0) << nothing.err;
  EXPECT_THAT(nothing.err, HasSubstr("nothing is left to train"));
  const Process::Result more = Resume("nothing", "more", {"train.until={steps: 40}"});
  EXPECT_EQ(more.code, 0) << more.err;
  double last = 0;
  for (const auto& line : Metrics("more", "train")) {
    EXPECT_GE(line["time"].get<double>(), last);
    last = line["time"];
  }
  EXPECT_GT(Summary("more")["seconds"].get<double>(), Metrics("first", "train").back()["time"]);
  EXPECT_EQ(Metrics("more", "test").size(), 1u);  // of its own end
}

TEST_F(ResumeTest, AnInterruptedRunLeavesACheckpointAndExitsWithItsSignal) {
  for (const bool async : {false, true}) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      const std::string run = absl::StrCat("run", async, number);
      fs::create_directory(Path(run));
      Process& train = StartTrain(run, {kForever, "cluster.workers=2", "cluster.servers=2",
                                        async ? "consistency=async" : "consistency=sync"});
      ASSERT_TRUE(AwaitTraining(run, train));
      train.Signal(number);
      const Process::Result result = train.Wait();
      EXPECT_EQ(result.code, 128 + number) << result.err;
      EXPECT_THAT(result.err, HasSubstr(absl::StrCat("files: ", run, "\ngo on with: ")));
      EXPECT_THAT(result.err, HasSubstr(absl::StrCat("rubato train --resume ", run, "\n")));
      ASSERT_EQ(Checkpoints(run).size(), 1u) << result.err;
      RUBATO_EXPECT_OK(CheckCheckpoint(Path(run + "/checkpoints/" + Checkpoints(run)[0])));
    }
  }
}

// What is written to it fails from then on.
TEST_F(ResumeTest, ARunWhoseTerminalIsClosedLeavesACheckpoint) {
  fs::create_directory(Path("run"));
  const std::string rubato = fs::absolute("tools/rubato");
  Process& terminal = Start({"/usr/bin/script", "-q", "-c",
                             absl::StrCat("exec ", rubato, " train job.yaml --run-dir run --set '",
                                          kForever, "' --set cluster.servers=2"),
                             "/dev/null"});
  ASSERT_TRUE(AwaitTraining("run", terminal));
  std::vector<RunningChild> children = ChildrenOf(terminal.pid());
  ASSERT_EQ(children.size(), 1u);
  ASSERT_THAT(children[0].command, HasSubstr(rubato));
  terminal.Signal(SIGKILL);
  terminal.Wait();
  EXPECT_TRUE(children[0].process.AwaitEnd());
  ASSERT_EQ(Checkpoints("run").size(), 1u) << ReadText(Path("run/logs/server-0.log"));
  RUBATO_EXPECT_OK(CheckCheckpoint(Path("run/checkpoints/" + Checkpoints("run")[0])));
}

// By a supervisor, or a machine that shuts down: the launcher then asks a server that was told
// already, and servers tell the one that coordinates, which was, too.
TEST_F(ResumeTest, ARunWhoseProcessesAreAllToldToEndLeavesACheckpoint) {
  for (const char* mode : {"sync", "async"}) {
    for (const bool launcher_too : {true, false}) {
      const std::string run = absl::StrCat(mode, launcher_too);
      fs::create_directory(Path(run));
      Process& train = StartTrain(run, {kForever, "cluster.workers=2", "cluster.servers=3",
                                        absl::StrCat("consistency=", mode)});
      ASSERT_TRUE(AwaitTraining(run, train));
      std::vector<RunningChild> children = ChildrenOf(train.pid());
      ASSERT_EQ(children.size(), 5u);
      if (launcher_too) train.Signal(SIGTERM);
      for (const RunningChild& child : children) {
        if (launcher_too || absl::StrContains(child.command, "rubato-server")) {
          kill(child.process.pid(), SIGTERM);
        }
      }
      const Process::Result result = train.Wait();
      EXPECT_EQ(result.code, 143) << result.err;
      ASSERT_EQ(Checkpoints(run).size(), 1u) << result.err;
      RUBATO_EXPECT_OK(CheckCheckpoint(Path(run + "/checkpoints/" + Checkpoints(run)[0])));
    }
  }
}

TEST_F(ResumeTest, ARunningJobWritesACheckpointWhenAskedAndStopsWhenAsked) {
  fs::create_directory(Path("run"));
  Process& train = StartTrain("run", {kForever, "cluster.workers=2", "cluster.servers=2"});
  ASSERT_TRUE(AwaitTraining("run", train));
  const Process::Result checkpoint = Start({"tools/rubato", "checkpoint", "run"}).Wait();
  EXPECT_EQ(checkpoint.code, 0) << checkpoint.err;
  EXPECT_THAT(checkpoint.out, HasSubstr("run/checkpoints/step-"));
  const Process::Result stop = Start({"tools/rubato", "stop", "run"}).Wait();
  EXPECT_EQ(stop.code, 0) << stop.err;
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  ASSERT_EQ(Checkpoints("run").size(), 2u);
  // The last checkpoint holds the final parameters.
  const Process::Result eval = Start({"tools/rubato", "eval", "run", "--json"}).Wait();
  const Process::Result of_checkpoint =
      Start({"tools/rubato", "eval", "run/checkpoints/" + Checkpoints("run")[1], "--json"}).Wait();
  EXPECT_EQ(nlohmann::json::parse(eval.out)["loss"],
            nlohmann::json::parse(of_checkpoint.out)["loss"]);
  EXPECT_EQ(nlohmann::json::parse(eval.out)["loss"], Summary("run")["test_loss"]);
  // And a job that has ended says so.
  EXPECT_EQ(Start({"tools/rubato", "stop", "run"}).Wait().code, 1);
}

// Checkpoints are taken while workers push. Whatever each of them caught of a contribution, over
// any number of stops every block takes every contribution exactly once.
TEST_F(ResumeTest, OnArrivalEachContributionCountsOnceOverManyStops) {
  const Arguments cluster = {"consistency=async",   "cluster.workers=3",
                             "cluster.servers=2",   "train.micro_batches=3",
                             "train.batch_size=60", "train.until={epochs: 8}",
                             "wire.chunk=16KiB"};
  std::string from;
  for (int i = 0; i < 4; ++i) {
    const std::string run = absl::StrCat("run", i);
    Arguments arguments = {"tools/rubato",
                           "train",
                           "job.yaml",
                           "--run-dir",
                           run,
                           "--set",
                           "cluster.address=127.0.0.1:0"};
    if (!from.empty()) arguments.insert(arguments.end(), {"--resume", from});
    for (const std::string& override : cluster) {
      arguments.insert(arguments.end(), {"--set", override});
    }
    arguments.insert(arguments.end(), {"--set", "checkpoint.every={samples: 300}"});
    fs::create_directory(Path(run));
    Process& train = Start(arguments);
    if (i < 3) {
      // Long enough for checkpoints to have been written, not long enough to be done.
      AwaitText(
          Path(run + "/metrics.jsonl"),
          [](const std::string& text) { return std::count(text.begin(), text.end(), '\n') > 60; },
          train);
      train.Signal(SIGKILL);
      train.Wait();
    } else {
      const Process::Result result = train.Wait();
      EXPECT_EQ(result.code, 0) << result.err;
    }
    if (Checkpoints(run).empty()) continue;
    from = run;
  }
  const int64_t samples = Job().data().train_size();
  const int64_t contributions = 8 * ((samples + 19) / 20);
  for (const auto& block : Summary("run3")["blocks"]) {
    EXPECT_EQ(block["updates"], contributions) << block;
    EXPECT_EQ(block["samples"], 8 * samples) << block;
  }
}

// With a rate that changes no bit of a parameter a contribution's gradient does not depend on when
// it is computed. One worker's contributions reach each block in their order. So whatever snapshots
// caught while it pushed, the slots must end with the bits of the run that never stopped.
TEST_F(ResumeTest, OnArrivalSlotsEndWithTheBitsOfTheRunThatNeverStopped) {
  for (const std::string optimizer : {"{name: sgd, learning_rate: 1.0e-30, momentum: 0.9}",
                                      "{name: adam, learning_rate: 1.0e-30}"}) {
    const Arguments set = {"consistency=async",           "cluster.servers=2",
                           "optimizer=" + optimizer,      "train.until={steps: 200}",
                           "checkpoint.every={steps: 1}", "checkpoint.keep_last=3"};
    fs::remove_all(Path("undisturbed"));
    Arguments undisturbed = set;
    undisturbed.push_back("checkpoint.every={steps: 1000000}");  // at the end
    Train("undisturbed", undisturbed);
    const auto digest_of = [&](const std::string& run) {
      const std::vector<std::string> all = ListCheckpoints(Path(run + "/checkpoints"));
      const auto manifest = CheckCheckpoint(all.back());
      RUBATO_EXPECT_OK(manifest);
      const auto state = ReadTrainingState(all.back(), *manifest, manifest->layout());
      RUBATO_EXPECT_OK(state);
      return state->slots;
    };
    std::mt19937 random(6);
    std::string from;
    for (int i = 0; i < 3; ++i) {
      const std::string run = absl::StrCat(optimizer.substr(7, 4), i);
      TrainUntilACheckpointAndKill(run, from, set);
      if (HasFatalFailure()) return;
      const std::vector<std::string> checkpoints = Checkpoints(run);
      ASSERT_FALSE(checkpoints.empty());
      from = absl::StrCat(run, "/checkpoints/",
                          checkpoints[random() % std::min<size_t>(3, checkpoints.size())]);
    }
    fs::remove_all(Path("last"));
    const Process::Result result = Resume(from, "last", undisturbed);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(Summary("last")["digest"], Summary("undisturbed")["digest"]);
    EXPECT_EQ(digest_of("last"), digest_of("undisturbed"));
  }
}

// Ended at once while a checkpoint is being written, after more or less of it: the newest one
// loads.
TEST_F(ResumeTest, KilledWhileItWritesACheckpointLeavesOneThatLoads) {
  std::mt19937 random(7);
  for (int i = 0; i < 8; ++i) {
    const std::string run = absl::StrCat("run", i);
    fs::create_directory(Path(run));
    Process& train = StartTrain(run, {kForever, "cluster.workers=2", "cluster.servers=2",
                                      "checkpoint.every={steps: 1}", "checkpoint.keep_last=1",
                                      "model.layers=[flatten, linear: {out_features: 300}, relu, "
                                      "linear: {out_features: 10}]",
                                      i % 2 == 0 ? "consistency=sync" : "consistency=async"});
    const size_t files = random() % 5;
    ASSERT_TRUE(AwaitText(
        Path(run + "/metrics.jsonl"),
        [&](const std::string&) {
          // A whole one, and as many files of the next.
          bool whole = false, written = false;
          std::error_code error;
          std::ptrdiff_t parts = 0;
          for (fs::recursive_directory_iterator it(Path(run + "/checkpoints"), error), end;
               !error && it != end; it.increment(error)) {
            const bool is_temporary = absl::StrContains(it->path().string(), "/checkpoints/.");
            whole = whole || !is_temporary;
            parts += is_temporary && it.depth() == 2;
          }
          written = parts >= static_cast<std::ptrdiff_t>(files);
          return whole && written;
        },
        train));
    train.Signal(SIGKILL);
    train.Wait();
    std::vector<std::string> passed_over;
    const auto newest = FindCheckpoint(Path(run), &passed_over);
    RUBATO_ASSERT_OK(newest);
    EXPECT_THAT(passed_over, testing::IsEmpty());
    const Process::Result eval = Start({"tools/rubato", "eval", run, "--json"}).Wait();
    EXPECT_EQ(eval.code, 0) << eval.err;
  }
}

TEST_F(ResumeTest, RefusesAnotherModelAndDamagedCheckpoints) {
  Train("run", {"checkpoint.every={steps: 20}"});
  Process::Result result = Resume("run", "other", {"model.layers=[flatten, {linear: 10}]"});
  EXPECT_EQ(result.code, 2);
  result = Resume("run", "other2", {"model.layers=[flatten, {linear: {out_features: 10}}]"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("does not fit the model"));
  fs::resize_file(Path("run/checkpoints/step-00000040/parameters.safetensors"), 1000);
  result = Resume("run/checkpoints/step-00000040", "other3");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("the one before is run/checkpoints/step-00000020"));
  result = Resume("run", "again");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("passed over"));
  EXPECT_EQ(Summary("again")["digest"], Summary("run")["digest"]);
}

TEST_F(ResumeTest, AFullDiskCostsACheckpointAndNothingElse) {
  // The folder of checkpoints cannot be made: a file stands in its place.
  fs::create_directory(Path("run"));
  Process& shard_0 = StartServer(0, {"cluster.address=127.0.0.1:0", "checkpoint.every={steps: 10}"},
                                 {"--run-dir", "run"});
  Write("run/checkpoints", "");
  const std::string address = AwaitAddress("run", shard_0);
  Process& worker = StartWorker({"cluster.address=" + address});
  EXPECT_EQ(worker.Wait().code, 0);
  const Process::Result result = shard_0.Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  const size_t warning = result.err.find("training goes on, the last good one is none");
  ASSERT_NE(warning, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("no checkpoint of step", warning), std::string::npos)
      << "once for all of them:\n"
      << result.err;
  EXPECT_THAT(result.err, ContainsRegex("no checkpoint of the end, step [0-9]+: .*; --resume goes "
                                        "on from the beginning"));
}

TEST_F(ResumeTest, StopsWhenTheTargetIsMetOrTheTimeIsOver) {
  Train("target", {kForever, "evaluation.every={steps: 5}",
                   "train.stop_when={metric: eval/loss, at_most: 1e9}"});
  EXPECT_GE(Summary("target")["steps"], 5);
  Train("time", {"train.until={time: 1s}"});
  EXPECT_GE(Summary("time")["seconds"], 1.0);
  EXPECT_EQ(Checkpoints("time").size(), 1u);
}

// checkpoint.resume, by `rubato train` and by a shard 0 that is started by hand.
TEST_F(ResumeTest, AJobMayAskToGoOnByItself) {
  const auto train = [&](const std::string& resume, const Arguments& more = {}) {
    Arguments arguments = {"tools/rubato",
                           "train",
                           "job.yaml",
                           "--set",
                           "cluster.address=127.0.0.1:0",
                           "--set",
                           "checkpoint.every={steps: 20}",
                           "--set",
                           "checkpoint.resume=" + resume};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Start(arguments).Wait();
  };
  Process::Result result = train("required");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("checkpoint.resume: found no whole checkpoint of a run of " +
                                    Job().name() + " under runs"));
  EXPECT_FALSE(fs::exists(Path("runs")));
  result = train("auto", {"--set", "train.until={steps: 20}"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("found no whole checkpoint of a run of " + Job().name() +
                                    " under runs: from the beginning\n"));
  result = train("required");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("/checkpoints/step-00000020: step 20"));
  result = train("never", {"--resume", "runs/latest"});
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string latest = "runs/" + fs::read_symlink(Path("runs/latest")).string();
  Train("undisturbed");
  EXPECT_EQ(Summary(latest)["digest"], Summary("undisturbed")["digest"]);
  result = train("required",
                 {"--run-dir", "anew", "--resume", "never", "--set", "train.until={steps: 1}"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err.find("goes on"), std::string::npos) << result.err;

  fs::create_directory(Path("by-hand"));
  Process& shard_0 = StartServer(0, {"cluster.address=127.0.0.1:0", "checkpoint.resume=auto"},
                                 {"--run-dir", "by-hand"});
  Process& worker = StartWorker(
      {"cluster.address=" + AwaitAddress("by-hand", shard_0), "checkpoint.resume=auto"});
  EXPECT_EQ(worker.Wait().code, 0);
  EXPECT_EQ(shard_0.Wait().code, 0);
  for (const nlohmann::json& line : Metrics("by-hand", "train")) EXPECT_GT(line["step"], 20);
  EXPECT_EQ(Summary("by-hand")["digest"], Summary("undisturbed")["digest"]);

  // Its state says whose run it is, and its folder does not.
  fs::rename(Path("runs"), Path("earlier"));
  fs::create_directory(Path("runs"));
  fs::rename(Path("by-hand"), Path("runs/by-hand"));
  result = train("required");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("goes on from runs/by-hand/checkpoints/step-"));
}

// The first one of a run is, and others that come within a second of it are not before they get
// their names.
TEST_F(ResumeTest, TheLastCheckpointIsFlushedWhenTheJobEnds) {
  setenv("LD_PRELOAD", fs::absolute("tests/libnoted_flushes.so").c_str(), 1);
  setenv("RUBATO_TEST_FLUSHES", Path("flushes").c_str(), 1);
  Train("run", {"train.until={steps: 20}", "checkpoint.every={steps: 10}", "cluster.servers=2"});
  unsetenv("LD_PRELOAD");
  unsetenv("RUBATO_TEST_FLUSHES");
  const std::vector<std::string> flushed = absl::StrSplit(ReadText(Path("flushes")), '\n');
  int files = 0;
  for (const auto& file : fs::directory_iterator(Path("run/checkpoints/step-00000020"))) {
    struct stat about;
    ASSERT_EQ(stat(file.path().c_str(), &about), 0);
    EXPECT_THAT(flushed, Contains(absl::StrCat(about.st_ino))) << file.path();
    ++files;
  }
  EXPECT_EQ(files, 7);
}

// What people look at: of a run that has ended, of one that has not, of a checkpoint.
TEST_F(ResumeTest, InspectExportAndEvalTakeRunsAndCheckpoints) {
  Train("run", {"checkpoint.every={steps: 20}"});
  const std::string early = "run/checkpoints/step-00000020", late = "run/checkpoints/step-00000040";
  const auto said = [&](const Arguments& arguments) {
    const Process::Result result = Start(arguments).Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  const std::string page = said({"tools/rubato", "inspect", early});
  EXPECT_THAT(page, HasSubstr("file: " + early + "/parameters.safetensors"));
  EXPECT_THAT(page, ContainsRegex("checkpoint: step 20, 1280 samples, epoch 0\\.85, [0-9.]+ s of "
                                  "training, seed 7\n"));
  EXPECT_THAT(page, HasSubstr("optimizer: momentum_buffer\n"));
  EXPECT_EQ(InspectDigest(late), Summary("run")["digest"]);
  EXPECT_NE(InspectDigest(early), Summary("run")["digest"]);
  said({"tools/rubato", "export", early, "early.safetensors"});
  EXPECT_EQ(InspectDigest("early.safetensors"), InspectDigest(early));

  auto manifest = CheckCheckpoint(Path(late));
  RUBATO_ASSERT_OK(manifest);
  const auto state = ReadTrainingState(Path(late), *manifest, manifest->layout());
  RUBATO_ASSERT_OK(state);
  manifest->set_eval_loss(0.25);
  manifest->set_eval_accuracy(0.625);
  manifest->set_eval_samples(1280);
  RUBATO_ASSERT_OK(WriteCheckpoint(Path("evaluated"), *manifest, "", manifest->layout(), *state));
  EXPECT_THAT(
      said({"tools/rubato", "inspect", "evaluated/step-00000040"}),
      HasSubstr("\nlast evaluation, at 1280 samples, epoch 0.85: loss 0.25, accuracy 62.50 %\n"
                "optimizer: "));

  // As a run that was killed leaves it.
  fs::remove(Path("run/parameters.safetensors"));
  fs::remove(Path("run/summary.json"));
  EXPECT_EQ(InspectDigest("run"), InspectDigest(late));
  EXPECT_THAT(said({"tools/rubato", "export", "run", "late.safetensors"}), HasSubstr(late));
  EXPECT_EQ(InspectDigest("late.safetensors"), InspectDigest(late));
  EXPECT_THAT(said({"tools/rubato", "eval", "run", "--json"}), HasSubstr(late));
  fs::resize_file(Path(late + "/parameters.safetensors"), 1000);
  for (const std::string verb : {"inspect", "eval"}) {
    const Process::Result result = Start({"tools/rubato", verb, late}).Wait();
    EXPECT_EQ(result.code, 2) << verb;
    EXPECT_THAT(result.err, HasSubstr(late)) << verb;
  }
  EXPECT_EQ(InspectDigest("run"), InspectDigest(early));
}

// Shard 1 has a file system of its own in the place of the run's folder: its part is read and, when
// the job goes on, sent.
TEST_F(ResumeTest, AServerThatDoesNotSeeTheFolderTakesPartAllTheSame) {
  if (Start({"/usr/bin/unshare", "-rm", "mount", "-t", "tmpfs", "none", "."}).Wait().code != 0) {
    GTEST_SKIP() << "no file system can be mounted here";
  }
  const Arguments cluster = {"cluster.servers=2", "checkpoint.every={steps: 20}"};
  fs::create_directory(Path("run"));
  const auto train = [&](const std::string& run, int steps, const Arguments& more) {
    const FreePort port;
    Arguments set = cluster;
    set.push_back("cluster.address=" + port.address());
    set.push_back(absl::StrCat("train.until={steps: ", steps, "}"));
    Arguments hidden = {"/usr/bin/unshare",
                        "-rm",
                        "/bin/sh",
                        "-c",
                        "mount -t tmpfs none run && exec \"$0\" \"$@\"",
                        fs::absolute("server/rubato-server").string(),
                        "--config",
                        "job.yaml",
                        "--shard",
                        "1"};
    for (const std::string& override : set) hidden.insert(hidden.end(), {"--set", override});
    Process& shard_1 = Start(hidden);
    Arguments options = {"--run-dir", run};
    options.insert(options.end(), more.begin(), more.end());
    Process& shard_0 = StartServer(0, set, options);
    Process& worker = StartWorker(set);
    for (Process* process : {&shard_1, &worker}) {
      const Process::Result result = process->Wait();
      EXPECT_EQ(result.code, 0) << result.err;
    }
    const Process::Result last = shard_0.Wait();
    EXPECT_EQ(last.code, 0) << last.err;
    return last.err;
  };
  EXPECT_THAT(train("run", 40, {}), HasSubstr("shard 1 does not see the run's folder"));
  const std::string path = Path("run/checkpoints/step-00000040");
  const auto manifest = CheckCheckpoint(path);
  RUBATO_ASSERT_OK(manifest);
  EXPECT_EQ(manifest->parts_size(), 2);
  EXPECT_EQ(InspectDigest(path), Summary("run")["digest"]);
  fs::create_directory(Path("longer"));
  EXPECT_THAT(train("longer", 60, {"--resume", "run"}),
              HasSubstr("shard 1 does not see the checkpoint"));
  Train("undisturbed", {"train.until={steps: 60}"});
  EXPECT_EQ(Summary("longer")["digest"], Summary("undisturbed")["digest"]);
}

// A rate that changes no bit shows what the training began with.
TEST_F(ResumeTest, BeginsWithTheParametersOfAFile) {
  Train("run");
  Train("again", {"model.init_from=run/parameters.safetensors", "optimizer.learning_rate=1e-30",
                  "train.until={steps: 1}", "cluster.servers=3", "cluster.workers=2"});
  EXPECT_EQ(Summary("again")["digest"], Summary("run")["digest"]);
  EXPECT_EQ(Summary("again")["test_loss"], Summary("run")["test_loss"]);
}

}  // namespace
}  // namespace rubato
