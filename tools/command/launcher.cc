#include "tools/command/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/last_words_file.h"
#include "common/base/monotonic.h"
#include "tools/command/log_line.h"

namespace rubato {
namespace {

constexpr absl::string_view kErrorMark = "error: ";
constexpr absl::string_view kExited = "exited with code ";  // without a word
constexpr absl::string_view kStoppedMark = "stopped: ";     // of one that ends because others did

// What a line says of its process's failure (see Log::Fatal): nothing if it is another line, or of
// the other kind.
std::optional<std::string> LastWords(absl::string_view line, bool stopped) {
  const absl::string_view mark = stopped ? kStoppedMark : kErrorMark;
  if (absl::StartsWith(line, mark)) return std::string(absl::StripPrefix(line, mark));
  if (!absl::StartsWith(line, "{") || !ParseLogLine(line).is_event) return std::nullopt;
  const nlohmann::json json = ParseJson(line);
  if (TextAt(json, "level") != "fatal") return std::nullopt;
  const nlohmann::json fields = json.value("fields", nlohmann::json::object());
  if (stopped != (fields.is_object() && fields.value("stopped", nlohmann::json()) == true)) {
    return std::nullopt;
  }
  const auto message = json.find("message");
  if (message == json.end() || !message->is_string()) return std::nullopt;
  return message->get<std::string>();
}

absl::Status SystemError(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

// The end of a log from `begin` on: enough for a reason. It may have been begun anew since.
std::string Tail(int fd, off_t begin) {
  constexpr off_t kBytes = 1 << 16;
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size < begin) begin = 0;
  begin = std::max(begin, size - kBytes);
  std::string tail(static_cast<size_t>(std::max<off_t>(size - begin, 0)), '\0');
  const ssize_t got = pread(fd, tail.data(), tail.size(), begin);
  tail.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return tail;
}

// Of a log whose process before may have ended within a line. A full disk takes none.
void EndLine(int fd) {
  const off_t end = lseek(fd, 0, SEEK_END);
  char last = '\n';
  if (end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n') (void)!write(fd, "\n", 1);
}

ScriptStage StageIn(int fd) {
  unsigned char stage = 0;
  return pread(fd, &stage, 1, 0) == 1 ? static_cast<ScriptStage>(stage) : ScriptStage::kOutside;
}

// Why nothing can be added to a log, and so its process may have had last words in vain; empty if
// something can.
std::string WhyMute(int fd, const std::string& path) {
  const off_t end = lseek(fd, 0, SEEK_END);
  const bool written = write(fd, "\n", 1) == 1;
  const int error = errno;
  if (written) (void)!ftruncate(fd, end);
  return written ? "" : absl::StrCat("; cannot write ", path, ": ", strerror(error));
}

// What a process said of its end: what its log did not take, or else the log, without a line that
// is cut off because nothing more can be written.
std::string Said(int log_fd, off_t log_begins, int words_fd, bool is_mute) {
  std::string words = Tail(words_fd, 0);
  if (!words.empty()) return words;
  std::string log = Tail(log_fd, log_begins);
  if (is_mute) log.resize(log.rfind('\n') + 1);  // none: npos + 1 is 0
  return log;
}

// In the child, between fork and exec: only async-signal-safe calls. Returns only if something
// failed, with errno.
void BecomeChild(pid_t parent, int log_fd, const cpu_set_t* processors, char* const* arguments,
                 char* const* environment) {
  if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  // The parent may have died before prctl: then the kernel will never tell.
  if (getppid() != parent) _exit(1);
  // Ignored signals and the mask outlive exec; the launcher's own must not.
  for (const int number : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGCHLD, SIGHUP, SIGQUIT})
    signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Goes without if they may not be used any more: that is slower, and no more.
  if (processors != nullptr) (void)sched_setaffinity(0, sizeof *processors, processors);
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0) return;
  execve(arguments[0], arguments, environment);
}

// The last words of a log, of one kind; empty if there are none.
std::string LastLines(const std::vector<absl::string_view>& lines, bool stopped) {
  size_t end = lines.size();
  while (end > 0 && !LastWords(lines[end - 1], stopped)) --end;
  size_t begin = end;
  while (begin > 0 && LastWords(lines[begin - 1], stopped)) --begin;
  return absl::StrJoin(lines.begin() + begin, lines.begin() + end, "\n",
                       [stopped](std::string* out, absl::string_view line) {
                         absl::StrAppend(out, *LastWords(line, stopped));
                       });
}

std::vector<absl::string_view> Lines(absl::string_view log) {
  return absl::StrSplit(log, '\n', absl::SkipWhitespace());
}

// The exception of the last of Python's tracebacks, where its frames are indented; empty if there
// is none.
absl::string_view LastException(const std::vector<absl::string_view>& lines) {
  const auto begins = [](absl::string_view line) {
    return absl::EndsWith(line, "Traceback (most recent call last):");
  };
  const auto begin = std::find_if(lines.rbegin(), lines.rend(), begins).base();
  if (begin == lines.begin()) return "";
  const auto found = std::find_if(begin, lines.end(), [](absl::string_view line) {
    return line.front() != ' ' && !ParseLogLine(line).is_info;
  });
  return found == lines.end() ? "" : *found;
}

// What a log says last without a mark: an exception, or a line that is not an event's.
absl::string_view LastUnmarked(const std::vector<absl::string_view>& lines) {
  const absl::string_view exception = LastException(lines);
  if (!exception.empty()) return exception;
  const auto last = std::find_if(lines.rbegin(), lines.rend(), [](absl::string_view line) {
    return !ParseLogLine(line).is_info;
  });
  return last == lines.rend() ? "" : *last;
}

// How much an end explains: a signal most, a victim of others least.
int Weight(absl::string_view log, int wait_status) {
  if (WIFSIGNALED(wait_status)) return 3;  // Launcher::kKilled
  if (WEXITSTATUS(wait_status) == kExitUsage) return 2;
  return LastLines(Lines(log), /*stopped=*/false).empty() &&
                 !LastLines(Lines(log), /*stopped=*/true).empty()
             ? 0
             : 1;
}

}  // namespace

