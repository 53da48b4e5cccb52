#include "common/wire/heartbeat.h"

#include "absl/time/clock.h"
#include "common/wire/channel.h"

namespace rubato {

Heartbeat::Heartbeat(const std::string& address, int rank, uint32_t incarnation,
                     absl::Duration interval, const Credentials& credentials)
    : interval_(interval), stub_(proto::Coordination::NewStub(MakeChannel(address, credentials))) {
  request_.set_rank(rank);
  request_.set_incarnation(incarnation);
  thread_ = std::thread([this] { Run(); });
}

Heartbeat::~Heartbeat() {
  stop_.Notify();
  thread_.join();
}

void Heartbeat::Run() {
  do {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + interval_));
    context.set_wait_for_ready(true);
    proto::HeartbeatReply reply;
    stub_->Heartbeat(&context, request_, &reply);  // whether it came shows at the other end
  } while (!stop_.WaitForNotificationWithTimeout(interval_));
}

}  // namespace rubato
