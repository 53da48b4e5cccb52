#include "common/process_exit.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/check.h"

namespace rubato {
namespace {

constexpr char kSignalPayload[] = "rubato.signal";

sigset_t WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return 2;
    case absl::StatusCode::kCancelled: {
      int signal = SIGINT;
      if (const absl::optional<absl::Cord> payload = status.GetPayload(kSignalPayload)) {
        RUBATO_CHECK(absl::SimpleAtoi(std::string(*payload), &signal));
      }
      return 128 + signal;
    }
    default:
      return 1;
  }
}

absl::Status InterruptedBy(int signal) {
  absl::Status status =
      absl::CancelledError(absl::StrCat("interrupted by SIG", sigabbrev_np(signal)));
  status.SetPayload(kSignalPayload, absl::Cord(absl::StrCat(signal)));
  return status;
}

SignalWatcher::SignalWatcher() {
  const sigset_t signals = WatchedSignals();
  RUBATO_CHECK(pthread_sigmask(SIG_BLOCK, &signals, &previous_mask_) == 0);
  ::signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  RUBATO_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0);
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  RUBATO_CHECK(write(stop_fd_, &one, sizeof one) == sizeof one);
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

void SignalWatcher::OnSignal(std::function<void(int)> callback) {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](bool* running) { return !*running; }, &callback_running_));
  callback_ = std::move(callback);
}

int SignalWatcher::signal() const {
  absl::MutexLock lock(&mutex_);
  return signal_;
}

// The callback runs on a thread of its own kind: this one only reads, so that a second signal is
// seen while the callback is still busy.
void SignalWatcher::Run() {
  std::thread caller;
  while (true) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      RUBATO_CHECK(errno == EINTR);
      continue;
    }
    if (fds[1].revents != 0) break;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof info) != sizeof info) continue;
    const int number = static_cast<int>(info.ssi_signo);
    std::function<void(int)> callback;
    {
      absl::MutexLock lock(&mutex_);
      if (signal_ != 0 || callback_ == nullptr) _exit(128 + number);
      signal_ = number;
      callback = callback_;
      callback_running_ = true;
    }
    caller = std::thread([this, callback, number] {
      callback(number);
      absl::MutexLock lock(&mutex_);
      callback_running_ = false;
    });
  }
  if (caller.joinable()) caller.join();
}

}  // namespace rubato
