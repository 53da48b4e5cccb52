// A job across two machines: shard 0 on the one, a worker and whoever asks or changes the job on
// the other.
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/machines.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

namespace fs = std::filesystem;

class OtherMachineTest : public MachinesTest {
 protected:
  Process::Result Rubato(const Process& machine, const Arguments& arguments) {
    Arguments all = {"/usr/bin/env",    "-u",
                     "RUBATO_KEY",      "-C",
                     Path("elsewhere"), fs::absolute("tools/rubato").string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return RunOn(machine, all);
  }
};

TEST_F(OtherMachineTest, StatusAndSwitchReachAJobByItsAddress) {
  if (!MakeMachines()) GTEST_SKIP() << "no network namespaces, or no unshare, nsenter or ip";
  Connect(7);
  fs::create_directory(Path("run"));
  fs::create_directory(Path("elsewhere"));
  const Arguments set = {"--set", kForever, "--set", "metrics.every={steps: 10}"};
  Arguments server = {fs::absolute("server/rubato-server").string(),
                      "--config",
                      "job.yaml",
                      "--shard",
                      "0",
                      "--run-dir",
                      "run",
                      "--set",
                      "cluster.address=10.77.0.1:0"};
  server.insert(server.end(), set.begin(), set.end());
  Process& shard_0 = StartOn(here(), server);
  const std::string address = AwaitAddress("run", shard_0);
  ASSERT_THAT(address, StartsWith("10.77.0.1:"));
  Arguments worker = {fs::absolute("worker/rubato-worker").string(), "--config", "job.yaml",
                      "--set", "cluster.address=" + address};
  worker.insert(worker.end(), set.begin(), set.end());
  StartOn(there(), worker);
  ASSERT_TRUE(AwaitTraining("run", shard_0));

  // The keys are in the run's folder, which is on the other machine.
  const Arguments status = {"status", "--address", address, "--json"};
  const Arguments change = {"switch", "--mode", "async", "--address", address, "--json"};
  Process::Result result;
  for (const Arguments& arguments : {status, change}) {
    result = Rubato(there(), arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err,
                HasSubstr(" asks for a key, and this process has none: give it the run's token"));
  }
  const std::string token = ReadText(Path("run/token"));
  const auto with_token = [&](const Arguments& arguments) {
    Arguments all = {"/usr/bin/env", "RUBATO_TOKEN=" + token.substr(0, token.find('\n')),
                     fs::absolute("tools/rubato").string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return RunOn(there(), all);
  };
  result = with_token(status);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(ParseJson(result.out)["state"], "training") << result.out;
  result = with_token(change);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "{\"answer\":\"switching from sync to async after the step at hand\"}\n");
  EXPECT_TRUE(AwaitText(Path("run/views.jsonl"), "\"mode\":\"async\"", shard_0));

  const std::string silence = absl::StrCat("error: the coordinator at ", address,
                                           " has not answered within 900ms: it is frozen, or "
                                           "cannot be reached from here\n");
  shard_0.Signal(SIGSTOP);
  result = Rubato(there(), {"status", "--address", address});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, silence);
  shard_0.Signal(SIGCONT);
  EXPECT_EQ(with_token({"status", "--address", address}).code, 0);
  // The cable is pulled out at the far end.
  Configure(here(), {"ip", "address", "del", "10.77.0.1/24", "dev", "cable7"});
  Configure(there(), {"ip", "neighbour", "flush", "dev", "cable7"});
  result = Rubato(there(), {"status", "--address", address});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, silence);
}

// One beside the coordinator needs no word of where to listen, and one elsewhere is told to give
// it.
TEST_F(OtherMachineTest, AllReachServersOfBothMachines) {
  if (!MakeMachines()) GTEST_SKIP() << "no network namespaces, or no unshare, nsenter or ip";
  Connect(7);
  fs::create_directory(Path("run"));
  const auto server = [](const Arguments& more, const std::string& address) {
    Arguments all = {fs::absolute("server/rubato-server").string(),
                     "--config",
                     "job.yaml",
                     "--set",
                     "cluster.servers=3",
                     "--set",
                     "cluster.workers=2",
                     "--set",
                     "cluster.address=" + address};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  Process& shard_0 = StartOn(here(), server({"--shard", "0", "--run-dir", "run"}, "10.77.0.1:0"));
  const std::string address = AwaitAddress("run", shard_0);
  const Process::Result refused = RunOn(there(), server({"--shard", "2"}, address));
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err, absl::StrCat("error: --listen: found nothing, expected the HOST:PORT by "
                                      "which others reach shard 2: cluster.address, ",
                                      address, ", is of another machine\n"));
  std::vector<Process*> processes = {&shard_0};
  processes.push_back(&StartOn(here(), server({"--shard", "1"}, address)));
  processes.push_back(
      &StartOn(there(), server({"--shard", "2", "--listen", "10.77.0.2:0"}, address)));
  for (const Process* machine : {&here(), &there()}) {
    processes.push_back(
        &StartOn(*machine, {fs::absolute("worker/rubato-worker").string(), "--config", "job.yaml",
                            "--set", "cluster.servers=3", "--set", "cluster.workers=2", "--set",
                            "cluster.address=" + address}));
  }
  for (Process* process : processes) {
    const Process::Result result = process->Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("joins anew")));
  }
  Train("alone");
  EXPECT_EQ(Summary("run")["digest"], Summary("alone")["digest"]);
}

