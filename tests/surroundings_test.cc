// What a user's machine does to a run: closed descriptors, disks that are full or fill up, ports
// that are taken. The run says what it met, and what it has computed is kept.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class SurroundingsTest : public ClusterTest {
 protected:
  // Though the server renames a file in it meanwhile.
  void RemoveRun() {
    std::error_code raced;
    do {
      fs::remove_all(Path("run"), raced);
    } while (raced);
  }

  // Runs a script in the test's folder, where $rubato is the program.
  Process::Result Shell(const std::string& script, const std::vector<std::string>& under = {}) {
    Write("script.sh",
          absl::StrCat("rubato=", fs::absolute("tools/rubato").string(), "\n", script));
    std::vector<std::string> arguments = under;
    arguments.insert(arguments.end(), {"/bin/sh", "script.sh"});
    return Start(arguments).Wait();
  }

  // The same with a disk of its own, `disk`, of so many KiB.
  Process::Result ShellWithDisk(int kib, const std::string& script) {
    fs::create_directory(Path("disk"));
    return Shell(absl::StrCat("mount -t tmpfs -o size=", kib, "k none disk || exit 77\n", script),
                 {"/usr/bin/unshare", "-rm"});
  }

  // How often `part` is in `text`.
  static int Count(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }
};

TEST_F(SurroundingsTest, TrainsWithClosedStandardDescriptors) {
  const Process::Result result = Shell("exec $rubato train job.yaml --run-dir run <&- >&- 2>&-\n");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(Summary("run")["steps"], 40);
}

TEST_F(SurroundingsTest, AFullDiskIsFoundBeforeTraining) {
  const Process::Result result = ShellWithDisk(
      64, "$rubato train job.yaml --run-dir disk/run; code=$?; ls disk; exit $code\n");
  if (result.code == 77) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, StartsWith("error: disk/run: found 0.1 MB free on its disk, expected at "
                                     "least 1.7 MB: the final parameters"));
  EXPECT_EQ(result.out, "");  // nothing is left there
}

TEST_F(SurroundingsTest, WhatWasTrainedIsKeptElsewhereWhenTheDiskFillsUp) {
  fs::create_directory(Path("elsewhere"));
  const Process::Result result = ShellWithDisk(2048, absl::StrCat(R"(
export TMPDIR=$PWD/elsewhere
$rubato train job.yaml --run-dir disk/run --set ')",
                                                                  kForever, R"(' &
until [ -s disk/run/metrics.jsonl ]; do sleep 0.01; done
cat /dev/zero > disk/rest 2> /dev/null
$rubato stop disk/run
wait $!
)"));
  if (result.code == 77) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              ContainsRegex("cannot write disk/run/parameters.safetensors: No space "
                            "left on device; parameters and summary are in .*/rubato-"));
  ASSERT_FALSE(fs::is_empty(Path("elsewhere"))) << result.err;
  const std::string kept = fs::directory_iterator(Path("elsewhere"))->path();
  EXPECT_EQ(InspectDigest(kept), Summary(kept)["digest"]);
  EXPECT_TRUE(fs::exists(kept + "/data.json"));
}

TEST_F(SurroundingsTest, AServerThatDiesIsStartedAgainOnAFullDisk) {
  const Process::Result result = ShellWithDisk(6144, absl::StrCat(R"(
$rubato train job.yaml --run-dir disk/run --set cluster.servers=2 --set ')",
                                                                  kForever, R"(' 2> log &
launcher=$!
until [ -s disk/run/metrics.jsonl ]; do sleep 0.01; done
cat /dev/zero > disk/rest 2> /dev/null
for pid in $(cat /proc/$launcher/task/$launcher/children); do
  if tr '\0' ' ' < /proc/$pid/cmdline | grep -q -e '--shard 1'; then kill -9 $pid; fi
done
until grep -q 'joins anew' log || ! kill -0 $launcher; do sleep 0.01; done
rm disk/rest
$rubato stop disk/run
wait $launcher
code=$?
cat log >&2
exit $code
)"));
  if (result.code == 77) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("started again (1 of 3)"));
}

