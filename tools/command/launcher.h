// Starts the processes of a job, waits for them and ends them, so that none is left behind, however
// the launcher itself ends.
//
// Each child leads a process group of its own, so that a terminal's Ctrl-C reaches only the
// launcher, which then ends the others in order; and each asks the kernel to be killed when its
// parent dies (PR_SET_PDEATHSIG), which covers even SIGKILL. The kernel takes the *thread* that
// started a child for its parent: use a launcher on the main thread.
#ifndef RUBATO_TOOLS_COMMAND_LAUNCHER_H_
#define RUBATO_TOOLS_COMMAND_LAUNCHER_H_

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/last_words_file.h"

namespace rubato {

// A process to start.
struct Command {
  std::string role;                    // "coordinator", "server", "worker"
  int rank = 0;                        // within its role
  std::vector<std::string> arguments;  // [0] is the path of the program
  std::string log_path;                // gets standard output and error
  // NAME=VALUE, beside the launcher's own: what no argument may show.
  std::vector<std::string> environment = {};
  std::vector<int> processors = {};  // that it may use, below CPU_SETSIZE; empty: the launcher's
  // The others can continue without this process: its failure is kLost, not kFailure, and the run
  // has ended well when all others have.
  bool expendable = false;
  // Its failure is kLost too, and the others wait until it is started again.
  bool restartable = false;
};

// How a process failed.
struct Failure {
  std::string role;
  int rank = 0;
  int exit_code = 1;   // the process's own; 1 if a signal killed it
  std::string reason;  // one or more lines
  std::string log_path;
  // It ended because another process ended or is frozen.
  bool only_followed = false;
  // By a signal.
  bool killed = false;
  ScriptStage stage = ScriptStage::kOutside;  // of a script: how far it had come
};

class Launcher {
 public:
  enum class Event {
    kTimeout,    // nothing has happened
    kAllEnded,   // all have ended well; of the expendable some may still run, or have failed: see
                 // untold()
    kFailure,    // a process has failed: see failure()
    kLost,       // an expendable or restartable process has failed: see lost()
    kInterrupt,  // Interrupt() was called: see interrupted_by()
  };

  // After a failure, how long the other processes have to end and report their reasons before the
  // failure is judged: the kernel may report the end of a victim before that of the culprit.
  static constexpr absl::Duration kGrace = absl::Milliseconds(300);
  // The same if the processes that have ended only followed others, and several may be the culprit.
  static constexpr absl::Duration kFollowersGrace = absl::Seconds(1);
  // How long expendable processes have to end once all others have ended well, by default.
  static constexpr absl::Duration kLastGrace = absl::Seconds(2);

  explicit Launcher(absl::Duration grace = kGrace);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  // Kills and reaps what still runs.
  ~Launcher();

  void set_last_grace(absl::Duration grace) { last_grace_ = grace; }

  // NotFound, PermissionDenied, … if the program or its log cannot be opened.
  absl::Status Start(const Command& command);

  // Waits for the first event, at most `timeout`. kAllEnded, kFailure and kInterrupt are returned
  // again by every later call; kLost once for each process.
  Event Wait(absl::Duration timeout);

  // Wakes Wait. From any thread, any number of times; the first signal is kept.
  void Interrupt(int signal);

  // Kills a frozen process, which would not end by itself. Returns whether there was one.
  bool Kill(const std::string& role, int rank);
  // All that are not expendable.
  void KillOthers();

  // Ends and reaps all processes: SIGTERM, and after kPatience SIGKILL. Returns within kPatience
  // plus the kernel's time; including a kGrace before it, within two seconds.
  static constexpr absl::Duration kPatience = absl::Milliseconds(1500);
  void Stop();
  // A clean stop: SIGTERM to this one process, which then ends the others; when it has ended, or
  // after `patience`, Stop(). Each time that `patience` is over, `goes_on` may grant it once more.
  void Stop(const std::string& role, int rank, absl::Duration patience,
            absl::FunctionRef<bool()> goes_on);

  // The first failure. Among several within kGrace, the most informative one: first a signal, then
  // exit code 2, then others, and last those that only followed another; of two equal ones, one
  // that is not expendable. If all only followed and only one process that is not expendable still
  // runs, that one is frozen: it counts as the failure and is killed.
  const std::optional<Failure>& failure() const { return failure_; }
  // What the last kLost is about.
  const Failure& lost() const { return lost_; }
  // A failure that only followed another and has not been reported yet, if there is no more
  // informative one.
  const Failure* follower() const;
  // For how long no process runs or may be started again that is not expendable; 0: one does.
  absl::Duration SinceOthersEnded() const;
  // After kAllEnded: how expendable processes failed that no kLost has told of.
  std::vector<Failure> untold() const;
  int interrupted_by() const { return interrupted_by_; }
  int running() const { return static_cast<int>(children_.size()); }
  // Of those that run, by rank.
  std::map<int, ScriptStage> Stages(const std::string& role) const;
  // Of this role; `running` with those whose failure has not been told yet.
  int alive(const std::string& role) const;
  int running(const std::string& role) const;

 private:
  struct Child {
    Command command;
    pid_t pid;
    int pid_fd;        // readable when the process has ended
    int log_fd;        // the log may be removed while it is written
    off_t log_begins;  // what was in the log before is another's
    int stage_fd;      // kStageVariable
    int words_fd;      // last words that the log's disk has not taken (kLastWordsVariable)
  };
  static constexpr int kKilled = 3;  // the weight of who was ended by a signal
  // A failure that is not judged yet.
  struct BadEnd {
    Failure failure;
    int weight;
    bool expendable;
    bool restartable;
    absl::Time time;

    // The grace period of this failure: a process that was killed is not a victim; one that only
    // followed another waits for the culprit.
    absl::Duration Grace(absl::Duration grace) const {
      if (restartable && weight == kKilled) return absl::ZeroDuration();
      return failure.only_followed ? std::max(grace, kFollowersGrace) : grace;
    }
  };

  // Waits until a process ends, Interrupt is called or `deadline` is reached; reaps what has ended.
  void Poll(absl::Time deadline);
  // Until `deadline` or no process is left.
  void Drain(absl::Time deadline);
  void SignalAll(int signal);
  // The one of those that may be started again to be told next: of servers, for which all others
  // wait, the one that explains most.
  std::vector<BadEnd>::iterator NextLost();
  // Of those that are not expendable.
  std::vector<const Child*> Others() const;
  // Whether none of them runs, or may be started again.
  bool HaveOthersEnded() const;
  // Whether no failure has a reason and several running processes may be the culprit.
  bool IsUnexplained() const;
  void Judge();
  // When, after `now`, an event may be due by itself.
  absl::Time NextJudgement(absl::Time now) const;

  std::vector<Child> children_;
  std::vector<BadEnd> bad_ends_;  // in order of time
  std::optional<Failure> failure_;
  Failure lost_;
  const absl::Duration grace_;
  absl::Time others_ended_at_ = absl::InfiniteFuture();  // all, and well
  absl::Duration last_grace_ = kLastGrace;
  bool stopping_ = false;
  int wake_fd_;
  std::atomic<int> interrupted_by_{0};
};

// Why a process failed, for a person: the last consecutive `error: ` lines of its log, without the
// prefix, or JSON lines of level fatal; else the `stopped: ` lines; else how it ended, with the
// exception of the log's last Python traceback, or else the last line that is not a log line of
// level info. `wait_status` is waitpid's.
std::string FailureReason(absl::string_view log, int wait_status);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_LAUNCHER_H_
