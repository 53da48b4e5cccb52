// What cannot work is refused: one clear sentence, the right exit code, nothing lost. And a job
// goes on whatever a process that does not belong to it tries.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class RefusalTest : public ClusterTest {
 protected:
  // Paths and contents of all that is in a folder.
  std::map<std::string, std::string> Contents(const std::string& name) const {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::recursive_directory_iterator(Path(name))) {
      contents[entry.path()] = entry.is_regular_file() ? ReadText(entry.path()) : "";
    }
    return contents;
  }

  // Starts shard 0 of the job with `set`, and adds its address to them.
  Process& StartShard0(std::vector<std::string>* set) {
    fs::create_directory(Path("run"));
    Process& shard_0 = StartServer(0, *set, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
    set->push_back("cluster.address=" + AwaitAddress("run", shard_0));
    return shard_0;
  }

  // That the processes end well with the bits of an undisturbed run of job.yaml.
  void ExpectGoodEnd(const std::vector<Process*>& processes) {
    for (Process* process : processes) {
      const Process::Result result = process->Wait();
      EXPECT_EQ(result.code, 0) << result.err;
    }
    Train("undisturbed");
    EXPECT_EQ(Summary("run")["digest"], Summary("undisturbed")["digest"]);
  }
};

TEST_F(RefusalTest, AnotherJobIsRefusedAndTheJobGoesOn) {
  std::vector<std::string> set = {"cluster.servers=2"};
  Process& shard_0 = StartShard0(&set);
  std::vector<std::string> other = set;
  other.push_back("optimizer.learning_rate=0.5");
  for (Process* stranger : {&StartWorker(other), &StartServer(1, other)}) {
    const Process::Result result = stranger->Wait();
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, ContainsRegex("error: this process has another job than the "
                                          "coordinator: the digest of its job is [0-9a-f]{12}, the "
                                          "coordinator's [0-9a-f]{12}; compare .*\n$"));
  }
  ExpectGoodEnd({&StartServer(1, set), &StartWorker(set), &shard_0});
  EXPECT_THAT(shard_0.err(), HasSubstr("refused "));
}

TEST_F(RefusalTest, AShardIsServedOnce) {
  std::vector<std::string> set = {"cluster.servers=2"};
  Process& shard_0 = StartShard0(&set);
  Process &first = StartServer(1, set), &second = StartServer(1, set);
  const bool first_is_refused = AwaitFirstEnd({&first, &second}) == &first;
  Process& refused = first_is_refused ? first : second;
  Process& serving = first_is_refused ? second : first;
  EXPECT_EQ(refused.Wait().code, 2);
  EXPECT_THAT(refused.err(), AllOf(HasSubstr("error: shard 1 is already served by "),
                                   EndsWith(absl::StrCat(" pid ", serving.pid(), "\n"))));
  ExpectGoodEnd({&StartWorker(set), &serving, &shard_0});
}

TEST_F(RefusalTest, OneWorkerTooManyIsRefusedAndTheJobGoesOn) {
  std::vector<std::string> set = {"cluster.servers=2"};
  Process& shard_0 = StartShard0(&set);
  Process &first = StartWorker(set), &second = StartWorker(set);
  const bool first_is_refused = AwaitFirstEnd({&first, &second}) == &first;
  Process& refused = first_is_refused ? first : second;
  EXPECT_EQ(refused.Wait().code, 1);
  EXPECT_THAT(refused.err(),
              EndsWith("error: no more workers are wanted: cluster.workers is at most 1\n"));
  ExpectGoodEnd({&StartServer(1, set), first_is_refused ? &second : &first, &shard_0});
}

TEST_F(RefusalTest, ShardNumbersOutOfRange) {
  for (const std::string shard : {"2", "-1"}) {
    const Process::Result result = Start({"server/rubato-server", "--config", "job.yaml",
                                          "--shard=" + shard, "--set", "cluster.servers=2"})
                                       .Wait();
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.err, absl::StrCat("error: --shard: found ", shard,
                                       ", expected 0 to 1: cluster.servers is 2\n"));
  }
  EXPECT_FALSE(fs::exists(Path("runs")));
}