// metrics.jsonl takes no line of what is trained then.
TEST_F(SurroundingsTest, ASuccessorKnowsHowFarALostTermHadComeOnAFullDisk) {
  const FreePort port;
  const std::string programs = fs::absolute(".").string();
  const std::string settings =
      absl::StrCat("--config job.yaml --set security=none --set cluster.address=", port.address(),
                   " --set '", kForever, "'");
  const std::string functions =
      absl::StrCat("server() { exec ", programs, "/server/rubato-server ", settings,
                   " --shard 0 --run-dir disk/run; }\n", "worker() { exec ", programs,
                   "/worker/rubato-worker ", settings, "; }\n");
  const Process::Result result = ShellWithDisk(2048, functions + R"(
samples() { sed -n '$s/.*"samples":\([0-9]*\).*/\1/p'; }
server 2> first &
first=$!
worker 2> /dev/null &
worker=$!
until [ -s disk/run/metrics.jsonl ]; do sleep 0.01; done
cat /dev/zero > disk/rest 2> /dev/null
told=0
until [ ${told:-0} -gt $(($(samples < disk/run/metrics.jsonl) + 20000)) ]; do
  kill -0 $first || break
  told=$($rubato status disk/run --json | samples)
done
kill -9 $first $worker
wait
server 2> second &
second=$!
until grep -q ' listening ' second || ! kill -0 $second; do sleep 0.01; done
cat disk/run/state.json
worker 2> /dev/null &
until grep -q 'went back' second || ! kill -0 $second; do sleep 0.01; done
rm disk/rest
$rubato stop disk/run > /dev/null
wait
echo $told > told
cat second >&2
)");
  if (result.code == 77) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_FALSE(nlohmann::json::parse(result.out).contains("terms_in_vain")) << result.out;
  std::smatch again;
  ASSERT_TRUE(std::regex_search(
      result.err, again,
      std::regex("went back to step 0 \\(the beginning\\) because .*; (\\d+) samples are trained")))
      << result.err;
  // A line comes a little later than the status.
  EXPECT_GE(std::stoll(again[1]), std::stoll(ReadText(Path("told"))) - 10000);
}

// As a pod's, whose other disks go with it.
TEST_F(SurroundingsTest, AServerThatIsFollowedByAnotherWaitsForRoomOnItsDisk) {
  fs::create_directory(Path("elsewhere"));
  const FreePort port;
  const std::string settings = absl::StrCat(
      "--config job.yaml --set security=none --set cluster.servers=1 --set ",
      "cluster.workers=1 --set cluster.address=", port.address(), " --set '", kForever, "'");
  const std::string programs = fs::absolute(".").string();
  const Process::Result result = ShellWithDisk(
      2048, absl::StrCat("export TMPDIR=$PWD/elsewhere\n", programs, "/server/rubato-server ",
                         settings, R"( --shard 0 --run-dir disk/run --leave-on-sigterm 2> log &
server=$!
)",
                         programs, "/worker/rubato-worker ", settings, R"( 2> worker-log &
worker=$!
until [ -s disk/run/metrics.jsonl ]; do sleep 0.01; done
cat /dev/zero > disk/rest 2> /dev/null
$rubato stop disk/run
until grep -q 'No space left' log || ! kill -0 $server; do sleep 0.01; done
sleep 1.5
rm disk/rest
wait $server
code=$?
wait $worker
cat log >&2
ls disk/run
exit $code
)"));
  if (result.code == 77) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("parameters.safetensors"), HasSubstr("summary.json")));
  EXPECT_TRUE(fs::is_empty(Path("elsewhere"))) << result.err;
}

TEST_F(SurroundingsTest, AFailedStartDoesNotTakeTheRunFolder) {
  const FreePort port;
  const int listener = port.Listen();
  const Process::Result refused = StartTrain("run", {"cluster.address=" + port.address()}).Wait();
  close(listener);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("the port is in use (by another job? cluster.address, or "));
  EXPECT_THAT(refused.err, HasSubstr(": --set cluster.address=127.0.0.1:0)"));
  EXPECT_TRUE(fs::exists(Path("run/logs/server-0.log")));
  Train("run");
}

TEST_F(SurroundingsTest, AnAddressIsRefusedForItsOwnReason) {
  const Process::Result nowhere = StartTrain("run", {"cluster.address=nowhere.invalid:0"}).Wait();
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("the name nowhere.invalid is not known here"));
  const Process::Result other = StartTrain("run", {"cluster.address=192.0.2.1:0"}).Wait();
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("the address is not of this machine"));
  for (const std::string flag : {"--listen", "--advertise", "--health"}) {
    const Process::Result nonsense = StartServer(0, {}, {flag, "nonsense"}).Wait();
    EXPECT_EQ(nonsense.code, 2);
    EXPECT_THAT(nonsense.err,
                HasSubstr("error: " + flag + ": found \"nonsense\", expected HOST:PORT"));
  }
}

