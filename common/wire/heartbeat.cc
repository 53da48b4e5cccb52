#include "common/wire/heartbeat.h"

#include "absl/time/clock.h"
#include "common/wire/channel.h"

namespace rubato {

Heartbeat::Heartbeat(const std::string& address, int rank, uint32_t incarnation,
                     absl::Duration interval, const ConnectionOptions& connection)
    : interval_(interval), stub_(proto::Coordination::NewStub(MakeChannel(address, connection))) {
  request_.set_rank(rank);
  request_.set_incarnation(incarnation);
  thread_ = std::thread([this] { Run(); });
}

Heartbeat::~Heartbeat() {
  {
    MonotonicLock lock(&mutex_);
    stopped_ = true;
  }
  thread_.join();
}

void Heartbeat::Run() {
  bool stopped = false;
  while (!stopped) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + interval_));
    context.set_wait_for_ready(true);
    proto::HeartbeatReply reply;
    stub_->Heartbeat(&context, request_, &reply);  // whether it came shows at the other end
    MonotonicLock lock(&mutex_);
    stopped = mutex_.AwaitFor(absl::Condition(&stopped_), interval_);
  }
}

}  // namespace rubato