// Workers of others may join it.
TEST_F(OtherMachineTest, ServersOfOneCommandListenWhereTheirCoordinatorDoes) {
  if (!MakeMachines()) GTEST_SKIP() << "no network namespaces, or no unshare, nsenter or ip";
  Connect(7);
  const Process::Result result =
      RunOn(here(), {fs::absolute("tools/rubato").string(), "train", "job.yaml", "--run-dir", "run",
                     "--set", "cluster.servers=2", "--set", "cluster.address=10.77.0.1:0"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(ReadText(Path("run/logs/server-1.log")), HasSubstr("listening address=10.77.0.1:"));
}

// Two cables, each of which drops packets when it is full. The one in use is pulled out: the worker
// goes on by the other, and nothing is lost or counted twice.
TEST_F(OtherMachineTest, AWorkerGoesOnByAnotherAddressOfTheServer) {
  if (!MakeMachines()) GTEST_SKIP() << "no network namespaces, or no unshare, nsenter or ip";
  Connect(7);
  Connect(8);
  bool drops = true;
  for (const Process* machine : {&here(), &there()}) {
    for (const char* cable : {"cable7", "cable8"}) {
      const Process::Result result =
          RunOn(*machine, {"/usr/bin/env", "tc", "qdisc", "add", "dev", cable, "root", "tbf",
                           "rate", "400mbit", "burst", "20kb", "limit", "40kb"});
      drops = drops && result.code == 0;  // not every kernel has it
    }
  }
  fs::create_directory(Path("run"));
  const Arguments set = {"--set", "cluster.lease=1s",          "--set", "train.until={steps: 300}",
                         "--set", "metrics.every={steps: 10}", "--set", "wire.shared_memory=off"};
  Arguments server = {fs::absolute("server/rubato-server").string(),
                      "--config",
                      "job.yaml",
                      "--shard",
                      "0",
                      "--run-dir",
                      "run",
                      "--set",
                      absl::StrCat("cluster.address=", Here(7), ":0,", Here(8), ":0")};
  server.insert(server.end(), set.begin(), set.end());
  Process& shard_0 = StartOn(here(), server);
  const std::string address = AwaitAddress("run", shard_0);
  ASSERT_THAT(address, MatchesRegex("10.77.0.1:[0-9]+,10.78.0.1:[0-9]+"));
  Arguments arguments = {"/usr/bin/env",
                         "RUBATO_TEST_COMPUTE_MS=10",
                         fs::absolute("worker/rubato-worker").string(),
                         "--config",
                         "job.yaml",
                         "--set",
                         "cluster.address=" + address};
  arguments.insert(arguments.end(), set.begin(), set.end());
  Process& worker = StartOn(there(), arguments);
  ASSERT_TRUE(AwaitTraining("run", shard_0));
  Configure(there(), {"ip", "link", "set", "cable7", "down"});
  EXPECT_EQ(worker.Wait().code, 0) << ReadText(worker.err_path());
  EXPECT_EQ(shard_0.Wait().code, 0) << ReadText(shard_0.err_path());

  Train("alone", {"cluster.lease=1s", "train.until={steps: 300}", "metrics.every={steps: 10}"});
  EXPECT_EQ(Summary("run")["digest"], Summary("alone")["digest"]);
  EXPECT_EQ(Summary("run")["workers_lost"], 1);
  if (!drops) GTEST_SKIP() << "the kernel has no token bucket filter: no packet was dropped";
  const std::string queue = Configure(there(), {"tc", "-s", "qdisc", "show", "dev", "cable8"});
  EXPECT_THAT(queue, AllOf(HasSubstr("dropped "), Not(HasSubstr("dropped 0,"))));
}

}  // namespace
}  // namespace rubato