// Nobody can be reached there.
TEST_F(SurroundingsTest, AServerAdvertisesNoWildcard) {
  for (const std::string address : {"0.0.0.0:29501", "[::]:0"}) {
    for (const int shard : {0, 1}) {
      const Process::Result result =
          StartServer(shard, {"cluster.servers=2"}, {"--listen", address}).Wait();
      EXPECT_EQ(result.code, 2);
      EXPECT_EQ(result.err,
                absl::StrCat("error: --listen: found \"", address,
                             "\", all addresses of this host, expected beside it "
                             "--advertise HOST:PORT, by which others reach the shard\n"));
    }
  }
  const Process::Result result = StartServer(0, {}, {"--advertise", "0.0.0.0:29501"}).Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err,
            "error: --advertise: found \"0.0.0.0:29501\", expected a name or address that others "
            "can connect to\n");
}

// A shard that is not told where to listen does so beside the coordinator.
TEST_F(SurroundingsTest, AShardOfAnotherMachineIsToldWhereToListen) {
  const Arguments set = {"cluster.servers=2", "cluster.address=192.0.2.1:29500"};
  const struct {
    Arguments listen;
    std::string found;
  } kCases[] = {{{}, "nothing"},
                {{"--listen", "127.0.0.1:0"}, "\"127.0.0.1:0\", which only this machine reaches"}};
  for (const auto& c : kCases) {
    const Process::Result result = StartServer(1, set, c.listen).Wait();
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.err,
              absl::StrCat("error: --listen: found ", c.found,
                           ", expected the HOST:PORT by which others reach shard 1: "
                           "cluster.address, 192.0.2.1:29500, is of another machine\n"));
  }
}

TEST_F(SurroundingsTest, AResultThatCannotBePrintedIsAnError) {
  Train("run");
  const Process::Result result = Shell("exec $rubato inspect run > /dev/full\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "error: cannot write to standard output: No space left on device\n");
}

TEST_F(SurroundingsTest, ASummaryThatCannotBePrintedIsAnError) {
  const Process::Result result =
      Shell("exec $rubato train job.yaml --run-dir run --set train.until.epochs=1 > /dev/full\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("error: cannot write to standard output: No space left"));
}

TEST_F(SurroundingsTest, WarningsReachTheTerminalOnce) {
  const Process::Result result = Train("run", {"cluster.workers=3", "train.micro_batches=1"});
  EXPECT_EQ(Count(result.err,
                  "warning: server 0: 2 of 3 workers have nothing to compute: "
                  "train.micro_batches is 1"),
            1)
      << result.err;
}

TEST_F(SurroundingsTest, RecordsThatAreLeftOutAreSaid) {
  Write("data.csv", "x,y\n1,a\n,b\n3,b\n4,a\n");
  Write("job.yaml", R"(version: 1
name: table
cluster: {address: "127.0.0.1:0"}
data: {format: csv, path: data.csv, test_path: data.csv, target: y, impute: drop}
model: {layers: [linear: {out_features: 2}]}
train: {batch_size: 3, until: {steps: 2}}
)");
  EXPECT_THAT(Train("run").err, ContainsRegex("\ndata: .*data.csv: 1 of 4 records are left out"));
}

TEST_F(SurroundingsTest, AWarningOnTheDataIsToldOnce) {
  std::string table = "id,x,y\n";
  for (int i = 0; i < 12; ++i) absl::StrAppend(&table, i, ",", i * i % 5, ",", i % 2, "\n");
  Write("data.csv", table);
  Write("job.yaml", R"(version: 1
name: table
cluster: {address: "127.0.0.1:0", workers: 2}
data: {format: csv, path: data.csv, test_path: data.csv, target: y}
model: {layers: [linear: {out_features: 2}]}
train: {batch_size: 4, until: {steps: 2}}
)");
  for (const std::string format : {"text", "json"}) {
    const Process::Result result = Train("run-" + format, {"log.format=" + format});
    EXPECT_EQ(Count(result.err, " counts the lines from 0 on"), 1) << result.err;
    EXPECT_THAT(result.err, ContainsRegex("warning: [^ ]*data.csv: the column "));
  }
  EXPECT_THAT(ReadText(Path("run-text/logs/worker-0.log")),
              HasSubstr("counts the lines from 0 on"));
}

TEST_F(SurroundingsTest, AResumedRunSaysWhatChangedInTheJobsOwnWords) {
  Train("run", {"checkpoint.every={steps: 20}"});
  setenv("RUBATO__OPTIMIZER__LEARNING_RATE", "0.02", 1);
  const Process::Result result =
      Start({"tools/rubato", "train", "--resume", "run", "--run-dir", "on", "--set",
             "consistency.mode=async", "--set", "train.until={steps: 60}", "--set", "seed=5"})
          .Wait();
  unsetenv("RUBATO__OPTIMIZER__LEARNING_RATE");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("changed: consistency.mode: sync -> async\n"),
                    HasSubstr("changed: optimizer.learning_rate: 0.05 -> 0.02\n"),
                    HasSubstr("changed: train.until.steps: 40 -> 60\n"),
                    HasSubstr("warning: server 0: the checkpoint is in the midst of an epoch whose "
                              "order of samples was drawn from seed 7, and"),
                    Not(HasSubstr("MODE_"))));
  // The job as it ran, whatever becomes of the checkpoint.
  EXPECT_THAT(result.out, HasSubstr("rubato train on/job.yaml --set consistency=sync\n"));
}

