#include "server/run/collect.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/space/placement.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// Its connections are made, and nobody says a word: as of a shard that is cut off.
class SilentServer {
 public:
  SilentServer() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentServer() { close(socket_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int socket_;
  int port_ = 0;
};

TEST(CollectTest, EndsWhenItIsToldToThoughAConnectionIsStillBeingMade) {
  const SilentServer server;
  proto::Job job;
  job.mutable_cluster()->set_servers(1);
  job.mutable_wire()->set_chunk(64);
  proto::View view;
  view.set_number(1);
  view.mutable_layout()->add_parameters()->add_shape(10);
  Placement::Even(SpaceOf(job, view.layout()), 1).AddTo(&view);
  view.mutable_shards(0)->set_address(server.address());
  CollectEnd end;
  std::thread other([&] { end.Set(); });
  EXPECT_THAT(CollectState(job, view, {}, "digest", {}, absl::InfiniteDuration(), &end),
              IsError(absl::StatusCode::kCancelled, "the job has ended"));
  other.join();
}

}  // namespace
}  // namespace rubato