std::string FailureReason(absl::string_view log, int wait_status) {
  const std::vector<absl::string_view> lines = Lines(log);
  for (const bool stopped : {false, true}) {
    // Of a process that was killed only what it said last: no error that it has survived.
    if (WIFSIGNALED(wait_status) && !lines.empty() && !LastWords(lines.back(), stopped)) continue;
    const std::string reason = LastLines(lines, stopped);
    if (!reason.empty()) return reason;
  }
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    const char* name = sigabbrev_np(number);
    return absl::StrCat("killed by signal ", number,
                        name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
  }
  const absl::string_view last = LastUnmarked(lines);
  return absl::StrCat(kExited, WEXITSTATUS(wait_status),
                      last.empty() ? "" : absl::StrCat(": ", last));
}

Launcher::Launcher(absl::Duration grace)
    : grace_(grace), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  RUBATO_CHECK(wake_fd_ >= 0);
}

Launcher::~Launcher() {
  SignalAll(SIGKILL);
  Drain(absl::InfiniteFuture());
  close(wake_fd_);
}

absl::Status Launcher::Start(const Command& command) {
  RUBATO_CHECK(!command.arguments.empty());
  const int log_fd = open(command.log_path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_fd < 0) return SystemError("create", command.log_path);
  auto close_log = absl::MakeCleanup([log_fd] { close(log_fd); });
  EndLine(log_fd);
  const off_t log_begins = lseek(log_fd, 0, SEEK_END);
  const int words_fd = memfd_create("last words", MFD_CLOEXEC);
  if (words_fd < 0) return SystemError("start", command.arguments[0]);
  auto close_words = absl::MakeCleanup([words_fd] { close(words_fd); });
  const int stage_fd = memfd_create("stage", MFD_CLOEXEC);
  if (stage_fd < 0) return SystemError("start", command.arguments[0]);
  auto close_stage = absl::MakeCleanup([stage_fd] { close(stage_fd); });
  std::vector<std::string> own_variables = command.environment;
  own_variables.push_back(absl::StrCat(kStageVariable, "=/proc/", getpid(), "/fd/", stage_fd));
  own_variables.push_back(absl::StrCat(kLastWordsVariable, "=/proc/", getpid(), "/fd/", words_fd));
  // Carries errno if exec fails; closed by exec if it does not.
  int result[2];
  if (pipe2(result, O_CLOEXEC) != 0) return SystemError("start", command.arguments[0]);
  auto close_result = absl::MakeCleanup([&result] { close(result[0]); });

  std::vector<char*> arguments, environment;
  for (const std::string& argument : command.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  for (const std::string& variable : own_variables)
    environment.push_back(const_cast<char*>(variable.c_str()));
  for (char** variable = environ; *variable != nullptr; ++variable) {
    // Of two of one name the first would count, or the last.
    const absl::string_view name =
        absl::string_view(*variable).substr(0, absl::string_view(*variable).find('='));
    if (!std::any_of(own_variables.begin(), own_variables.end(), [&](const std::string& own) {
          return absl::StartsWith(own, absl::StrCat(name, "="));
        })) {
      environment.push_back(*variable);
    }
  }
  environment.push_back(nullptr);
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (const int processor : command.processors) CPU_SET(processor, &processors);
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeChild(self, log_fd, command.processors.empty() ? nullptr : &processors, arguments.data(),
                environment.data());
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
  children_.push_back({command, pid, pid_fd, log_fd, log_begins, stage_fd, words_fd});
  if (!command.expendable) others_ended_at_ = absl::InfiniteFuture();
  std::move(close_log).Cancel();
  std::move(close_words).Cancel();
  std::move(close_stage).Cancel();
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
  const absl::Duration left = std::max(deadline - MonotonicNow(), absl::ZeroDuration());
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
    const auto close_files = absl::MakeCleanup([&child] {
      close(child.log_fd);
      close(child.words_fd);
      close(child.stage_fd);
    });
    if (stopping_) continue;
    if (status != 0) {
      const std::string mute = WhyMute(child.log_fd, child.command.log_path);
      const std::string log = Said(child.log_fd, child.log_begins, child.words_fd, !mute.empty());
      std::string reason = FailureReason(log, status);
      if (WIFEXITED(status) && absl::StartsWith(reason, kExited)) {
        absl::StrAppend(&reason, mute);
      }
      const int weight = Weight(log, status);
      bad_ends_.push_back(
          {{child.command.role, child.command.rank, WIFEXITED(status) ? WEXITSTATUS(status) : 1,
            std::move(reason), child.command.log_path, /*only_followed=*/weight == 0,
            /*killed=*/WIFSIGNALED(status), StageIn(child.stage_fd)},
           weight,
           child.command.expendable,
           child.command.restartable,
           MonotonicNow()});
    }
    if (Others().empty()) others_ended_at_ = std::min(others_ended_at_, MonotonicNow());
  }
}

