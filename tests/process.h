// Real processes in whole-system tests: started, watched and ended by their own number only.
#ifndef RUBATO_TESTS_PROCESS_H_
#define RUBATO_TESTS_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace rubato {

// How long a test waits for what must come. No time of a healthy run is near it, on however slow a
// machine: only a test that fails waits so long.
constexpr absl::Duration kTestPatience = absl::Seconds(100);

// Any process, by its number; it need not be the test's own. The number's process must exist when
// this is made, and cannot be mistaken for a later one from there on.
class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t pid);
  ~ProcessHandle();
  ProcessHandle(ProcessHandle&& other);
  ProcessHandle& operator=(ProcessHandle&&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int fd() const { return fd_; }
  void Signal(int number) const;
  // Whether it has ended in time.
  bool AwaitEnd(absl::Duration patience = kTestPatience) const;

 private:
  pid_t pid_;
  int fd_;
};

// The threads of a process, by their names.
std::multimap<std::string, pid_t> ThreadsOf(pid_t process);

// Stops one thread of a process, until either ends.
class StoppedThread {
 public:
  // The first with this name; that of the program is its main thread's, and of those that have no
  // other.
  StoppedThread(pid_t process, absl::string_view name);
  ~StoppedThread();
  StoppedThread(const StoppedThread&) = delete;

 private:
  pid_t tracer_ = -1;
};

// The processes that `parent` has started itself and that still live, with their command lines.
struct RunningChild {
  ProcessHandle process;
  std::string command;
};
std::vector<RunningChild> ChildrenOf(pid_t parent);

// A process of the test's own, which does not outlive it.
class Process {
 public:
  struct Result {
    int code = 0;  // of its exit, or -signal
    std::string out, err;
  };

  // Starts `arguments` in `folder`; what it writes goes to the files `log`.out and `log`.err.
  Process(const std::vector<std::string>& arguments, const std::string& folder,
          const std::string& log);
  ~Process();
  Process(const Process&) = delete;

  const ProcessHandle& handle() const { return handle_; }
  pid_t pid() const { return handle_.pid(); }
  void Signal(int number) const { handle_.Signal(number); }

  // The most memory that it has held so far; it must still run.
  int64_t PeakMemoryMiB() const;

  // What it has written so far.
  std::string out() const;
  std::string err() const;
  std::string err_path() const { return log_ + ".err"; }

  // Waits for its end. One that does not end in time is a failure of the test, and is killed.
  Result Wait(absl::Duration patience = kTestPatience);

 private:
  const std::string log_;
  const std::string command_;
  const ProcessHandle handle_;
  bool reaped_ = false;
  int code_ = 0;
};

// One of the processes that has ended, as soon as there is one.
const Process* AwaitFirstEnd(const std::vector<const Process*>& processes);

// The whole of a file; empty if there is none.
std::string ReadText(const std::string& path);

// Waits until the text of the file at `path`, in an existing folder, makes `wanted` true. False,
// and a failure of the test, if `process` ends before or kTestPatience passes.
bool AwaitText(const std::string& path, const std::function<bool(const std::string&)>& wanted,
               const Process& process);
// The same for a file that contains `part`.
bool AwaitText(const std::string& path, absl::string_view part, const Process& process);

// A port of loopback that nobody else is given while this lives: it is bound here, without
// listening, so that a server of the test may still listen at it.
class FreePort {
 public:
  FreePort();
  ~FreePort();
  FreePort(const FreePort&) = delete;

  std::string address() const;

  // Listens at the port; the socket is the caller's. accept() fails after kTestPatience.
  int Listen() const;

 private:
  int fd_;
  int port_;
};

}  // namespace rubato

#endif  // RUBATO_TESTS_PROCESS_H_
