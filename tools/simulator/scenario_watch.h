// Watches the run of a drawn case: the faults that strike it, the coordinator's messages, the
// contents of checkpoints, and the time by which it must end.
#ifndef RUBATO_TOOLS_SIMULATOR_SCENARIO_WATCH_H_
#define RUBATO_TOOLS_SIMULATOR_SCENARIO_WATCH_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/run_state.pb.h"
#include "tools/simulator/finish_bound.h"
#include "tools/simulator/invariants.h"
#include "tools/simulator/kept_folder.h"
#include "tools/simulator/liveness.h"
#include "tools/simulator/recurring.h"
#include "tools/simulator/scenario.h"
#include "tools/simulator/simulation.h"

namespace rubato {

class ScenarioWatch : private Observer {
 public:
  struct Checkpoint {
    proto::Manifest manifest;
    std::vector<uint64_t> symbols;  // by block
    Invariants::Books books;
  };
  // A fault that has struck a message, while the `mode`-th of the modes that held was the last.
  struct Struck {
    Fault::Kind fault;
    SimMessage::Kind message;
    size_t mode;
  };

  // What the job does not survive.
  struct Fatal {
    Fault::Kind kind;
    int server;
    SimTime at;
    bool in_training;  // else the others have not begun, or have ended
  };

  // Registers its callbacks in `setting`, which is the scenario's. All arguments must outlive it;
  // `log`, which may be null, gets the coordinator's views and lines for people.
  ScenarioWatch(const Scenario& scenario, SimulationSetting* setting, std::ostream* log);
  ScenarioWatch(const ScenarioWatch&) = delete;
  // The job goes on from there.
  void OnResume(const Checkpoint& from);
  // The simulation of the setting has been made, and is about to run.
  void Begin(Simulation* simulation);

  const FinishBound& bound() const { return bound_; }
  const Invariants& invariants() const { return invariants_; }
  // The first rule that was broken meanwhile.
  absl::Status violated() const;
  const std::vector<Struck>& struck() const { return struck_; }
  // The first of its kind that has struck.
  const std::optional<Fatal>& fatal() const { return fatal_; }
  bool has_struck(int worker) const { return struck_workers_.count(worker) != 0; }
  // Until then faults have held up what somebody says.
  SimTime late_until() const { return late_until_; }
  // Of stops that came before the end: all, and those by a signal.
  int64_t stops() const { return stops_; }
  int64_t signals() const { return signals_; }
  // By a test that met its target, and by its time.
  bool has_met_target() const { return has_met_target_; }
  bool has_reached_time() const { return has_reached_time_; }
  // The state of the job when it was stopped first, as the coordinator says it.
  const std::string& stopped() const { return stopped_; }
  int64_t checkpoints() const { return checkpoints_; }
  // The last one in sync, and on arrival; and the step of the last of all.
  const std::optional<Checkpoint>& last_in_sync() const { return last_; }
  const std::optional<Checkpoint>& last_on_arrival() const { return last_on_arrival_; }
  const std::optional<int64_t>& last_step() const { return last_step_; }
  // That the last checkpoint of a job that was stopped is of its end, unless the coordinator has
  // said that it could not be written.
  absl::Status CheckResumable() const;
  bool has_continued() const { return has_continued_; }
  // At the end: of what recurs, of lines of metrics, and of what was lost with workers.
  absl::Status CheckDue() const;
  absl::Status CheckMetrics() const;
  // That the best checkpoint is there, of a job that has ended well, and what is told of it true.
  absl::Status CheckBest() const;
  absl::Status CheckResiduals() const;
  // How much of the time that the job had after the last fault it took.
  double share_of_bound() const;
  // How often the job has gone back, and the samples trained in vain, as the coordinator counted
  // them.
  bool has_struck_server() const { return !struck_servers_.empty(); }
  int64_t deaths() const { return deaths_; }
  // So often it went on from what the shards had kept.
  int64_t kept() const { return kept_; }
  int64_t rolled_back() const { return rolled_back_; }
  // Whether the coordinator's machine has lost power.
  bool has_lost_power() const { return has_lost_power_; }
  // Whether the job may not go back once more: as many terms in a row have trained nothing as it
  // bears, and neither has this one.
  bool is_in_vain() const {
    return !HasTrained(simulation_->coordinator().samples()) &&
           in_vain_ >= scenario_.job.max_restarts;
  }

