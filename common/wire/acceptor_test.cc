#include "common/wire/acceptor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_matchers.h"
#include "common/wire/connections.h"
#include "common/wire/http2_opening.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(60);

// What an acceptor has taken and said.
class AcceptorTest : public testing::Test {
 protected:
  ~AcceptorTest() override {
    acceptor_ = nullptr;
    for (const int fd : taken_) close(fd);
    for (const int fd : opened_) close(fd);
    for (const int fd : connected_) close(fd);
  }

  void Start(const std::string& host, const std::string& first_settings = "") {
    absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Listen({{host, 0}});
    RUBATO_ASSERT_OK(acceptor);
    acceptor_ = *std::move(acceptor);
    acceptor_->Start(
        [this](int fd) {
          absl::MutexLock lock(&mutex_);
          taken_.push_back(fd);
        },
        [this](const std::string& text) {
          absl::MutexLock lock(&mutex_);
          warnings_.push_back(text);
        },
        first_settings.empty() ? nullptr : connections_, first_settings);
  }

  // To loopback; made by the kernel, whoever accepts.
  int Connect() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer.sin_port = htons(static_cast<uint16_t>(acceptor_->places()[0].port));
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof peer), 0);
    connected_.push_back(fd);
    return fd;
  }

  bool AwaitTaken(size_t count) {
    const auto done = [&] { return taken_.size() >= count; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&done), kPatience);
  }
  bool AwaitWarning() {
    const auto done = [&] { return !warnings_.empty(); };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&done), kPatience);
  }
  static bool IsClosed(int fd) {
    pollfd wait = {fd, POLLIN, 0};
    char byte;
    return poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1 &&
           recv(fd, &byte, 1, 0) <= 0;
  }

  // They have descriptors of their own of what opens.
  const std::shared_ptr<Connections> connections_ =
      std::make_shared<Connections>(Connections::Limits{100, 1 << 20, 1 << 20});
  std::unique_ptr<Acceptor> acceptor_;
  absl::Mutex mutex_;
  std::vector<int> taken_;
  std::vector<std::string> warnings_;
  std::vector<int> connected_, opened_;
};

// A limit on this process's descriptors, for a while.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &before_);
    Set(limit);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  void Set(rlim_t limit) {
    const rlimit now = {limit, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
  }

 private:
  rlimit before_;
};

TEST_F(AcceptorTest, TakesConnectionsAtTheAddressesOfAName) {
  Start("localhost");
  EXPECT_GT(acceptor_->places()[0].port, 0);
  Connect();
  Connect();
  EXPECT_TRUE(AwaitTaken(2));
  EXPECT_THAT(warnings_, IsEmpty());
}

// From now on the kernel has no IPv6 for this thread.
void TakeIpv6Away() {
  constexpr uint32_t kFamily = offsetof(seccomp_data, args);  // its lower half
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFamily),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
  ASSERT_LT(socket(AF_INET6, SOCK_STREAM, 0), 0);
}

TEST_F(AcceptorTest, WhereThereIsNoIpv6AllAddressesAreThoseOfIpv4) {
  std::thread without([this] {
    TakeIpv6Away();
    Start("::");
  });
  without.join();
  ASSERT_NE(acceptor_, nullptr);
  EXPECT_EQ(acceptor_->places()[0].host, "0.0.0.0");
  Connect();
  EXPECT_TRUE(AwaitTaken(1));
}

TEST_F(AcceptorTest, SaysWhyNobodyCanListen) {
  Start("127.0.0.2");
  EXPECT_THAT(Acceptor::Listen(acceptor_->places()).status(),
              IsError(absl::StatusCode::kUnavailable,
                      HasSubstr("in use (by another job? cluster.address, or --listen of a server, "
                                "sets another; port 0 takes any free one: --set "
                                "cluster.address=127.0.0.2:0)")));
  EXPECT_THAT(Acceptor::Listen({{"192.0.2.1", 0}}).status(),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("not of this machine")));
  EXPECT_THAT(Acceptor::Listen({{"nowhere.invalid", 0}}).status(),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("nowhere.invalid is not known")));
}

TEST_F(AcceptorTest, LeavesAQuarterOfTheDescriptorsToOthers) {
  Start("127.0.0.1");
  const int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
  opened_.push_back(first);
  {
    DescriptorLimit limit(static_cast<rlim_t>(first) + 120);
    const int most = (first + 120) - (first + 120) / 4;
    while (opened_.back() < most) opened_.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(IsClosed(Connect()));
    EXPECT_TRUE(IsClosed(Connect()));
    ASSERT_TRUE(AwaitWarning());
    absl::MutexLock lock(&mutex_);
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_THAT(warnings_[0], HasSubstr("refuses connections"));
    EXPECT_THAT(taken_, IsEmpty());
  }
  Connect();
  EXPECT_TRUE(AwaitTaken(1));
}

