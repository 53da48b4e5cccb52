#include "common/wire/control_client.h"

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/base/check.h"
#include "common/base/status_matchers.h"
#include "common/wire/listener.h"
#include "common/wire/reach.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// A name whose address changes: of a table of hosts that this process alone has, and asks alone.
class ControlClientTest : public testing::Test {
 protected:
  // Before there are threads.
  static void SetUpTestSuite() {
    const std::string user = absl::StrCat(getuid()), group = absl::StrCat(getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    SetHosts("127.0.0.2 coordinator.test");
    const std::string names = testing::TempDir() + "/nsswitch.conf";
    std::ofstream(names) << "hosts: files\n";
    has_hosts_ = mount(HostsFile().c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0 &&
                 mount(names.c_str(), "/etc/nsswitch.conf", nullptr, MS_BIND, nullptr) == 0;
  }

  void SetUp() override {
    if (!has_hosts_) GTEST_SKIP() << "no user namespaces";
  }

  static std::string HostsFile() { return testing::TempDir() + "/hosts"; }
  static void SetHosts(const std::string& hosts) { std::ofstream(HostsFile()) << hosts << "\n"; }

  static inline bool has_hosts_ = false;
};

// Listens at 127.0.0.2, where callers wait for a word.
int ListenMutely(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = inet_addr("127.0.0.2");
  RUBATO_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  RUBATO_CHECK(listen(fd, 8) == 0);
  return fd;
}

// Of gRPC one attempt takes 20 s, in which it does not look the name up again.
TEST_F(ControlClientTest, ANameThatStandsForAnotherAddressIsFollowedAtOnce) {
  const ConnectionOptions connection;
  grpc::CallbackGenericService service;
  const absl::StatusOr<Listener> listener = Listener::Listen(
      "127.0.0.1:0", connection, [](const std::string&) {},
      [&service](auto* builder) { builder->RegisterCallbackGenericService(&service); });
  ASSERT_THAT(listener, IsOk());
  const int port = ParseAddress(listener->address())->port;
  const int mute = ListenMutely(port);
  int caller = -1;  // stays open: gRPC would try again where it is closed
  std::thread mover([&] {
    caller = accept(mute, nullptr, nullptr);
    SetHosts("127.0.0.1 coordinator.test");
  });
  EXPECT_THAT(ControlClient::Connect(
                  absl::StrCat("coordinator.test:", port), absl::Seconds(15), proto::Registration(),
                  [] { return false; }, connection),
              IsOk());
  mover.join();
  close(caller);
  close(mute);
}

TEST_F(ControlClientTest, AHostWhoseNameStandsForNothingIsGone) {
  EXPECT_THAT(LookFor({"nobody.test:1"}, Greeting::kPlain, absl::ZeroDuration()),
              testing::ElementsAre(Reach::kGone));
}

}  // namespace
}  // namespace rubato
