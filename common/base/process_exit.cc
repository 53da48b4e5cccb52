#include "common/base/process_exit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/base/check.h"

namespace rubato {
namespace {

constexpr char kSignalPayload[] = "rubato.signal";
constexpr char kStoppedPayload[] = "rubato.stopped";

constexpr int kWatched[] = {SIGINT, SIGTERM};

// The write end of the watcher's pipe. Signals may arrive on any thread (a library may have started
// some before main), so they are handled, not blocked and read.
std::atomic<int> handler_fd{-1};

void HandleSignal(int number) {
  const int saved_errno = errno;
  const unsigned char byte = static_cast<unsigned char>(number);
  (void)!write(handler_fd.load(), &byte, 1);
  errno = saved_errno;
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

absl::Status StoppedByOthers(absl::Status status) {
  if (!status.ok()) status.SetPayload(kStoppedPayload, absl::Cord());
  return status;
}

bool IsStoppedByOthers(const absl::Status& status) {
  return status.GetPayload(kStoppedPayload).has_value();
}

absl::Status ToldToStop(int exit_code, absl::string_view reason, bool refused) {
  if (exit_code == 0) return absl::OkStatus();
  const absl::Status status =
      exit_code == 2 ? absl::FailedPreconditionError(reason) : absl::AbortedError(reason);
  return refused ? status : StoppedByOthers(status);
}

SignalWatcher::SignalWatcher() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the call
  RUBATO_CHECK(pipe2(pipe_, O_CLOEXEC) == 0);
  RUBATO_CHECK(handler_fd.exchange(pipe_[1]) == -1);  // one at a time
  struct sigaction action = {};
  action.sa_handler = HandleSignal;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kWatched); ++i) {
    RUBATO_CHECK(sigaction(kWatched[i], &action, &previous_[i]) == 0);
  }
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  for (size_t i = 0; i < std::size(kWatched); ++i) {
    sigaction(kWatched[i], &previous_[i], nullptr);
  }
  const unsigned char stop = 0;
  RUBATO_CHECK(write(pipe_[1], &stop, 1) == 1);
  thread_.join();
  handler_fd = -1;
  close(pipe_[0]);
  close(pipe_[1]);
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
    unsigned char number = 0;
    if (read(pipe_[0], &number, 1) != 1) {
      RUBATO_CHECK(errno == EINTR);
      continue;
    }
    if (number == 0) break;
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