TEST_F(RefusalTest, APortInUse) {
  const FreePort port;
  const int listener = port.Listen();
  const std::string set = "cluster.address=" + port.address();
  const Process::Result by_hand = StartServer(0, {set}).Wait();
  EXPECT_EQ(by_hand.code, 1);
  EXPECT_THAT(by_hand.err, AllOf(StartsWith("error: cannot listen at " + port.address() + ":"),
                                 HasSubstr("in use")));
  const Process::Result launched = StartTrain("run", {set}).Wait();
  EXPECT_EQ(launched.code, 1);
  EXPECT_THAT(launched.err, HasSubstr("error: server 0: cannot listen at " + port.address()));
  close(listener);
}

TEST_F(RefusalTest, AServerThatCannotBeReached) {
  const FreePort port;
  const FreePort mute_port;
  const int mute = mute_port.Listen();  // takes connections and says nothing
  const std::pair<std::string, std::string> cases[] = {
      {port.address(), "nobody listens there"},
      {mute_port.address(),
       "the process there says nothing: it is frozen, very busy, or none of Rubato's"}};
  for (const auto& [address, why] : cases) {
    const std::vector<std::string> set = {"cluster.servers=2", "cluster.start_timeout=1s",
                                          "cluster.address=" + address};
    const std::string message = absl::StrCat("error: no answer from the coordinator (shard 0) at ",
                                             address, " within 1s: ", why, "\n");
    Process &worker = StartWorker(set), &shard_1 = StartServer(1, set);
    EXPECT_EQ(worker.Wait().code, 1);
    EXPECT_THAT(worker.err(), EndsWith(message));
    EXPECT_EQ(shard_1.Wait().code, 1);
    EXPECT_THAT(shard_1.err(), EndsWith(message));
  }
  close(mute);
}

TEST_F(RefusalTest, AShardThatWorkersCannotReach) {
  const FreePort nobody;
  std::vector<std::string> set = {"cluster.servers=2", "cluster.lease=1s"};
  Process& shard_0 = StartShard0(&set);
  Process& shard_1 = StartServer(1, set, {"--advertise", nobody.address()});
  Process& worker = StartWorker(set);
  // It has tried again for a while: a cut may heal. The job waits for one that can reach it.
  const Process::Result result = worker.Wait();
  EXPECT_EQ(result.code, 1);
  const std::string why = absl::StrCat("shard 1 says that it is reached at ", nobody.address(),
                                       ", and from here it is not: ");
  EXPECT_THAT(result.err, HasSubstr(why));
  AwaitText(shard_0.err_path(), "failed: " + why, shard_0);
  // Ever more seldom: each attempt costs the others two views. At a constant pace there were 145.
  const std::vector<absl::string_view> said = absl::StrSplit(result.err, "joins anew");
  EXPECT_LE(said.size(), 20);
  AwaitText(shard_0.err_path(), "paused at step 0", shard_0);
  shard_1.Signal(SIGTERM);
  shard_0.Wait();
}

