// Workers and servers that share memory train as those that do not, and leave nothing of it behind.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"
#include "tests/membership.h"
#include "tests/process.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

constexpr char kShares[] = "shares memory with a server";

// The files of shared memory that a process has open, by what they begin with; they have no names.
int OpenFiles(pid_t pid, const std::string& kind) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), ignored)) {
    count += absl::StartsWith(fs::read_symlink(entry, ignored).string(), "/memfd:" + kind);
  }
  return count;
}

// A server's segments; and it has an arena of its own and one for each of its workers.
int OpenSegments(pid_t pid) {
  const int segments = OpenFiles(pid, "rubato"), arenas = OpenFiles(pid, "lent-rubato");
  return arenas == segments + 1 ? segments : -1;
}

// Whether a process has so many open before long: a death is noticed, not awaited.
bool AwaitSegments(pid_t pid, int count) {
  const absl::Time deadline = absl::Now() + kTestPatience;
  while (OpenSegments(pid) != count && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  return OpenSegments(pid) == count;
}

TEST_F(ClusterTest, SharedMemoryAndTcpGiveTheSameBits) {
  const Arguments cluster = {"cluster.workers=2", "cluster.servers=2"};
  Arguments tcp = cluster;
  tcp.push_back("wire.shared_memory=off");
  Train("shared", cluster);
  Train("tcp", tcp);
  EXPECT_EQ(Summary("shared")["digest"], Summary("tcp")["digest"]);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string log = absl::StrCat("/logs/worker-", rank, ".log");
    EXPECT_THAT(ReadText(Path("shared" + log)), HasSubstr(absl::StrCat(kShares, " shard=1")));
    EXPECT_THAT(ReadText(Path("tcp" + log)), Not(HasSubstr("memory")));
  }
}

TEST_F(ClusterTest, AServerThatSharesNoneIsUsedByTcp) {
  Train("train", {"cluster.workers=1", "cluster.servers=1"});
  fs::create_directory(Path("run"));
  Process& server = StartServer(0, {"cluster.address=127.0.0.1:0", "wire.shared_memory=off"},
                                {"--run-dir", "run"});
  Process& worker = StartWorker({"cluster.address=" + AwaitAddress("run", server)});
  EXPECT_EQ(worker.Wait().code, 0);
  EXPECT_EQ(server.Wait().code, 0);
  EXPECT_THAT(worker.err(), HasSubstr("warning: uses TCP on one host: no memory can be shared with "
                                      "the server shard=0 reason=\"wire.shared_memory is off at "
                                      "the server\""));
  EXPECT_EQ(Summary("run")["digest"], Summary("train")["digest"]);
}

using SharedMemoryTest = MembershipJob;

// A service of gRPC's callbacks would have threads that read every other connection of its server,
// that of a data stream too, and wake the engine for each message.
TEST_F(SharedMemoryTest, ByTcpAServersConnectionsAreReadByItsEngineAlone) {
  Begin({"wire.shared_memory=off"}, 1);
  ASSERT_TRUE(AwaitSteps(5));
  const auto threads = ThreadsOf(shard_0().pid());
  EXPECT_THAT(threads, Contains(Key("engine")));
  EXPECT_THAT(threads, Contains(Key("coordinator")));
  EXPECT_THAT(threads, Not(Contains(Key("nexting_thread"))));
  Stop();
}

// Whichever dies, and whenever: its segments go with it, and the others' ends of them.
TEST_F(SharedMemoryTest, NothingIsLeftOfWorkersThatAreKilled) {
  Begin({}, 2);
  const pid_t server = shard_0().pid();
  ASSERT_TRUE(AwaitSteps(5));
  EXPECT_TRUE(AwaitSegments(server, 2));
  for (int i = 0; i < 3; ++i) {
    worker(static_cast<int>(workers().size()) - 1).Signal(SIGKILL);
    ASSERT_TRUE(AwaitMembers(1));
    ASSERT_TRUE(AwaitSteps(5));
    EXPECT_TRUE(AwaitSegments(server, 1));
    AddWorker();
    ASSERT_TRUE(AwaitMembers(2));
    ASSERT_TRUE(AwaitSteps(5));
  }
  EXPECT_TRUE(AwaitSegments(server, 2));
  Stop();
  ExpectBitsOfTheUndisturbed();
}

}  // namespace
}  // namespace rubato
