// A server of a real job has too few descriptors for all who connect: the job goes on, and its
// result is written.
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

constexpr int kLimit = 96;  // descriptors of the server
constexpr char kPatient[] = "cluster.lease=60";
constexpr char kLong[] = "train.until={steps: 3000}";

class DescriptorsTest : public ClusterTest {
 protected:
  ~DescriptorsTest() override {
    for (const int fd : connections_) close(fd);
  }

  // Shard 0, by a shell that sets its limits before: "ulimit -n 96".
  Process& StartLimited(const std::string& limits) {
    fs::create_directory(Path("run"));
    const std::string server = fs::absolute("server/rubato-server");
    return Start(
        {"/bin/bash", "-c",
         absl::StrCat(limits, " && exec ", server, " --config job.yaml --shard 0 --set ", kPatient,
                      " --set '", kLong, "' --run-dir run --listen 127.0.0.1:0")});
  }

  int Connect(const std::string& address) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof peer), 0);
    connections_.push_back(fd);
    return fd;
  }

  // Whatever it may have said before.
  static bool IsClosed(int fd) {
    const int patience = static_cast<int>(absl::ToInt64Milliseconds(kTestPatience));
    pollfd wait = {fd, POLLIN, 0};
    char bytes[1024];
    while (poll(&wait, 1, patience) == 1) {
      if (recv(fd, bytes, sizeof bytes, 0) <= 0) return true;
    }
    return false;
  }

  std::vector<int> connections_;
};

TEST_F(DescriptorsTest, AFloodOfConnectionsCostsNeitherTheJobNorItsResult) {
  Process& shard = StartLimited(absl::StrCat("ulimit -n ", kLimit));
  const std::string address = AwaitAddress("run", shard);
  Process& worker = StartWorker({kPatient, kLong, absl::StrCat("cluster.address=", address)});
  ASSERT_TRUE(AwaitTraining("run", shard));
  worker.Signal(SIGSTOP);
  for (int i = 0; i < 2 * kLimit; ++i) Connect(address);
  EXPECT_TRUE(IsClosed(connections_.front()));  // as too many said nothing
  worker.Signal(SIGCONT);
  const Process::Result trained = worker.Wait(), served = shard.Wait();
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(served.code, 0) << served.err;
  Train("undisturbed", {kLong});
  EXPECT_EQ(Summary("run")["digest"], Summary("undisturbed")["digest"]);
}

TEST_F(DescriptorsTest, AWorkerFindsRoomBesideThoseThatSayNothing) {
  Process& shard = StartLimited(absl::StrCat("ulimit -n ", kLimit));
  const std::string address = AwaitAddress("run", shard);
  for (int i = 0; i < 2 * kLimit; ++i) Connect(address);
  Process& worker = StartWorker({kPatient, kLong, absl::StrCat("cluster.address=", address)});
  const Process::Result trained = worker.Wait(), served = shard.Wait();
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(served.code, 0) << served.err;
}

TEST_F(DescriptorsTest, AServerTakesAllThatTheSystemAllowsIt) {
  Process& shard = StartLimited("ulimit -Sn 64 && ulimit -Hn 512");
  AwaitAddress("run", shard);
  rlimit limit = {};
  ASSERT_EQ(prlimit(shard.pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, 512u);
}

}  // namespace
}  // namespace rubato
