// Starts the processes of a job, waits for them and ends them, so that none is left behind whatever
// way the launcher itself ends.
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
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace rubato {

// A process to start.
struct Command {
  std::string role;                    // "coordinator", "server", "worker"
  int rank = 0;                        // within its role
  std::vector<std::string> arguments;  // [0] is the path of the program
  std::string log_path;                // gets standard output and error
  // NAME=VALUE, beside the launcher's own: what no argument may show.
  std::vector<std::string> environment = {};
  // The others can go on without it: its failure is kLost, not kFailure, and when all others have
  // ended well, so has the whole.
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
  // It ended because another did, or was left alone by one that stands still.
  bool only_followed = false;
  // By a signal.
  bool killed = false;
};

class Launcher {
 public:
  enum class Event {
    kTimeout,    // nothing has happened
    kAllEnded,   // all have ended well; of the expendable some may still run, or have failed
    kFailure,    // a process has failed: see failure()
    kLost,       // an expendable or restartable process has failed: see lost()
    kInterrupt,  // Interrupt() was called: see interrupted_by()
  };

  // When one process has failed, how long the others have to end by themselves and say why before
  // the failure is judged: the kernel may tell of a victim's end before that of the culprit.
  static constexpr absl::Duration kGrace = absl::Milliseconds(300);
  // The same when those that have ended only followed others, of which several may be meant.
  static constexpr absl::Duration kFollowersGrace = absl::Seconds(1);
  // When all others have ended well, how long the expendable have to do so too.
  static constexpr absl::Duration kLastGrace = absl::Seconds(2);

  explicit Launcher(absl::Duration grace = kGrace);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  // Kills and reaps what still runs.
  ~Launcher();

  // NotFound, PermissionDenied, … if the program or its log cannot be opened.
  absl::Status Start(const Command& command);

  // Waits for the first event, at most `timeout`. kAllEnded, kFailure and kInterrupt are returned
  // again by every later call; kLost once for each process.
  Event Wait(absl::Duration timeout);

  // Wakes Wait. From any thread, any number of times; the first signal is kept.
  void Interrupt(int signal);

  // Kills a process that stands still: it would not end by itself. Whether there was one.
  bool Kill(const std::string& role, int rank);

  // Ends and reaps all processes: SIGTERM, and kPatience later SIGKILL. Returns within kPatience
  // and what the kernel needs: with kGrace before, under two seconds.
  static constexpr absl::Duration kPatience = absl::Milliseconds(1500);
  void Stop();
  // The same in order: SIGTERM for this one process, which then ends the others; when it has ended,
  // or after `patience`, Stop.
  void Stop(const std::string& role, int rank, absl::Duration patience);

  // The first failure. Of several within kGrace, the one that explains most: a signal before exit
  // code 2 before others, those that only followed another last; of two that explain as much one
  // that is not expendable. If all only followed and only one that is not expendable still runs, it
  // is that one, which stands still, and it is killed.
  const std::optional<Failure>& failure() const { return failure_; }
  // What the last kLost is about.
  const Failure& lost() const { return lost_; }
  // One that only followed another, and is yet to be told, if nobody has said more than that.
  const Failure* follower() const;
  int interrupted_by() const { return interrupted_by_; }
  int running() const { return static_cast<int>(children_.size()); }
  // Of this role, with those whose failure has not been told yet.
  int running(const std::string& role) const;

 private:
  struct Child {
    Command command;
    pid_t pid;
    int pid_fd;        // readable when the process has ended
    int log_fd;        // the log may be removed while it is written
    off_t log_begins;  // what was in the log before is another's
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

    // A process that was killed is nobody's victim; one that only followed another waits for that.
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
  // Whether nobody says why, and several run that may be it.
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
  bool stopping_ = false;
  int wake_fd_;
  std::atomic<int> interrupted_by_{0};
};

// Why a process failed, for a person: the last run of `error: ` lines of its log, without that
// mark, or of JSON lines of level fatal; else the same of `stopped: `; else how it ended, with the
// log's last line. `wait_status` is waitpid's.
std::string FailureReason(absl::string_view log, int wait_status);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_LAUNCHER_H_
