#include "common/wire/control_client.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/address.h"
#include "common/base/exit_code.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "common/wire/control_methods.h"
#include "common/wire/hello.h"
#include "common/wire/look_up.h"
#include "common/wire/reach.h"

namespace rubato {
namespace {

// Of messages that are held back. Then whoever has another waits until they can be sent.
constexpr size_t kMostHeld = 64 << 10;

// Of a small model's progress there are thousands in a second; to send each takes a quarter of its
// step. A shard's part is written, and told, soon after it is copied.
bool MayWait(const proto::PeerMessage& message) {
  return message.has_progress() || message.has_snapshot_copied();
}

// The coordinator does not let this process in.
bool IsRefusal(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
}

// All that the hosts stand for now; empty if nothing is known.
std::set<std::string> PlacesOf(const std::vector<HostPort>& hosts) {
  std::set<std::string> places;
  for (const HostPort& host : hosts) {
    const absl::StatusOr<std::vector<Place>> found = LookUp(host);
    if (!found.ok()) continue;
    for (const Place& place : *found) places.insert(place.bytes());
  }
  return places;
}

// Why nobody answers at `address`, as its host tells it now; "" if somebody does.
std::string WhyNoAnswer(const std::string& address, Greeting greeting,
                        const std::vector<HostPort>& hosts) {
  switch (LookFor({address}, greeting, kLookAgain).front()) {
    case Reach::kAnswers:
      return "";
    case Reach::kMute:
      return "the process there says nothing: it is frozen, very busy, or none of Rubato's";
    case Reach::kGone:
      return PlacesOf(hosts).empty() ? "its name is not known here" : "nobody listens there";
    case Reach::kSilent:
      return "nothing comes back: the host is down, or a firewall or a cut is between";
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Connect(
    const std::string& address, absl::Duration timeout, const proto::Registration& registration,
    std::function<bool()> cancelled, const ConnectionOptions& connection,
    const std::function<void(const std::string&)>& waits) {
  const absl::StatusOr<std::vector<HostPort>> hosts = ParseReachableAddresses(address);
  if (!hosts.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.address: ", hosts.status().message()));
  }
  const Greeting greeting = connection.credentials.is_tls() ? Greeting::kTls : Greeting::kPlain;
  std::set<std::string> places = PlacesOf(*hosts);
  std::shared_ptr<grpc::Channel> channel = MakeChannel(address, connection);
  absl::Time looked = MonotonicNow();
  const absl::Time deadline = looked + timeout;
  constexpr absl::Duration kTry = absl::Milliseconds(100);  // so that a signal is soon heeded
  constexpr absl::Duration kBetweenLooks = absl::Seconds(1);
  // A channel looks a name up again only when it has failed to connect, which takes 20 s where
  // nothing comes back, and ever more seldom while the name stands for nothing. So it is a new one
  // when the name stands for another place or somebody is there who was not, and else after a
  // second, then two, then four: on a way that takes long, to connect takes a few times as long.
  // Who is at the same place as before may be slow.
  constexpr absl::Duration kLongest = absl::Seconds(16);
  bool was_there = false;
  absl::Time made = looked;
  absl::Duration lasts = kBetweenLooks;
  const auto look_again = [&] {
    if (MonotonicNow() - looked < kBetweenLooks) return;
    std::set<std::string> found = PlacesOf(*hosts);
    const Reach reach = LookFor({address}, greeting, kLookAgain).front();
    looked = MonotonicNow();
    const bool is_there = reach == Reach::kAnswers || reach == Reach::kMute;
    const bool is_same = found == places && is_there == was_there;
    if (is_same && (is_there || looked - made < lasts)) return;
    lasts = is_same ? std::min(2 * lasts, kLongest) : kBetweenLooks;
    made = looked;
    was_there = is_there;
    places = std::move(found);
    channel = MakeChannel(address, connection);
  };
  std::optional<Caller> caller = connection.credentials.NewCaller();
  std::string why_not;
  const auto reach = [&]() -> absl::Status {
    look_again();
    if (!channel->WaitForConnected(DeadlineIn(kTry))) {
      const absl::Status why = WhyNotConnected(channel);
      // A new channel, or one that is trying, has nothing to say yet.
      if (!why.message().empty()) why_not = std::string(why.message());
      return why;
    }
    why_not.clear();
    if (!caller.has_value()) return absl::OkStatus();
    return SayHello(channel, deadline - MonotonicNow(), cancelled, &*caller);
  };
  const auto no_answer = [&](absl::Duration within) {
    const std::string why = why_not.empty() ? WhyNoAnswer(address, greeting, *hosts) : why_not;
    return absl::StrCat("no answer from ", connection.coordinator, " at ", address, " within ",
                        absl::FormatDuration(within), why.empty() ? "" : ": ", why);
  };
  const absl::Duration patience = std::min(absl::Seconds(10), timeout / 2);
  absl::Time tells = waits == nullptr ? absl::InfiniteFuture() : looked + patience;
  for (absl::Status status = reach(); !status.ok(); status = reach()) {
    if (cancelled()) return absl::CancelledError("interrupted");
    RUBATO_RETURN_IF_ERROR(connection.credentials.Check());  // a certificate ends by itself
    if (MonotonicNow() > deadline) return absl::DeadlineExceededError(no_answer(timeout));
    if (MonotonicNow() > tells) {
      tells = absl::InfiniteFuture();
      waits(absl::StrCat(no_answer(patience), "; tries for ", absl::FormatDuration(timeout),
                         " in all"));
    }
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat(connection.coordinator, " at ", address, ": ", status.message()));
    }
  }
  std::unique_ptr<ControlClient> client(new ControlClient(
      absl::StrCat(connection.coordinator, " at ", address), channel,
      caller.has_value() ? std::make_optional(caller->Show(kJoinMethod)) : std::nullopt,
      registration));
  return client;
}

void ControlClient::Start(ControlCallbacks callbacks) {
  callbacks_ = std::move(callbacks);
  thread_ = std::thread([this] { Run(); });
  sender_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "held back");
    SendHeld();
  });
}