TEST_F(SurroundingsTest, AResumedRunWarnsOfTestsOnWhatItWasTrainedOn) {
  Train("run", {"data.validation=0.1"});
  const auto resume = [&](const std::string& to, const std::string& set) {
    return Start({"tools/rubato", "train", "job.yaml", "--resume", "run", "--run-dir", to, "--set",
                  "data.validation=0.1", "--set", set})
        .Wait()
        .err;
  };
  const char kWarning[] =
      "warning: server 0: examples that the checkpoint was trained on may be in the validation "
      "split now: ";
  EXPECT_THAT(resume("other", "seed=5"), HasSubstr(kWarning));
  EXPECT_THAT(resume("same", "optimizer.learning_rate=0.1"), Not(HasSubstr(kWarning)));
}

TEST_F(SurroundingsTest, AResumedRunOnArrivalKeepsTheLinesBeforeItsCheckpoint) {
  const std::vector<std::string> set = {"consistency.mode=async", "cluster.workers=2",
                                        "checkpoint.every={steps: 15}"};
  Train("run", set);
  std::vector<std::string> checkpoints;
  for (const auto& entry : fs::directory_iterator(Path("run/checkpoints"))) {
    checkpoints.push_back(entry.path());
  }
  std::sort(checkpoints.begin(), checkpoints.end());
  const Process::Result result =
      Start({"tools/rubato", "train", "--resume", checkpoints[0], "--run-dir", "on"}).Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("goes on from .*: contribution [0-9]+, epoch "));
  EXPECT_EQ(Metrics("on", "test").size(), 1u);
  double samples = 0;
  for (const nlohmann::json& line : Metrics("on", "train")) {
    EXPECT_GE(line["samples"], samples);
    samples = line["samples"];
  }
}

TEST_F(SurroundingsTest, ARunThatIsStoppedSaysSoAndHowToGoOn) {
  fs::create_directory(Path("run"));
  Process& train = StartTrain("run", {kForever});
  ASSERT_TRUE(AwaitText(Path("run/metrics.jsonl"), "\n", train));
  EXPECT_EQ(Start({"tools/rubato", "stop", "run", "--reason", "seen enough"}).Wait().code, 0);
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("stopped        before train.until: asked to: seen enough\n"),
                    ContainsRegex("Try next:\n  .*rubato train --resume run\n")));
}

TEST_F(SurroundingsTest, ResumingWhatHasComeToItsEndIsExplained) {
  Train("run", {"checkpoint.every={steps: 20}"});
  const Process::Result result =
      Start({"tools/rubato", "train", "--resume", "run", "--run-dir", "on"}).Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("nothing is left to train: train.until comes to 2524 samples, "
                                    "of which the checkpoint has 2524"));
}