TEST_F(RefusalTest, ThoseWhoDoNotComeAreNamed) {
  std::vector<std::string> set = {"cluster.servers=3", "cluster.workers=2",
                                  "cluster.start_timeout=1s"};
  fs::create_directory(Path("run"));
  Process& shard_0 = StartServer(0, set, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
  // It waits longer than shard 0, and so hears why that one has given up.
  Process& shard_1 = StartServer(1, {"cluster.servers=3", "cluster.workers=2",
                                     "cluster.address=" + AwaitAddress("run", shard_0)});
  EXPECT_EQ(shard_0.Wait().code, 1);
  EXPECT_THAT(shard_0.err(), ContainsRegex("error: waited 1s \\(cluster.start_timeout\\) at "
                                           "127.0.0.1:[0-9]+: .*shard 2 and 2 of 2 workers did "
                                           "not come\n$"));
  EXPECT_EQ(shard_1.Wait().code, 1);
}

TEST_F(RefusalTest, AnExistingRunIsNeverOverwritten) {
  Train("run");
  const auto before = Contents("run");
  const Process::Result launched = StartTrain("run").Wait();
  EXPECT_EQ(launched.code, 2);
  EXPECT_EQ(launched.err,
            "error: run folder run is not empty; an existing run is never overwritten\n");
  EXPECT_TRUE(Contents("run") == before);
}

TEST_F(RefusalTest, AnExistingRunIsNotOverwrittenByHandEither) {
  Train("run");
  const auto before = Contents("run");
  Process& server = StartServer(0, {}, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
  // If it does not refuse at once, it must not wait for a worker.
  const bool refused = AwaitText(server.err_path(), "\n", server) &&
                       server.err().find("listening") == std::string::npos;
  EXPECT_TRUE(refused) << server.err();
  if (!refused) server.Signal(SIGKILL);
  EXPECT_EQ(server.Wait().code, 2);
  EXPECT_TRUE(Contents("run") == before);
}

TEST_F(RefusalTest, ARunFolderThatCannotBeMade) {
  Write("file", "");
  for (const std::string run_dir : {"file", "file/run", "/proc/run"}) {
    const Process::Result result = StartTrain(run_dir).Wait();
    EXPECT_THAT(result.code, testing::AnyOf(1, 2));
    EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr(run_dir)));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

// A limit of the size of files stands for a full disk: both let a write fail.
TEST_F(RefusalTest, ParametersThatCannotBeWritten) {
  const std::string rubato = fs::absolute("tools/rubato");
  Write("limited.sh", "#!/bin/sh\ntrap '' XFSZ\nulimit -f 100\nexec " + rubato +
                          " train job.yaml --run-dir run\n");
  fs::permissions(Path("limited.sh"), fs::perms::owner_all);
  Process& train = Start({Path("limited.sh")});
  // They are kept, and tried to be written again, until the run is told to end.
  EXPECT_TRUE(AwaitText(train.err_path(), "servers keep the parameters", train));
  train.Signal(SIGTERM);
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 143);
  EXPECT_THAT(result.err,
              ContainsRegex("warning: server 0: .*run/parameters.safetensors: File too large; .*: "
                            "File too large; the servers keep the parameters"));
  EXPECT_FALSE(fs::exists(Path("run/parameters.safetensors")));
  EXPECT_FALSE(fs::exists(Path("run/summary.json")));
}

TEST_F(RefusalTest, EveryProgramRefusesBadJobsAlike) {
  struct Case {
    std::string job, message;
  };
  const std::string head = "version: 1\nname: bad\ndata: {format: glyphs}\n";
  const std::string model = "model: {layers: [flatten, linear: {out_features: 10}]}\n";
  const std::string train = "train: {batch_size: 8, until: {steps: 1}}\n";
  const std::vector<Case> cases = {
      {"version: 1\nname: [\n", "bad.yaml:3:"},
      {head + model + train + "optimiser: {name: sgd}\n", "did you mean optimizer?"},
      {head + model + train + "cluster: {workers: 0}\n", "cluster.workers"},
      {head + model + "train: {batch_size: 8, micro_batches: 3, until: {steps: 1}}\n",
       "micro_batches"},
      {head + model + train + "optimizer: {nesterov: true}\n", "nesterov"},
      {head + model + train + "cluster: {address: nowhere}\n", "cluster.address"},
  };
  for (const Case& bad : cases) {
    Write("bad.yaml", bad.job);
    for (const std::vector<std::string>& program :
         {std::vector<std::string>{"tools/rubato", "train", "bad.yaml", "--run-dir", "run"},
          {"server/rubato-server", "--config", "bad.yaml", "--shard", "0"},
          {"worker/rubato-worker", "--config", "bad.yaml"}}) {
      const Process::Result result = Start(program).Wait();
      EXPECT_EQ(result.code, 2) << program[0] << "\n" << bad.job;
      EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr(bad.message))) << program[0];
      EXPECT_THAT(result.out, IsEmpty());
    }
  }
  EXPECT_FALSE(fs::exists(Path("run")));
  EXPECT_FALSE(fs::exists(Path("runs")));
}

TEST_F(RefusalTest, AModelThatDoesNotFitTheData) {
  const std::string model = "model={layers: [flatten, linear: {out_features: 5}]}";
  const FreePort port;
  for (Process* process :
       {&StartTrain("run", {model}), &StartWorker({model, "cluster.address=" + port.address()})}) {
    const Process::Result result = process->Wait();
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr("5"), HasSubstr("10")));
  }
  EXPECT_FALSE(fs::exists(Path("run")));
}

}  // namespace
}  // namespace rubato
