#include "tests/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

// Whether one of the descriptors is readable, or becomes so before the deadline.
bool AwaitReadable(const std::vector<int>& descriptors, absl::Time deadline) {
  std::vector<pollfd> fds;
  for (const int fd : descriptors) fds.push_back({fd, POLLIN, 0});
  while (true) {
    const absl::Duration left =
        std::clamp(deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    const int64_t milliseconds = absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
    const int got = poll(fds.data(), fds.size(), static_cast<int>(milliseconds));
    RUBATO_CHECK(got >= 0 || errno == EINTR);
    if (got > 0) return true;
    if (left == absl::ZeroDuration()) return false;
  }
}

pid_t StartProcess(const std::vector<std::string>& arguments, const std::string& folder,
                   const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string out = log + ".out", err = log + ".err";
  const pid_t pid = fork();
  RUBATO_CHECK(pid >= 0);
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  if (dup2(open("/dev/null", O_RDONLY), 0) < 0 || dup2(open(out.c_str(), flags, 0600), 1) < 0 ||
      dup2(open(err.c_str(), flags, 0600), 2) < 0 || chdir(folder.c_str()) != 0) {
    _exit(99);
  }
  execv(argv[0], argv.data());
  perror(argv[0]);
  _exit(99);
}

// Of /proc/PID/stat; 0 if the process is gone or only waits to be reaped.
pid_t LivingParent(const std::string& pid) {
  const std::string text = ReadText(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = text.rfind(')');  // a name may hold anything
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipEmpty());
  pid_t parent = 0;
  if (fields.size() < 2 || fields[0] == "Z" || !absl::SimpleAtoi(fields[1], &parent)) return 0;
  return parent;
}

int BoundSocket(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  // Sockets that allow it share a port until one listens.
  RUBATO_CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
               bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

}  // namespace

ProcessHandle::ProcessHandle(pid_t pid)
    : pid_(pid), fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  RUBATO_CHECK(fd_ >= 0);
}

ProcessHandle::~ProcessHandle() {
  if (fd_ >= 0) close(fd_);
}

ProcessHandle::ProcessHandle(ProcessHandle&& other)
    : pid_(other.pid_), fd_(std::exchange(other.fd_, -1)) {}

void ProcessHandle::Signal(int number) const {
  syscall(SYS_pidfd_send_signal, fd_, number, nullptr, 0);  // fails if it has ended: no matter
}

bool ProcessHandle::AwaitEnd(absl::Duration patience) const {
  return AwaitReadable({fd_}, absl::Now() + patience);
}

std::multimap<std::string, pid_t> ThreadsOf(pid_t process) {
  std::multimap<std::string, pid_t> threads;
  for (const auto& task : fs::directory_iterator(absl::StrCat("/proc/", process, "/task"))) {
    pid_t found = 0;
    if (!absl::SimpleAtoi(task.path().filename().string(), &found)) continue;
    threads.emplace(absl::StripAsciiWhitespace(ReadText(task.path() / "comm")), found);
  }
  return threads;
}

StoppedThread::StoppedThread(pid_t process, absl::string_view name) {
  pid_t thread = -1;
  for (const auto& [found_name, found] : ThreadsOf(process)) {
    if (found_name == name) thread = thread < 0 ? found : std::min(thread, found);
  }
  EXPECT_GT(thread, 0) << "process " << process << " has no thread " << name;
  int stopped[2];
  RUBATO_CHECK(pipe(stopped) == 0);
  // A process of its own, since the end of a traced thread waits for its tracer.
  tracer_ = fork();
  if (tracer_ == 0) {
    if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0 ||
        ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 ||
        waitpid(thread, nullptr, __WALL) != thread || write(stopped[1], "", 1) != 1) {
      _exit(1);
    }
    while (waitpid(thread, nullptr, __WALL) == thread) {
    }
    _exit(0);
  }
  close(stopped[1]);
  char byte;
  EXPECT_EQ(read(stopped[0], &byte, 1), 1) << "cannot stop thread " << thread;
  close(stopped[0]);
}

