#include "common/base/process_exit.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <utility>

#include "common/base/check.h"
#include "common/base/monotonic.h"

namespace rubato {
namespace {

constexpr int kWatched[] = {SIGINT, SIGTERM, SIGHUP};

// The write end of the watcher's pipe. Signals may arrive on any thread (a library may have started
// some before main), so they are handled, not blocked and read.
std::atomic<int> handler_fd{-1};

void HandleSignal(int number) {
  const int saved_errno = errno;
  const unsigned char byte = static_cast<unsigned char>(number);
  (void)!write(handler_fd.load(), &byte, 1);
  errno = saved_errno;
}

// A closed standard descriptor becomes /dev/null: else what this process opens next takes its
// number, and gets what is printed.
void OpenStandardDescriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (0 <= fd && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

}  // namespace

SignalWatcher::SignalWatcher() {
  OpenStandardDescriptors();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the call
  RUBATO_CHECK(pipe2(pipe_, O_CLOEXEC) == 0);
  RUBATO_CHECK(handler_fd.exchange(pipe_[1]) == -1);  // one at a time
  struct sigaction action = {};
  action.sa_handler = HandleSignal;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kWatched); ++i) {
    RUBATO_CHECK(sigaction(kWatched[i], &action, &previous_[i]) == 0);
    // nohup: the process outlives its terminal.
    if (kWatched[i] == SIGHUP && previous_[i].sa_handler == SIG_IGN) ::signal(SIGHUP, SIG_IGN);
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
      const bool may_be_same =
          number == SIGHUP || (number == SIGTERM && MonotonicNow() < came_at_ + kSameRequest);
      const bool is_same = may_be_same && signal_ != 0 && signal_ != SIGINT;
      if (is_same) continue;
      if (signal_ != 0 || callback_ == nullptr) _exit(128 + number);
      signal_ = number;
      came_at_ = MonotonicNow();
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
