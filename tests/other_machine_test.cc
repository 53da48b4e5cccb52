// A job across two machines, which are network namespaces with a cable between them: shard 0 on the
// one, a worker and whoever asks or changes the job on the other. Skipped where the kernel permits
// no namespaces.
#include <signal.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

class OtherMachineTest : public ClusterTest {
 protected:
  // A process that holds a machine; of a user who may set up its network.
  Process* Machine(const Arguments& enter) {
    Arguments arguments = enter;
    arguments.insert(arguments.end(), {"-n", "/bin/sh", "-c", "echo ready; exec sleep 1000"});
    Process& holder = Start(arguments);
    AwaitFirstOf(holder);
    return holder.out() == "ready\n" ? &holder : nullptr;
  }

  Arguments On(const Process& machine, const Arguments& command) const {
    Arguments arguments = {"/usr/bin/nsenter",       "-t", absl::StrCat(machine.pid()), "-U",
                           "--preserve-credentials", "-n"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    return arguments;
  }
  void Configure(const Process& machine, const Arguments& command) {
    const Process::Result result = Start(On(machine, command)).Wait();
    ASSERT_EQ(result.code, 0) << result.err;
  }
  Process::Result Rubato(const Process& machine, const Arguments& arguments) {
    Arguments all = {"/usr/bin/env", "-C", Path("elsewhere"),
                     fs::absolute("tools/rubato").string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Start(On(machine, all)).Wait();
  }

 private:
  // Until it has said something, or has ended.
  void AwaitFirstOf(const Process& process) {
    while (process.out().empty() && !process.handle().AwaitEnd(absl::Milliseconds(5))) {
    }
  }
};

TEST_F(OtherMachineTest, StatusAndSwitchReachAJobByItsAddress) {
  if (!fs::exists("/usr/bin/unshare") || !fs::exists("/usr/bin/nsenter") ||
      (!fs::exists("/usr/sbin/ip") && !fs::exists("/bin/ip"))) {
    GTEST_SKIP() << "unshare, nsenter or ip is not installed";
  }
  const Process* const here = Machine({"/usr/bin/unshare", "-Ur"});
  if (here == nullptr) GTEST_SKIP() << "no network namespace may be made here";
  const Process* const there = Machine(On(*here, {"/usr/bin/unshare"}));
  ASSERT_NE(there, nullptr);
  const std::string ip = fs::exists("/usr/sbin/ip") ? "/usr/sbin/ip" : "/bin/ip";
  Configure(*here, {ip, "link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns",
                    absl::StrCat(there->pid())});
  Configure(*here, {ip, "address", "add", "10.77.0.1/24", "dev", "cable0"});
  Configure(*there, {ip, "address", "add", "10.77.0.2/24", "dev", "cable1"});
  for (const Process* machine : {here, there}) {
    Configure(*machine, {ip, "link", "set", "lo", "up"});
    Configure(*machine, {ip, "link", "set", machine == here ? "cable0" : "cable1", "up"});
  }

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
  Process& shard_0 = Start(On(*here, server));
  const std::string address = AwaitAddress("run", shard_0);
  ASSERT_THAT(address, StartsWith("10.77.0.1:"));
  Arguments worker = {fs::absolute("worker/rubato-worker").string(), "--config", "job.yaml",
                      "--set", "cluster.address=" + address};
  worker.insert(worker.end(), set.begin(), set.end());
  Start(On(*there, worker));
  ASSERT_TRUE(AwaitTraining("run", shard_0));

  Process::Result result = Rubato(*there, {"status", "--address", address, "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out, nullptr, false)["state"], "training") << result.out;

  // The token is in the run's folder, which is on the other machine.
  const Arguments change = {"switch", "--mode", "async", "--address", address, "--json"};
  result = Rubato(*there, change);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("needs the run's token"));
  const std::string token = ReadText(Path("run/token"));
  Arguments with_token = {"/usr/bin/env", "RUBATO_TOKEN=" + token.substr(0, token.find('\n')),
                          fs::absolute("tools/rubato").string()};
  with_token.insert(with_token.end(), change.begin(), change.end());
  result = Start(On(*there, with_token)).Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "{\"answer\":\"switching from sync to async after the step at hand\"}\n");
  EXPECT_TRUE(AwaitText(Path("run/views.jsonl"), "\"mode\":\"async\"", shard_0));

  const std::string silence = absl::StrCat("error: shard 0 at ", address,
                                           " has not answered within 900ms: it is frozen, or "
                                           "cannot be reached from here\n");
  shard_0.Signal(SIGSTOP);
  result = Rubato(*there, {"status", "--address", address});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, silence);
  shard_0.Signal(SIGCONT);
  EXPECT_EQ(Rubato(*there, {"status", "--address", address}).code, 0);
  // The cable is pulled out at the far end.
  Configure(*here, {ip, "address", "del", "10.77.0.1/24", "dev", "cable0"});
  Configure(*there, {ip, "neighbour", "flush", "dev", "cable1"});
  result = Rubato(*there, {"status", "--address", address});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, silence);
}

}  // namespace
}  // namespace rubato