std::vector<const Launcher::Child*> Launcher::Others() const {
  std::vector<const Child*> others;
  for (const Child& child : children_) {
    if (!child.command.expendable) others.push_back(&child);
  }
  return others;
}

bool Launcher::HaveOthersEnded() const {
  return Others().empty() && std::none_of(bad_ends_.begin(), bad_ends_.end(),
                                          [](const BadEnd& end) { return end.restartable; });
}

bool Launcher::IsUnexplained() const {
  return Others().size() > 1 &&
         std::all_of(bad_ends_.begin(), bad_ends_.end(),
                     [](const BadEnd& end) { return end.failure.only_followed; });
}

void Launcher::Judge() {
  // Of two who explain as much it is the one without whom the others cannot go on.
  const auto rank = [](const BadEnd& end) { return std::pair(end.weight, !end.expendable); };
  const BadEnd& worst =
      *std::max_element(bad_ends_.begin(), bad_ends_.end(),
                        [&](const BadEnd& a, const BadEnd& b) { return rank(a) < rank(b); });
  failure_ = worst.failure;
  const std::vector<const Child*> others = Others();
  if (!worst.failure.only_followed || others.size() != 1) return;
  const Child& still = *others[0];
  failure_ = Failure{still.command.role, still.command.rank, 1,
                     absl::StrCat("stands still: ", worst.failure.reason), still.command.log_path};
  Kill(still.command.role, still.command.rank);
}

const Failure* Launcher::follower() const {
  const bool is_known = std::any_of(bad_ends_.begin(), bad_ends_.end(),
                                    [](const BadEnd& end) { return !end.failure.only_followed; });
  return is_known || bad_ends_.empty() ? nullptr : &bad_ends_.front().failure;
}

std::vector<Failure> Launcher::untold() const {
  std::vector<Failure> failures;
  for (const BadEnd& end : bad_ends_) failures.push_back(end.failure);
  return failures;
}

