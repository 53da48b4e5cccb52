// Processes started by hand, in any order, give what `rubato train` gives.
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

using ByHandTest = ClusterTest;

TEST_F(ByHandTest, WorkersFirstAndShard0LastGiveTheSameBits) {
  const std::vector<std::string> cluster = {"cluster.workers=2", "cluster.servers=3"};
  Train("train", cluster);

  const FreePort port;
  std::vector<std::string> set = cluster;
  set.push_back("cluster.address=" + port.address());
  // Who has come too early is refused at this door; each is seen to have knocked.
  const int door = port.Listen();
  std::vector<Process*> processes;
  const auto await_knock = [door](Process* process) {
    const int connection = accept(door, nullptr, nullptr);
    EXPECT_GE(connection, 0);
    close(connection);
    return process;
  };
  processes.push_back(await_knock(&StartWorker(set)));
  processes.push_back(await_knock(&StartWorker(set)));
  processes.push_back(await_knock(&StartServer(2, set)));
  processes.push_back(await_knock(&StartServer(1, set)));
  close(door);
  processes.push_back(&StartServer(0, set));

  for (Process* process : processes) {
    const Process::Result result = process->Wait();
    EXPECT_EQ(result.code, 0) << result.err;
  }
  // Shard 0 has made a run's folder of the customary name.
  const std::string run = "runs/" + fs::read_symlink(Path("runs/latest")).string();
  EXPECT_TRUE(absl::StartsWith(run, "runs/small-")) << run;
  EXPECT_EQ(Summary(run)["digest"], Summary("train")["digest"]);
  EXPECT_EQ(InspectDigest(run), InspectDigest("train"));
  EXPECT_EQ(InspectDigest("runs/latest"), InspectDigest("train"));
  // The resolved job is the same but for where shard 0 listens.
  EXPECT_EQ(ReadText(Path(run + "/address")), port.address() + "\n");
  EXPECT_THAT(ReadText(Path(run + "/job.yaml")), HasSubstr("momentum: 0.9"));
  std::vector<nlohmann::json> by_hand = Metrics(run, "train"), train = Metrics("train", "train");
  ASSERT_EQ(by_hand.size(), train.size());
  for (size_t i = 0; i < train.size(); ++i) EXPECT_EQ(by_hand[i]["loss"], train[i]["loss"]) << i;
}

TEST_F(ByHandTest, AFlagSaysTheRankThatAWorkerAsksForOrElseTheEnvironment) {
  for (const int rank : {1, 2}) {
    const FreePort port;
    const std::vector<std::string> set = {"cluster.workers={start: 1, max: 3}",
                                          "train.until={steps: 5}",
                                          "cluster.address=" + port.address()};
    setenv("RANK", "2", 1);
    Process& worker = StartWorker(set, rank == 1 ? Arguments{"--rank", "1"} : Arguments());
    unsetenv("RANK");
    Process& server = StartServer(0, set);
    const Process::Result result = worker.Wait();
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat(" worker ", rank, " takes part")));
    EXPECT_EQ(server.Wait().code, 0);
  }
}

TEST_F(ByHandTest, EveryShardMayListenWhereItIsTold) {
  fs::create_directory(Path("run"));
  const FreePort port_0, port_1;
  const std::vector<std::string> set = {"cluster.servers=2", "cluster.address=" + port_0.address()};
  Process& shard_1 = StartServer(1, set, {"--listen", port_1.address()});
  AwaitText(shard_1.err_path(), "address=" + port_1.address(), shard_1);
  // Shard 0 listens elsewhere than it is told others to look for it: at all addresses.
  const std::string everywhere =
      absl::StrCat("0.0.0.0", port_0.address().substr(port_0.address().find(':')));
  Process& shard_0 = StartServer(
      0, set, {"--listen", everywhere, "--advertise", port_0.address(), "--run-dir", "run"});
  Process& worker = StartWorker(set);
  for (Process* process : {&worker, &shard_0, &shard_1}) {
    const Process::Result result = process->Wait();
    EXPECT_EQ(result.code, 0) << result.err;
  }
  Train("train");
  EXPECT_EQ(Summary("run")["digest"], Summary("train")["digest"]);
}

// The job file of a run is a job file.
TEST_F(ByHandTest, AStopBeforeAllAreThereLeavesASummaryAndNoParameters) {
  fs::create_directory(Path("run"));
  Process& server =
      StartServer(0, {"cluster.workers=2"}, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
  ASSERT_FALSE(AwaitAddress("run", server).empty());
  const Process::Result stop = Start({"tools/rubato", "stop", "run"}).Wait();
  EXPECT_EQ(stop.code, 0) << stop.err;
  const Process::Result result = server.Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Summary("run")["stopped"], "asked to");
  EXPECT_EQ(Summary("run")["samples"], 0);
  EXPECT_TRUE(Summary("run")["test_loss"].is_null());
  EXPECT_FALSE(fs::exists(Path("run/parameters.safetensors")));
  EXPECT_FALSE(fs::exists(Path("run/checkpoints")));
}

// Of which the run would have files of the same names.
TEST_F(ByHandTest, AJobThatDoesNotBeginLeavesWhatWasInItsFolder) {
  fs::create_directories(Path("own/certificates/authority"));
  fs::create_directories(Path("own/record"));
  const std::vector<std::string> files = {"own/certificates/authority/ca.key", "own/record/song",
                                          "own/metrics.jsonl"};
  for (const std::string& file : files) Write(file, "mine");
  const FreePort port;
  const Arguments set = {"cluster.address=" + port.address(), "cluster.start_timeout=0.5"};
  const Process::Result result = StartServer(0, set, {"--run-dir", "own"}).Wait();
  EXPECT_EQ(result.code, 1) << result.err;
  for (const std::string& file : files) EXPECT_EQ(ReadText(Path(file)), "mine") << file;
  EXPECT_FALSE(fs::exists(Path("own/state.json")));
  EXPECT_FALSE(fs::exists(Path("own/job.yaml")));
  // What it would write over it refuses.
  Write("own/worker-key", "mine");
  const Process::Result refused = StartServer(0, set, {"--run-dir", "own"}).Wait();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--run-dir own: the run would write own/worker-key, which "
                                     "exists; expected a new folder"));
  fs::remove(Path("own/worker-key"));
  fs::copy_file(Path("job.yaml"), Path("own/job.yaml"));
  EXPECT_THAT(StartServer(0, {"train.batch_size=8"}, {"--run-dir", "own"}).Wait().err,
              HasSubstr("own/job.yaml is another job than this one with its --set"));
}

TEST_F(ByHandTest, ARunsOwnJobGivesItsBitsAgain) {
  Train("first", {"cluster.workers=2", "consistency.mode=sync"});
  const Process::Result again =
      Start({"tools/rubato", "train", "first/job.yaml", "--run-dir", "again"}).Wait();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(InspectDigest("again"), InspectDigest("first"));
}

}  // namespace
}  // namespace rubato