StoppedThread::~StoppedThread() {
  kill(tracer_, SIGKILL);
  waitpid(tracer_, nullptr, 0);
}

std::vector<RunningChild> ChildrenOf(pid_t parent) {
  std::vector<RunningChild> children;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid) || LivingParent(name) != parent) continue;
    const std::string command = absl::StrReplaceAll(
        ReadText(absl::StrCat("/proc/", pid, "/cmdline")), {{std::string(1, '\0'), " "}});
    children.push_back({ProcessHandle(pid), command});
  }
  return children;
}

Process::Process(const std::vector<std::string>& arguments, const std::string& folder,
                 const std::string& log)
    : log_(log),
      command_(absl::StrJoin(arguments, " ")),
      handle_(StartProcess(arguments, folder, log)) {}

Process::~Process() {
  if (reaped_) return;
  Signal(SIGKILL);
  Signal(SIGCONT);
  waitpid(pid(), nullptr, 0);
}

int64_t Process::PeakMemoryMiB() const {
  const std::string status = ReadText(absl::StrCat("/proc/", pid(), "/status"));
  const size_t at = status.find("VmHWM:");
  RUBATO_CHECK(at != std::string::npos);
  return std::strtoll(status.c_str() + at + 6, nullptr, 10) / 1024;  // from kB
}

std::string Process::out() const { return ReadText(log_ + ".out"); }
std::string Process::err() const { return ReadText(log_ + ".err"); }

Process::Result Process::Wait(absl::Duration patience) {
  if (!reaped_) {
    if (!handle_.AwaitEnd(patience)) {
      ADD_FAILURE() << "has not ended within " << patience << ": " << command_ << "\n" << err();
      Signal(SIGKILL);
    }
    int status = 0;
    RUBATO_CHECK(waitpid(pid(), &status, 0) == pid());
    reaped_ = true;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return {code_, out(), err()};
}

const Process* AwaitFirstEnd(const std::vector<const Process*>& processes) {
  std::vector<int> descriptors;
  for (const Process* process : processes) descriptors.push_back(process->handle().fd());
  EXPECT_TRUE(AwaitReadable(descriptors, absl::Now() + kTestPatience));
  for (const Process* process : processes) {
    if (AwaitReadable({process->handle().fd()}, absl::InfinitePast())) return process;
  }
  return processes[0];
}

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool AwaitText(const std::string& path, const std::function<bool(const std::string&)>& wanted,
               const Process& process) {
  const absl::Time deadline = absl::Now() + kTestPatience;
  const int changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  const std::string folder = fs::path(path).parent_path();
  RUBATO_CHECK(changes >= 0 && inotify_add_watch(changes, folder.c_str(),
                                                 IN_CREATE | IN_MODIFY | IN_MOVED_TO) >= 0);
  bool found = false;
  while (true) {
    // Asked before the look at the file: what was written before the end is not missed.
    const bool ended = AwaitReadable({process.handle().fd()}, absl::InfinitePast());
    found = wanted(ReadText(path));
    if (found || ended || !AwaitReadable({changes, process.handle().fd()}, deadline)) break;
    char events[4096];
    while (read(changes, events, sizeof events) > 0) {
    }
  }
  close(changes);
  if (!found) {
    ADD_FAILURE() << "what was waited for did not come to " << path << ", which says:\n"
                  << ReadText(path) << "\nand the process:\n"
                  << process.err();
  }
  return found;
}

bool AwaitText(const std::string& path, absl::string_view part, const Process& process) {
  return AwaitText(
      path, [part](const std::string& text) { return absl::StrContains(text, part); }, process);
}

FreePort::FreePort() : fd_(BoundSocket(0)) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  RUBATO_CHECK(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
}

FreePort::~FreePort() { close(fd_); }

std::string FreePort::address() const { return absl::StrCat("127.0.0.1:", port_); }

int FreePort::Listen() const {
  const int fd = BoundSocket(port_);
  const timeval patience = absl::ToTimeval(kTestPatience);
  RUBATO_CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
               listen(fd, 16) == 0);
  return fd;
}

}  // namespace rubato
