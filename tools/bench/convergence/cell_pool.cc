#include "tools/bench/convergence/cell_pool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "tools/command/binaries.h"

namespace rubato {

CellPool::CellPool(SignalWatcher* signals) : wake_(eventfd(0, EFD_CLOEXEC)), signals_(signals) {
  signals_->OnSignal([wake = wake_](int) { eventfd_write(wake, 1); });
}

CellPool::~CellPool() {
  for (const auto& [pid, cell] : running_) kill(pid, SIGKILL);
  for (const auto& [pid, cell] : running_) {
    waitpid(pid, nullptr, 0);
    close(cell.pid_fd);
  }
  signals_->OnSignal(nullptr);
  close(wake_);
}

absl::Status CellPool::Start(size_t cell, const std::vector<std::string>& arguments,
                             const std::string& log) {
  RUBATO_ASSIGN_OR_RETURN(const std::string program, FindBinary("rubato"));
  std::vector<std::string> copies = arguments;
  copies.insert(copies.begin(), "rubato");
  std::vector<char*> words;
  for (std::string& word : copies) words.push_back(word.data());
  words.push_back(nullptr);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (output < 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", log, ": ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);  // a terminal's Ctrl-C is for the parent, which ends the cells
    dup2(output, 1);
    dup2(output, 2);
    execv(program.c_str(), words.data());
    _exit(127);
  }
  const int error = errno;
  close(output);
  if (pid < 0) {
    return absl::UnavailableError(absl::StrCat("cannot start a process: ", std::strerror(error)));
  }
  running_[pid] = {cell, static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), absl::Now()};
  return absl::OkStatus();
}

CellPool::Ended CellPool::Wait(absl::Duration timeout) {
  Ended ended;
  std::vector<pollfd> events = {{wake_, POLLIN, 0}};
  std::vector<pid_t> pids = {0};
  for (const auto& [pid, cell] : running_) {
    events.push_back({cell.pid_fd, POLLIN, 0});
    pids.push_back(pid);
  }
  poll(events.data(), events.size(), static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  if (signals_->signal() != 0) {
    ended.what = Ended::What::kSignal;
    ended.signal = signals_->signal();
    return ended;
  }
  for (size_t i = 1; i < events.size(); ++i) {
    if (events[i].revents == 0) continue;
    const Running cell = running_.extract(pids[i]).mapped();
    int status = 0;
    rusage usage;
    wait4(pids[i], &status, 0, &usage);
    close(cell.pid_fd);
    ended.what = Ended::What::kCell;
    ended.cell = cell.cell;
    ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended.wall_seconds = absl::ToDoubleSeconds(absl::Now() - cell.since);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      ended.cpu_seconds += absl::ToDoubleSeconds(absl::DurationFromTimeval(time));
    }
    ended.peak_bytes = int64_t{usage.ru_maxrss} << 10;
    break;
  }
  return ended;
}

}  // namespace rubato
