// One run of `rubato train`: its folder, its processes, and what is said about them.
#ifndef RUBATO_TOOLS_COMMAND_LOCAL_RUN_H_
#define RUBATO_TOOLS_COMMAND_LOCAL_RUN_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/files/run_folder.h"
#include "common/wire/key.h"
#include "tools/command/frozen_servers.h"
#include "tools/command/launcher.h"
#include "tools/command/plan.h"
#include "tools/command/process_logs.h"
#include "tools/command/progress.h"
#include "tools/command/resume.h"

namespace rubato {

// The programs to start.
struct Programs {
  std::string server, worker;
};

class LocalRun {
 public:
  // All but the folder must outlive it.
  // `worker_variables`: of the environment of workers alone.
  LocalRun(const Plan& plan, const Resume& resume, bool record, const Programs& programs,
           std::vector<std::string> worker_variables, RunFolder folder, Launcher& launcher);

  // Starts all processes, restarts those that fail, and waits for their end. Returns kAllEnded,
  // kFailure (see failure()) or kInterrupt; an error if a process could not be started, or if there
  // are too few workers to continue. Does not end processes that still run: call Stop.
  absl::StatusOr<Launcher::Event> Train();

  // Lets the coordinator end the others, with a last checkpoint, unless it is frozen; then ends the
  // remaining processes.
  void StopInOrder();

  // What the processes have written as they ended. Repeats their warnings.
  void ReadRest();

  // Whether training has begun, as far as it is read.
  bool has_begun() const { return has_begun_; }
  // The process that coordinates, for people.
  std::string head_name() const;
  // The name of a process in messages of others: the worker that writes a log may have returned
  // with another rank.
  std::string NameOf(const Failure& failure) const;
  // After kFailure.
  const Failure& failure() const { return failure_.has_value() ? *failure_ : *launcher_.failure(); }
  // Whether the job has its summary, which is written last, and not because it has diverged.
  bool HasResult() const;
  // Then, or after kAllEnded: a script that failed when the job was done, or in the test of the
  // final parameters if that has come to nothing.
  std::optional<Failure> LateFailure() const;
  // All scripts that have failed as the job ended.
  std::vector<Failure> LateFailures() const;

 private:
  // Whether servers that have ended are started again.
  bool comes_back() const { return plan_.job.cluster().max_restarts() > 0; }
  absl::Status StartWorker(int rank, bool again = false);
  // A worker that is a script.
  absl::Status StartScript(int rank);
  // A shard, of role "server", or the coordinator of its own, number 0.
  absl::Status StartServer(const std::string& role, int rank, const std::string& address);
  // The role of the process that coordinates, whose number in it is 0.
  std::string head_role() const {
    return plan_.job.cluster().dedicated_coordinator() ? "coordinator" : "server";
  }
  absl::Status Start(const std::string& role, int rank, std::vector<std::string> arguments,
                     const std::string& address, std::vector<std::string> variables = {});
  // Returns kTimeout when the address file exists, since nothing else has happened.
  absl::StatusOr<Launcher::Event> AwaitAddress();
  absl::StatusOr<Launcher::Event> Watch();
  // Training has begun with the first view. Says when the mode changes.
  void ReadViews(ProgressDisplay* display);
  // Says once that somebody has removed the run's folder.
  void TellIfRemoved(ProgressDisplay& display);
  // Says once that scripts have ended before the training begins, and how long the others wait.
  void TellOfAbsent(ProgressDisplay& display);
  // When the servers have ended: scripts go on, to save and test, as long as they take. Those that
  // do not hear of the end are killed after cluster.stall_timeout, those outside the job at once.
  void WatchScripts(ProgressDisplay& display);
  // Asks the coordinator how the job stands.
  absl::StatusOr<proto::CommandReply> AskStatus(absl::Duration timeout) const;
  // Whether the job has ended with an error.
  bool HasFailed() const;
  bool HasSummary() const;
  // Whether this process ended because a server is frozen and servers are not restarted: then kills
  // the server, and failure() says so.
  bool IsLeftAlone(const Failure& lost);
  // Starts a process anew if that may help. Whether the run goes on.
  absl::StatusOr<bool> OnLost(const Failure& lost);
  // Whether a script ended with an error that would only recur: before the training, any error;
  // after that, a refusal, or the same error as at the last end of that worker.
  bool WouldComeAgain(const Failure& lost);
  absl::StatusOr<bool> OnLostServer(const Failure& lost);
  // Starts it, if that may be done once more, and says so.
  absl::StatusOr<bool> StartAgain(const Failure& lost);
  // Called when nothing happens: shows that the run is paused or waits for servers, if so, and
  // kills frozen processes. If the pause would never end, lets the coordinator end the run with a
  // checkpoint.
  absl::Status CheckPaused(ProgressDisplay& display);
  // The head has not answered at `now`. Kills it if it is frozen.
  void OnSilence(absl::Time now);

  const Plan& plan_;
  const Resume& resume_;
  const bool record_;
  const Programs& programs_;
  const std::vector<std::string> worker_variables_;
  const RunFolder folder_;
  Launcher& launcher_;
  const JobKey secret_;  // of the job
  const Log log_;
  const std::vector<std::vector<int>> processors_;  // of each worker; none: those of this process
  LineTail views_;
  ProcessLogs logs_;
  bool has_told_of_absent_ = false;
  bool has_said_who_runs_ = false;
  bool is_removed_ = false;  // the run's folder
  std::string address_;      // of the head
  bool has_begun_ = false;
  std::string mode_;
  std::map<std::string, int> restarts_;  // by role and rank
  std::map<int, std::string> errors_;    // of scripts: how each ended the last time
  FrozenServers frozen_;
  std::optional<Failure> failure_;
  bool is_complete_ = false;   // its result was there when a server was lost
  std::vector<Failure> late_;  // of scripts, that are not started again
  absl::Time ask_at_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_LOCAL_RUN_H_