TEST_F(SurroundingsTest, StepsThatWereLeftOutAreReported) {
  const Process::Result result =
      Train("run", {"optimizer.learning_rate=1e30", "train.on_non_finite=skip"});
  EXPECT_THAT(result.out, ContainsRegex("left out       [0-9]+ of 40 steps: a loss or gradient was "
                                        "not finite\n"));
}

TEST_F(SurroundingsTest, DataThatHaveNoPlaceInMemoryAreRefused) {
  std::string rows;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&rows, i % 2, " 1:1 200000:1\n");
  Write("rows.svm", rows);
  Write("job.yaml", R"(version: 1
name: wide
data: {format: libsvm, path: rows.svm, test_fraction: 0.1}
model: {layers: [linear: {out_features: 2}]}
train: {batch_size: 10, until: {steps: 2}}
)");
  const Process::Result result = Shell("ulimit -v 2000000; exec $rubato train job.yaml --dry-run");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("rows.svm: found 5000 examples of 200000 features, "
                        "which take 4.4 GB as dense floats with the splits; expected "));
}

TEST_F(SurroundingsTest, AnEmbeddingThatIsTooSmallForTheTextIsRefused) {
  Write("text.txt", "the quick brown fox jumps over the lazy dog, and so on\n");
  Write("job.yaml", R"(version: 1
name: text
data: {format: text, path: text.txt, context: 4, test_fraction: 0.3}
model: {layers: [embedding: {embedding_dim: 8, num_embeddings: 10}, linear: {out_features: 40}]}
train: {batch_size: 2, until: {steps: 2}}
)");
  const Process::Result result = Start({"tools/rubato", "train", "job.yaml", "--dry-run"}).Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(
      result.err,
      HasSubstr("model.layers[0] (embedding): num_embeddings: found 10, expected at least"));
}

TEST_F(SurroundingsTest, SimulatedWorkersThatHaveNoPlaceInMemoryAreRefused) {
  const Process::Result result = Shell(
      "ulimit -v 4000000; exec $rubato simulate job.yaml --workers 20000 --run-dir run "
      "--set train.batch_size=20000 --set train.micro_batches=20000");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(StartsWith("error: found 20000 workers, whose parameters and "
                                           "gradients take some "),
                                HasSubstr("--sizes-only computes nothing")));
  EXPECT_FALSE(fs::exists(Path("run")));
}

TEST_F(SurroundingsTest, SimulatesWhatItTrains) {
  const std::string more = "model={layers: [flatten, linear: {out_features: 12}]}";
  Train("run", {more});
  const Process::Result result =
      Start({"tools/rubato", "simulate", "job.yaml", "--run-dir", "simulated", "--set", more})
          .Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Summary("simulated")["digest"], Summary("run")["digest"]);
}

TEST_F(SurroundingsTest, ARankThatNoWorkerMayHaveIsRefused) {
  const FreePort port;
  const Process::Result result =
      StartWorker({"cluster.address=" + port.address(), "cluster.workers=3"}, {"--rank", "9"})
          .Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "error: --rank: found 9, expected 0 to 2: cluster.workers is at most 3\n");
}

// What it has to say it says to the script.
TEST_F(SurroundingsTest, AScriptsSocketThatIsNoneIsRefused) {
  const Process::Result result = StartWorker({}, {"--script-fd", "99", "--memory-fd", "98"}).Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err,
            "error: --script-fd: found 99, expected the descriptor of a stream socket\n");
}

TEST_F(SurroundingsTest, TheResultIsKeptWhereTheRunFolderIsRemoved) {
  fs::create_directory(Path("elsewhere"));
  fs::create_directory(Path("run"));
  Write("train.sh",
        absl::StrCat("export TMPDIR=$PWD/elsewhere\nexec ", fs::absolute("tools/rubato").string(),
                     " train job.yaml --run-dir run --set '", kForever, "'\n"));
  Process& train = Start({"/bin/sh", "train.sh"});
  ASSERT_TRUE(AwaitText(train.err_path(), "launcher 0 step=", train)) << "it has opened the logs";
  const std::string address = ReadText(Path("run/address")), token = ReadText(Path("run/token"));
  RemoveRun();
  Write("stop.sh",
        absl::StrCat("RUBATO_TOKEN=", token.substr(0, token.find('\n')), " exec ",
                     fs::absolute("tools/rubato").string(), " stop --address ", address));
  EXPECT_EQ(Start({"/bin/sh", "stop.sh"}).Wait().code, 0);
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(Count(result.err, "warning: the run's folder run is gone, with "), 1) << result.err;
  EXPECT_THAT(result.err,
              ContainsRegex("no checkpoint of the end, step [0-9]+: the run's folder run "
                            "is gone\n"));
  EXPECT_THAT(result.err, HasSubstr("parameters and summary are in "));
  EXPECT_THAT(result.err, Not(HasSubstr("state.json")));
  EXPECT_THAT(result.err, Not(HasSubstr("log: run/")));
  EXPECT_FALSE(fs::exists(Path("run")));  // not made again without job, metrics and logs
  EXPECT_FALSE(fs::is_empty(Path("elsewhere")));
}