 private:
  // Events of an ended term still count, because its values may be kept.
  Observer* OfTerm(uint32_t term) override;
  void OnView(const proto::View& view, SimTime now) override;
  void OnTerm(const proto::RunState& state, const std::optional<proto::Manifest>& resume);
  // It was ended by a signal, and goes on.
  void OnContinued(const proto::RunState& state, const std::optional<proto::Manifest>& resume);
  void BeginTerm(const proto::RunState& state);
  // Of a term of which nothing has happened.
  Invariants InvariantsOf(uint32_t term) const;
  // The term that has ended, and what the next one begins with.
  absl::Status CheckBegin(const proto::RunState& state,
                          const std::optional<proto::Manifest>& resume) const;
  absl::Status CheckTerm(const proto::RunState& state,
                         const std::optional<proto::Manifest>& resume) const;
  // Whether the term, which has come as far as `samples`, has done more than it began with. Lines
  // come later than samples.
  bool HasTrained(int64_t samples) const { return has_trained_ || samples > began_with_; }
  // The term's first view is about to hold: what it begins with is known.
  void OnFirstView();
  // Checks that going back has a reason: some shard has lost its values of the last term.
  void CheckGoesBack();
  void OnInitialValues(const std::vector<float>& values);
  void OnPowerLoss();
  // A loss of power leaves the state that there is now.
  void OnFlush();
  // What the workers of a view that is over have not sent is lost.
  void CountResiduals(const proto::View& view);
  void OnSwitch(const proto::Mode& mode);
  void Violated(absl::Status status) {
    if (violated_.ok()) violated_ = std::move(status);
  }
  void OnFault(const Fault& fault, SimMessage::Kind message, ProcessId struck);
  void OnFatal(const Fault& fault, int server, SimTime now);
  void OnStop(bool is_signal);
  void OnMetrics(const MetricsLine& line);
  absl::StatusOr<std::string> OnCheckpoint(uint32_t snapshot, const proto::Manifest& manifest);
  void OnText(const std::string& text, absl::Time now);
  void OnView(const proto::View& view, const std::string& reason, absl::Time now);
  // Something has happened that lasts until `until`: from then on the job must end in time.
  void ExtendUntil(SimTime until);

  const Scenario& scenario_;
  std::ostream* const log_;
  const int64_t epoch_samples_;
  const int64_t samples_;
  const FinishBound bound_;
  Invariants invariants_;
  const uint64_t non_finite_in_;
  std::optional<Invariants> before_;  // of the last term that has begun, until the next one does
  int64_t samples_before_ = 0;        // where that ended, as what coordinated it knew
  int64_t told_ = 0;                  // samples, by the term's last line of training
  bool has_trained_ = false;          // by such a line
  int64_t began_with_ = 0;            // samples of this run or earlier ones
  int in_vain_ = 0;                   // terms in a row, up to the last, that have not
  int64_t begins_at_ = 0;             // samples done when the term's first view began
  bool is_stopped_ = false;           // in the term, or before it
  Liveness liveness_;
  Recurring recurring_{scenario_, invariants_};
  std::optional<KeptFolder> folder_;  // of a job that keeps the best checkpoint
  Simulation* simulation_ = nullptr;
  std::vector<Struck> struck_;
  std::optional<Fatal> fatal_;
  std::set<int> struck_workers_;  // by index
  SimTime harmed_until_ = 0;
  SimTime late_until_ = 0;
  int64_t stops_ = 0, signals_ = 0;
  bool has_met_target_ = false, has_reached_time_ = false;
  double seconds_before_ = 0;  // of training, before this run
  std::optional<absl::Time> begun_at_;
  std::string stopped_;
  int64_t checkpoints_ = 0;
  std::optional<Checkpoint> last_, last_on_arrival_;
  // Of both the last; before the first, what the job began with.
  std::optional<Checkpoint> newest_;
  bool newest_is_of_term_ = false;
  struct Asked {
    proto::Mode mode;
    int64_t until = 0;  // samples
  };
  std::optional<Asked> asked_;  // by hand
  std::set<int> struck_servers_;
  bool stop_lasts_ = false;
  int64_t deaths_ = 0;
  int64_t kept_ = 0;
  uint32_t values_of_ = 1;  // the last term that began anew; those behind it went on
  int64_t rolled_back_ = 0;
  // With top-k, residuals that are lost for certain; and the workers of the last view.
  struct Residuals {
    int64_t lost = 0;
    std::set<WorkerId> of;
  } residuals_;
  // What of this a loss of power leaves.
  struct Flushed {
    std::optional<Checkpoint> newest;
    std::optional<Asked> asked;
    bool stop_lasts = false;
    int64_t rolled_back = 0;
    Residuals residuals;
  } flushed_;
  bool has_lost_power_ = false;  // and since the last term that has begun:
  bool knows_less_ = false;
  std::vector<uint64_t> initial_;  // that the job begins with, where a script gives it
  size_t giver_ = 0;               // the last worker that has these
  std::optional<int64_t> last_step_;
  bool has_no_last_checkpoint_ = false;
  bool has_continued_ = false;  // after a signal
  bool has_lost_worker_ = false;
  absl::Status violated_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SCENARIO_WATCH_H_