// The kernel holds the connection until there is a descriptor for it.
TEST_F(AcceptorTest, GoesOnWhenThereAreDescriptorsAgain) {
  Start("127.0.0.1");
  const int client = Connect();
  ASSERT_TRUE(AwaitTaken(1));
  const int next = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  {
    DescriptorLimit limit(static_cast<rlim_t>(next) + 1);  // all that there are
    sockaddr_in peer = {};
    socklen_t size = sizeof peer;
    ASSERT_EQ(getpeername(client, reinterpret_cast<sockaddr*>(&peer), &size), 0);
    ASSERT_EQ(connect(next, reinterpret_cast<sockaddr*>(&peer), size), 0);
    connected_.push_back(next);
    ASSERT_TRUE(AwaitWarning());
    absl::MutexLock lock(&mutex_);
    EXPECT_THAT(warnings_[0], HasSubstr("cannot take connections: Too many open files"));
    EXPECT_EQ(taken_.size(), 1u);
  }
  EXPECT_TRUE(AwaitTaken(2));
}

void Send(int fd, const std::string& bytes) {
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// `size` bytes, or fewer if no more come; waits until poll tells of the first.
std::string Receive(int fd, size_t size) {
  std::string bytes(size, 0);
  pollfd readable = {fd, POLLIN, 0};
  poll(&readable, 1, 10000);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(recv(fd, &bytes[0], size, MSG_WAITALL), 0)));
  return bytes;
}

const char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// SETTINGS without and with ACK; WINDOW_UPDATE by 1.
const std::string kSettings("\0\0\0\4\0\0\0\0\0", 9), kAck("\0\0\0\4\1\0\0\0\0", 9),
    kWindow("\0\0\4\10\0\0\0\0\0\0\0\0\1", 13);

// Nothing of what came with the acknowledgement is taken from who gets the connection.
TEST_F(AcceptorTest, HandsOnWhoHasAcknowledgedTheSettings) {
  Start("127.0.0.1", FirstSettings(4));
  const int silent = Connect(), early = Connect(), later = Connect();
  EXPECT_EQ(Receive(early, 15), std::string("\0\0\6\4\0\0\0\0\0\0\3\0\0\0\4", 15));
  Send(later, kPreface + kSettings);
  Send(early, kPreface + kSettings + kWindow + kAck + "and a call");
  ASSERT_TRUE(AwaitTaken(1));
  for (const char byte : kWindow + kAck) Send(later, std::string(1, byte));
  ASSERT_TRUE(AwaitTaken(2));
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(Receive(taken_[0], 65), kPreface + kSettings + kWindow + kAck + "and a call");
  // As before for who reads: told of a single byte.
  EXPECT_EQ(Receive(taken_[1], 55), kPreface + kSettings + kWindow + kAck);
  Send(later, "x");
  EXPECT_EQ(Receive(taken_[1], 1), "x");
  pollfd nothing = {silent, POLLRDHUP, 0};
  EXPECT_EQ(poll(&nothing, 1, 0), 0);
}

TEST_F(AcceptorTest, ClosesWhoGoesOnWithoutAcknowledgingOrEnds) {
  Start("127.0.0.1", FirstSettings(4));
  const int floods = Connect(), ends = Connect(), half = Connect();
  std::string calls = kPreface + kSettings;
  while (calls.size() < kMaxOpeningBytes) calls += std::string("\0\0\0\1\4\0\0\0\1", 9);
  Send(floods, calls);
  Send(ends, kPreface + kSettings);
  for (const int fd : {ends, half}) EXPECT_EQ(shutdown(fd, SHUT_WR), 0);
  for (const int fd : {floods, ends, half}) {
    Receive(fd, 15);
    EXPECT_TRUE(IsClosed(fd));
  }
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(taken_, IsEmpty());
}

// The next term's server, which listens at the same place, does not know of it.
TEST_F(AcceptorTest, WhoOpensStillIsClosedWhenItStops) {
  Start("127.0.0.1", FirstSettings(4));
  const int fd = Connect();
  Receive(fd, 15);
  acceptor_->Stop();
  EXPECT_TRUE(IsClosed(fd));
}

// gRPC tells it that it speaks no HTTP/2.
TEST_F(AcceptorTest, HandsOnWhoSpeaksSomethingElse) {
  Start("127.0.0.1", FirstSettings(4));
  Send(Connect(), "GET / HTTP/1.1\r\n");
  EXPECT_TRUE(AwaitTaken(1));
}

}  // namespace
}  // namespace rubato