TEST_F(SurroundingsTest, ARunWhoseFolderIsRemovedCanBeInterrupted) {
  fs::create_directory(Path("run"));
  Process& train = StartTrain("run", {kForever});
  ASSERT_TRUE(AwaitText(train.err_path(), "launcher 0 step=", train)) << "it has opened the logs";
  RemoveRun();
  ASSERT_TRUE(AwaitText(train.err_path(), "warning: the run's folder run is gone, with ", train));
  train.Signal(SIGINT);
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.err, HasSubstr("the run's folder run is gone\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("refuses a caller")));
  EXPECT_THAT(result.err, Not(HasSubstr("files: run")));
}

TEST_F(SurroundingsTest, ARunWhoseFolderIsRemovedGoesOnWithoutTheWorkersThatItLoses) {
  fs::create_directory(Path("run"));
  Process& train = StartTrain("run", {kForever, "cluster.workers=2", "train.micro_batches=1"});
  ASSERT_TRUE(AwaitText(train.err_path(), "launcher 0 step=", train)) << "it has opened the logs";
  RemoveRun();
  ASSERT_TRUE(AwaitText(train.err_path(), "warning: the run's folder run is gone, with ", train));
  for (const RunningChild& child : ChildrenOf(train.pid())) {
    if (absl::StrContains(child.command, "--rank 1")) child.process.Signal(SIGKILL);
  }
  ASSERT_TRUE(AwaitText(train.err_path(), "worker 1 ended: ", train));
  train.Signal(SIGINT);
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.err, HasSubstr("\nworker 1 ended: killed by signal 9 (SIGKILL); not started "
                                    "again, for the run's folder is gone\n"));
}

// As docs/runs.md says what a run writes in weeks.
TEST_F(SurroundingsTest, FilesThatHaveBecomeLargeBeginAnew) {
  constexpr uintmax_t kMostViews = 64 << 20, kMostLog = 16 << 20;
  fs::create_directory(Path("run"));
  Process& train = StartTrain("run", {kForever});
  ASSERT_TRUE(AwaitTraining("run", train));
  fs::resize_file(Path("run/views.jsonl"), kMostViews);
  EXPECT_EQ(Start({"tools/rubato", "switch", "--mode", "async", "run"}).Wait().code, 0);
  ASSERT_TRUE(AwaitText(
      Path("run/views.jsonl"),
      [](const std::string& text) { return text.substr(0, 1) == "{" && Count(text, "\n") > 0; },
      train));
  EXPECT_EQ(fs::file_size(Path("run/views.jsonl.1")), kMostViews);

  const std::string log = Path("run/logs/server-0.log");
  fs::resize_file(log, kMostLog + 1);
  ASSERT_TRUE(AwaitText(
      log + ".1", [](const std::string& text) { return text.size() > kMostLog; }, train));
  EXPECT_LT(fs::file_size(log), kMostLog);
}

TEST_F(SurroundingsTest, AFrozenServerIsNotWaitedForLongerThanTheLease) {
  fs::create_directory(Path("run"));
  Process& train = StartTrain("run", {kForever, "cluster.lease=1s"});
  ASSERT_TRUE(AwaitText(Path("run/metrics.jsonl"), "\n", train));
  for (const RunningChild& child : ChildrenOf(train.pid())) {
    if (child.command.find("rubato-server") != std::string::npos) child.process.Signal(SIGSTOP);
  }
  train.Signal(SIGTERM);
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 143);
  EXPECT_THAT(result.err, HasSubstr("server 0 has not answered within 1s: no last checkpoint\n"));
}

}  // namespace
}  // namespace rubato