std::map<int, ScriptStage> Launcher::Stages(const std::string& role) const {
  std::map<int, ScriptStage> stages;
  for (const Child& child : children_) {
    if (child.command.role == role) stages[child.command.rank] = StageIn(child.stage_fd);
  }
  return stages;
}

absl::Duration Launcher::SinceOthersEnded() const {
  if (!HaveOthersEnded() || others_ended_at_ == absl::InfiniteFuture()) {
    return absl::ZeroDuration();
  }
  return MonotonicNow() - others_ended_at_;
}

int Launcher::alive(const std::string& role) const {
  int count = 0;
  for (const Child& child : children_) count += child.command.role == role;
  return count;
}

int Launcher::running(const std::string& role) const {
  int count = alive(role);
  for (const BadEnd& end : bad_ends_) count += end.failure.role == role;
  return count;
}

absl::Time Launcher::NextJudgement(absl::Time now) const {
  absl::Time next = absl::InfiniteFuture();
  const auto consider = [&](absl::Time time) {
    if (time > now) next = std::min(next, time);
  };
  consider(others_ended_at_ + last_grace_);
  for (const BadEnd& end : bad_ends_) {
    consider(end.time + grace_);
    consider(end.time + kFollowersGrace);
  }
  return next;
}

std::vector<Launcher::BadEnd>::iterator Launcher::NextLost() {
  auto next = bad_ends_.begin();
  for (auto end = bad_ends_.begin(); end != bad_ends_.end(); ++end) {
    const auto rank = [](const BadEnd& one) { return std::pair(one.restartable, one.weight); };
    if (end->restartable && rank(*end) > rank(*next)) next = end;
  }
  return next;
}

Launcher::Event Launcher::Wait(absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  while (true) {
    if (interrupted_by_ != 0) return Event::kInterrupt;
    if (failure_.has_value()) return Event::kFailure;
    const absl::Time now = MonotonicNow();
    const absl::Duration grace = IsUnexplained() ? std::max(grace_, kFollowersGrace) : grace_;
    const auto first = std::find_if(bad_ends_.begin(), bad_ends_.end(), [](const BadEnd& end) {
      return !end.expendable && !end.restartable;
    });
    const auto next = NextLost();
    if (first != bad_ends_.end()) {
      if (children_.empty() || now >= first->time + grace) {
        Judge();
        continue;
      }
    } else if (HaveOthersEnded()) {
      if (children_.empty() || now >= others_ended_at_ + last_grace_) return Event::kAllEnded;
    } else if (next != bad_ends_.end() && now >= next->time + next->Grace(grace)) {
      lost_ = std::move(next->failure);
      bad_ends_.erase(next);
      return Event::kLost;
    }
    if (now >= deadline) return Event::kTimeout;
    Poll(std::min(deadline, NextJudgement(now)));
  }
}

void Launcher::Drain(absl::Time deadline) {
  while (!children_.empty() && MonotonicNow() < deadline) Poll(deadline);
}

bool Launcher::Kill(const std::string& role, int rank) {
  bool found = false;
  for (const Child& child : children_) {
    if (child.command.role != role || child.command.rank != rank) continue;
    kill(-child.pid, SIGKILL);
    found = true;
  }
  return found;
}

void Launcher::KillOthers() {
  for (const Child* child : Others()) kill(-child->pid, SIGKILL);
}

void Launcher::Stop() {
  stopping_ = true;
  SignalAll(SIGTERM);
  Drain(MonotonicNow() + kPatience);
  SignalAll(SIGKILL);
  Drain(absl::InfiniteFuture());
}

void Launcher::Stop(const std::string& role, int rank, absl::Duration patience,
                    absl::FunctionRef<bool()> goes_on) {
  stopping_ = true;
  const auto is_first = [&](const Child& child) {
    return child.command.role == role && child.command.rank == rank;
  };
  for (const Child& child : children_) {
    if (is_first(child)) kill(-child.pid, SIGTERM);
  }
  absl::Time deadline = MonotonicNow() + patience;
  while (std::any_of(children_.begin(), children_.end(), is_first)) {
    if (MonotonicNow() >= deadline) {
      if (!goes_on()) break;
      deadline = MonotonicNow() + patience;
    }
    Poll(deadline);
  }
  if (MonotonicNow() < deadline) Drain(MonotonicNow() + kPatience);  // the others have been told
  Stop();
}

void Launcher::SignalAll(int signal) {
  for (const Child& child : children_) kill(-child.pid, signal);
}

}  // namespace rubato