ControlClient::ControlClient(std::string name, std::shared_ptr<grpc::Channel> channel,
                             const std::optional<std::string>& shown,
                             const proto::Registration& registration)
    : name_(std::move(name)), stub_(proto::Coordination::NewStub(channel)) {
  *early_.emplace_back().mutable_registration() = registration;
  if (shown.has_value()) context_.AddMetadata(kCallerKey, *shown);
  call_ = stub_->Join(&context_);
}

ControlClient::~ControlClient() {
  {
    MonotonicLock lock(&mutex_);
    closing_ = true;
    // What it sends may have more behind it, such as why this process fails.
    const auto rests = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !sends_held_; };
    mutex_.AwaitFor(absl::Condition(&rests), absl::Seconds(1));
  }
  if (!thread_.joinable()) {  // never started
    context_.TryCancel();
    call_->Finish();
    return;
  }
  // Half-closing, rather than cancelling, lets what was sent arrive. A write that does not end
  // holds the mutex.
  if (write_mutex_.TryLock()) {
    is_known_ ? static_cast<void>(call_->WritesDone()) : context_.TryCancel();
    write_mutex_.Unlock();
  } else {
    context_.TryCancel();
  }
  // A coordinator that does not answer keeps nobody.
  {
    MonotonicLock lock(&mutex_);
    if (!mutex_.AwaitFor(absl::Condition(&ended_), absl::Seconds(1))) context_.TryCancel();
  }
  thread_.join();
  sender_.join();
}

void ControlClient::Send(proto::PeerMessage message) {
  const bool may_wait = MayWait(message);
  if (may_wait && !HoldBack(std::move(message))) return;
  absl::MutexLock lock(&write_mutex_);
  WriteHeldAnd(may_wait ? nullptr : &message);
}

bool ControlClient::HoldBack(proto::PeerMessage message) {
  MonotonicLock lock(&mutex_);
  held_bytes_ += message.ByteSizeLong();
  held_.push_back({std::move(message), MonotonicNow()});
  return held_bytes_ > kMostHeld;
}

void ControlClient::SendHeld() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || !held_.empty();
  };
  while (true) {
    {
      MonotonicLock lock(&mutex_, absl::Condition(&has_work));
      // They may go with another meanwhile, and others come: these go a little early then.
      if (mutex_.AwaitUntil(absl::Condition(&closing_), MonotonicNow() + kHeldFor)) return;
      sends_held_ = true;
    }
    {
      absl::MutexLock lock(&write_mutex_);
      WriteHeldAnd(nullptr);
    }
    MonotonicLock lock(&mutex_);
    sends_held_ = false;
  }
}

void ControlClient::WriteHeldAnd(const proto::PeerMessage* last) {
  std::vector<Held> held;
  {
    MonotonicLock lock(&mutex_);
    held.swap(held_);
    held_bytes_ = 0;
  }
  if (held.empty()) {
    if (last != nullptr) Write(*last);
    return;
  }
  proto::PeerMessage batch;
  const absl::Time now = MonotonicNow();
  for (Held& one : held) {
    proto::PeerMessage* const message = &one == &held.front() ? &batch : batch.add_then();
    *message = std::move(one.message);
    message->set_held_seconds(absl::ToDoubleSeconds(now - one.since));
  }
  if (last != nullptr) *batch.add_then() = *last;
  Write(batch);
}

void ControlClient::Write(const proto::PeerMessage& message) {
  if (is_known_) {
    call_->Write(message);
  } else {
    early_.push_back(message);
  }
}

void ControlClient::Run() {
  proto::CoordinatorMessage message;
  bool stopped = false;
  call_->WaitForInitialMetadata();
  {
    absl::MutexLock lock(&write_mutex_);
    for (const proto::PeerMessage& early : early_) call_->Write(early);
    early_.clear();
    is_known_ = true;
  }
  while (call_->Read(&message)) {
    if (message.has_stop()) stopped = true;
    callbacks_.on_message(message);
  }
  const grpc::Status status = call_->Finish();
  {
    MonotonicLock lock(&mutex_);
    ended_ = true;
    if (closing_ || stopped) return;
  }
  if (IsRefusal(status)) {  // to try again would not help
    message.mutable_stop()->set_exit_code(kExitUsage);
    message.mutable_stop()->set_refused(true);
    message.mutable_stop()->set_reason(status.error_message());
    callbacks_.on_message(message);
    return;
  }
  const std::string why(FromGrpc(status).message());
  callbacks_.on_failure(StoppedByOthers(
      absl::UnavailableError(absl::StrCat(name_, " is gone", why.empty() ? "" : ": ", why))));
}

std::string ProcessDescription() {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return absl::StrFormat("%s pid %d", host, getpid());
}

}  // namespace rubato
