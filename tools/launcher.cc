#include "tools/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/check.h"

namespace rubato {
namespace {

constexpr absl::string_view kErrorMark = "error: ";
constexpr absl::string_view kStoppedMark = "stopped: ";  // of one that ends because others did

absl::Status SystemError(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

// The end of a log: enough for a reason.
std::string Tail(const std::string& path) {
  constexpr off_t kBytes = 1 << 16;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const off_t size = lseek(fd, 0, SEEK_END);
  std::string tail(static_cast<size_t>(std::clamp<off_t>(size, 0, kBytes)), '\0');
  const ssize_t got = pread(fd, tail.data(), tail.size(), std::max<off_t>(0, size - kBytes));
  tail.resize(got < 0 ? 0 : static_cast<size_t>(got));
  close(fd);
  return tail;
}

// In the child, between fork and exec: only async-signal-safe calls. Returns only if something
// failed, with errno.
void BecomeChild(pid_t parent, int log_fd, char* const* arguments) {
  if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  // The parent may have died before prctl: then the kernel will never tell.
  if (getppid() != parent) _exit(1);
  // Ignored signals and the mask outlive exec; the launcher's own must not.
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGCHLD, SIGHUP, SIGQUIT})
    signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0) return;
  execv(arguments[0], arguments);
}

// The marked lines that end a log, without their mark; empty if there are none.
std::string LastLines(const std::vector<absl::string_view>& lines, absl::string_view mark) {
  size_t end = lines.size();
  while (end > 0 && !absl::StartsWith(lines[end - 1], mark)) --end;
  size_t begin = end;
  while (begin > 0 && absl::StartsWith(lines[begin - 1], mark)) --begin;
  return absl::StrJoin(lines.begin() + begin, lines.begin() + end, "\n",
                       [mark](std::string* out, absl::string_view line) {
                         absl::StrAppend(out, absl::StripPrefix(line, mark));
                       });
}

std::vector<absl::string_view> Lines(absl::string_view log) {
  return absl::StrSplit(log, '\n', absl::SkipWhitespace());
}

// How much an end explains: a signal most, a victim of others least.
int Weight(absl::string_view log, int wait_status) {
  if (WIFSIGNALED(wait_status)) return 3;
  if (WEXITSTATUS(wait_status) == 2) return 2;
  return LastLines(Lines(log), kErrorMark).empty() && !LastLines(Lines(log), kStoppedMark).empty()
             ? 0
             : 1;
}

}  // namespace

std::string FailureReason(absl::string_view log, int wait_status) {
  const std::vector<absl::string_view> lines = Lines(log);
  for (const absl::string_view mark : {kErrorMark, kStoppedMark}) {
    const std::string reason = LastLines(lines, mark);
    if (!reason.empty()) return reason;
  }
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    const char* name = sigabbrev_np(number);
    return absl::StrCat("killed by signal ", number,
                        name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status),
                      lines.empty() ? "" : absl::StrCat(": ", lines.back()));
}

Launcher::Launcher(absl::Duration grace)
    : grace_(grace), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  RUBATO_CHECK(wake_fd_ >= 0);
}

Launcher::~Launcher() {
  SignalAll(SIGKILL);
  Drain(absl::InfiniteFuture(), /*stop_on_interrupt=*/false);
  close(wake_fd_);
}

absl::Status Launcher::Start(const Command& command) {
  RUBATO_CHECK(!command.arguments.empty());
  const int log_fd =
      open(command.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_fd < 0) return SystemError("create", command.log_path);
  auto close_log = absl::MakeCleanup([log_fd] { close(log_fd); });
  // Carries errno if exec fails; closed by exec if it does not.
  int result[2];
  if (pipe2(result, O_CLOEXEC) != 0) return SystemError("start", command.arguments[0]);
  auto close_result = absl::MakeCleanup([&result] { close(result[0]); });

  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeChild(self, log_fd, arguments.data());
    const int error = errno;
    (void)!write(result[1], &error, sizeof error);
    _exit(127);
  }
  const int fork_error = errno;
  close(result[1]);
  errno = fork_error;
  if (pid < 0) return SystemError("start", command.arguments[0]);
  setpgid(pid, pid);  // as the child does: whoever comes first. Fails harmlessly after its exec.

  int error = 0;
  ssize_t got;
  while ((got = read(result[0], &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got > 0) {
    waitpid(pid, nullptr, 0);
    errno = error;
    return SystemError("start", command.arguments[0]);
  }
  // Not by glibc 2.36's wrapper: its header cannot be used from C++.
  const int pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pid_fd < 0) {
    const int pidfd_error = errno;
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    errno = pidfd_error;
    return SystemError("watch", command.arguments[0]);
  }
  children_.push_back({command, pid, pid_fd});
  return absl::OkStatus();
}

void Launcher::Interrupt(int signal) {
  int none = 0;
  interrupted_by_.compare_exchange_strong(none, signal);
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
}

void Launcher::Poll(absl::Time deadline) {
  std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
  for (const Child& child : children_) fds.push_back({child.pid_fd, POLLIN, 0});
  const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
  const int milliseconds =
      left >= absl::Hours(1)
          ? 3'600'000
          : static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
  if (poll(fds.data(), fds.size(), milliseconds) <= 0) return;
  if (fds[0].revents != 0) {
    uint64_t count;
    (void)!read(wake_fd_, &count, sizeof count);
  }

  for (size_t i = children_.size(); i-- > 0;) {
    if (fds[i + 1].revents == 0) continue;
    const Child child = children_[i];
    int status = 0;
    // What the process has itself started must not outlive it. Before it is reaped: until then its
    // number, which is the group's, cannot be another's.
    kill(-child.pid, SIGKILL);
    RUBATO_CHECK(waitpid(child.pid, &status, 0) == child.pid);
    close(child.pid_fd);
    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
    if (status == 0 || stopping_) continue;
    const std::string log = Tail(child.command.log_path);
    if (failure_.has_value() && Weight(log, status) <= failure_weight_) continue;
    if (!failure_.has_value()) judge_failure_at_ = absl::Now() + grace_;
    failure_weight_ = Weight(log, status);
    failure_ =
        Failure{child.command.role, child.command.rank, WIFEXITED(status) ? WEXITSTATUS(status) : 1,
                FailureReason(log, status), child.command.log_path};
  }
}

Launcher::Event Launcher::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    if (interrupted_by_ != 0) return Event::kInterrupt;
    if (failure_.has_value() && (children_.empty() || absl::Now() >= judge_failure_at_)) {
      return Event::kFailure;
    }
    if (children_.empty()) return Event::kAllEnded;
    if (absl::Now() >= deadline) return Event::kTimeout;
    Poll(std::min(deadline, judge_failure_at_));
  }
}

void Launcher::Drain(absl::Time deadline, bool stop_on_interrupt) {
  while (!children_.empty() && absl::Now() < deadline) {
    if (stop_on_interrupt && interrupted_by_ != 0) return;
    Poll(deadline);
  }
}

void Launcher::Stop() {
  stopping_ = true;
  SignalAll(SIGTERM);
  Drain(absl::Now() + kPatience, /*stop_on_interrupt=*/false);
  SignalAll(SIGKILL);
  Drain(absl::InfiniteFuture(), /*stop_on_interrupt=*/false);
}

void Launcher::SignalAll(int signal) {
  for (const Child& child : children_) kill(-child.pid, signal);
}

}  // namespace rubato
