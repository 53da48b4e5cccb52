// Invariants of every simulation on symbols. Compares what the shards did to their blocks and what
// the workers computed with the rules of the modes, applied one unit after the other.
#ifndef RUBATO_TOOLS_SIMULATOR_INVARIANTS_H_
#define RUBATO_TOOLS_SIMULATOR_INVARIANTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "tools/simulator/conservation.h"
#include "tools/simulator/observer.h"
#include "tools/simulator/reference.h"
#include "tools/simulator/simulation.h"

namespace rubato {

class Invariants : public Observer {
 public:
  // Of a job of `blocks` blocks on data of `epoch_samples` samples, whose workers are to be given
  // `ahead` of work on arrival, and one of whose gradients of `non_finite_in` is not finite. Judges
  // one term of it.
  Invariants(const proto::Job& job, int64_t epoch_samples, int64_t blocks, SimTime ahead,
             uint64_t non_finite_in, uint32_t term = 1);

  Observer* OfTerm(uint32_t term) override { return term == term_ ? this : nullptr; }
  void OnApplied(int64_t block, const Frame& contribution, const UpdateTerms& terms,
                 int64_t version, uint64_t gradient, uint64_t value) override;
  void OnSkipped(int64_t block, const Frame& contribution, int64_t samples,
                 int64_t version) override;
  void OnLeftOut(uint32_t lineage, int64_t unit) override;
  void OnDiverged(int index) override {
    if (!LeavesOut()) diverged_.insert(index);
  }
  void OnTaken(int64_t block, const WorkerId& worker, uint32_t lineage, int64_t version) override;
  void OnRetired(const WorkerId& worker, uint32_t lineage) override;
  void OnAsked(const WorkerId& worker, uint32_t lineage, int64_t count) override;
  void OnGiven(const WorkerId& worker, uint32_t lineage, int64_t count) override;
  void OnComputeBegins(const WorkerId& worker, uint32_t lineage, int64_t unit, int64_t clock,
                       SimTime now) override;
  void OnComputeEnds(const WorkerId& worker, uint32_t lineage, int64_t unit, int64_t clock,
                     SimTime now) override;
  void OnPushed(const Frame& frame) override;
  void OnView(const proto::View& view, SimTime now) override;

  // The job is about to be stopped, or was before the term's first view: from now on only work that
  // has begun is finished.
  void OnStop();
  // Or with a mode that is to hold up to so many samples.
  void BeginAsked(const proto::Mode& mode, int64_t until_samples) {
    asked_mode_ = mode;
    asked_until_ = until_samples;
  }
  // What is known about the lineage on arrival of a checkpoint: for each block the contributions in
  // it, in order, and the contributions that some worker left out. Empty in sync.
  struct Books {
    std::vector<std::vector<int64_t>> held;
    std::set<int64_t> left_out;
  };
  Books BooksOf(const proto::Manifest& manifest) const;
  // The job goes on from a checkpoint, with `values` of the blocks and the books of who made it.
  void OnResume(const proto::Manifest& manifest, const std::vector<uint64_t>& values,
                const Books& books);
  // The term continues with the blocks that the shards have kept from the term that `before`
  // judges, and takes over its books. `manifest` is the coordinator's description of them, and
  // `value` their values; nullopt where a value is no longer known.
  void GoOnFrom(Invariants* before, const proto::Manifest& manifest,
                absl::FunctionRef<std::optional<uint64_t>(int64_t block)> value);
  // What the blocks begin with is a script's, and not what shards draw.
  void OnInitialValues(const std::vector<uint64_t>& values) { initial_ = values; }
  // A checkpoint is about to be written, with `value` of each block.
  void OnCheckpoint(const proto::Manifest& manifest,
                    absl::FunctionRef<uint64_t(int64_t block)> value);

  // Checks that each mode in force was scheduled at that point of the training, or was requested.
  absl::Status CheckModes(const std::set<std::string>& asked) const;
  // After the end of the job: each contribution exactly once, the bits of the reference, versions,
  // conservation, the account of work.
  absl::Status Check(const Simulation& simulation) const;
  // The same for a job that was stopped when no worker was left to finish its work.
  absl::Status CheckAbandoned(const Simulation& simulation) const;
  // The same as Check for a term that ends here, but only for the contents of its last checkpoint,
  // from which the next term begins.
  absl::Status CheckUpTo(const proto::Manifest& manifest) const;
  // Samples of the units that anybody has begun, and those before them.
  int64_t begun_samples() const;
  // Whether what recurs so often is due after so many units of the term.
  bool IsDue(const proto::Point& every, int64_t unit) const;
  // The first unit that this term gives out anew.
  int64_t begins_with_unit() const { return std::max(first_unit_, resumed_.given); }
  // The last view of the first lineage.
  const proto::View& first_lineage() const { return lineages_.begin()->second; }
  // Where the view's lineage ends: the unit after its last.
  int64_t EndOf(const proto::View& view) const;
  // The units of work up to the end of the last lineage.
  int64_t units() const { return EndOf(view_); }
  const proto::View& view() const { return view_; }
  const proto::Job& job() const { return job_; }
  // What has been violated so far.
  const absl::Status& violated() const { return violated_; }
  uint32_t term() const { return term_; }
  // Who has found what the job is to end with: workers by index, below 0 a shard.
  const std::set<int>& diverged() const { return diverged_; }
  // How often a worker was given several contributions at once.
  int64_t given_ahead() const { return given_ahead_; }
  // The modes that held, in order.
  std::vector<proto::Mode> Modes() const;

 private:
  struct Update {
    Frame contribution;
    UpdateTerms terms;
    uint64_t value;
    bool skipped = false;
    bool restored = false;  // the run before has judged it
  };
  // Of one lineage on arrival.
  struct Law {
    Conservation conservation;
    int64_t staleness = 0;  // of its updates
  };
  struct Block {
    std::vector<Update> log;  // update i makes version i + 1
    std::map<uint32_t, Law> laws;
    std::map<int64_t, int64_t> stale;  // updates on arrival, by their staleness
    std::map<std::pair<uint32_t, WorkerId>, int64_t> taken;  // by lineage: the last version
  };
  struct Counts {
    int64_t applied = 0;   // contributions that all blocks hold
    int64_t left_out = 0;  // others
    int64_t either = 0;   // done once more, and left out where blocks lack what others had left out
    int64_t skipped = 0;  // steps
    int64_t samples = 0;  // trained on
  };
  // Names what a worker computed on arrival: rank, incarnation, lineage, clock.
  using Name = std::tuple<uint32_t, uint32_t, uint32_t, uint64_t>;
  static Name NameOf(const Frame& frame) {
    return {frame.worker, frame.incarnation, frame.lineage, frame.clock};
  }
  // A member of a lineage on arrival.
  struct Runner {
    int64_t clock = 0;  // contributions computed
    bool retired = false;
    int64_t asked = 0;  // contributions that it waits for, by its own word
    int64_t given = 0;  // that it has been given and has not begun
    std::optional<SimTime> computed_at;
    SimTime least = kNever;  // from computing one to computing the next
  };
  // What it may have been given and not begun: a worker that expects `ahead_` of work goes by a
  // mean, which is no shorter than the least.
  int64_t MostAhead(const Runner& runner) const;

  void Violated(absl::Status status) {
    if (violated_.ok()) violated_ = std::move(status);
  }
  // Who is behind `worker`, at `clock`, by more than `most`.
  void CheckGap(const WorkerId& worker, uint32_t lineage, int64_t clock, int64_t most,
                const char* when);
  bool LeavesOut() const {
    return job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP;
  }
  // Whether each update of that kind was judged as a whole before it was made.
  bool IsJudged(const proto::View& view) const {
    return !LeavesOut() && (OnArrival(view.mode()) || job_.optimizer().has_clip_grad_norm());
  }
  Law& LawOf(int64_t block, uint32_t lineage, int64_t version);
  void Append(int64_t block, const Frame& contribution, int64_t version, const Update& update);
  reference::Units UnitsIn(const proto::View& view) const;
  // The lineage that the checkpoint is of; another may have begun since.
  uint32_t LineageOf(const proto::Manifest& manifest) const;
  // Whether that is where the block has come to.
  bool IsLast(const proto::BlockState& state, std::optional<uint64_t> value) const;
  // Of a block of a checkpoint on arrival, from the run before.
  void Restore(const proto::Manifest& manifest, const std::vector<int64_t>& held,
               std::vector<Update>* log) const;
  // Where the last lineage ends, of a job that was stopped.
  int64_t StoppedAt() const;
  absl::Status CheckStop(const Simulation& simulation) const;
  void CheckFirstView(const proto::View& view);
  // Samples in the first updates of a block, and those of them that a verdict left out.
  std::pair<int64_t, int64_t> Held(int64_t block, int64_t version) const;
  uint64_t ValueAt(int64_t block, int64_t version) const;
  // The updates [begin, end) of all blocks, which are of one lineage.
  absl::Status CheckSync(const proto::View& view, int64_t begin, int64_t end, Counts* counts) const;
  absl::Status CheckOnArrival(const proto::View& view, int64_t begin, int64_t end,
                              Counts* counts) const;
  // Of a lineage on arrival, which has these units: the updates of one block from units.begin to
  // `end`; counts those who hold each unit.
  absl::Status CheckBlockOnArrival(const proto::View& view, int64_t block, int64_t end, Range units,
                                   std::map<int64_t, int64_t>* holders) const;
  // Whether update `i` of the block is what its contribution makes of the block, by `terms`.
  absl::Status CheckBitsOnArrival(const reference::Units& of, int64_t block, int64_t i,
                                  const UpdateTerms& terms) const;
  absl::Status CheckTotals(const Simulation& simulation, const Counts& counts) const;
  absl::Status CheckStaleness(const Simulation& simulation) const;

  proto::Job job_;
  uint32_t term_;
  int64_t epoch_samples_;
  int64_t train_samples_;  // of the whole training
  SimTime ahead_;
  uint64_t non_finite_in_;
  std::vector<uint64_t> initial_;  // by block
  std::vector<Block> blocks_;
  // Of the job's first lineage, where it goes on from a checkpoint on arrival.
  struct Resumed {
    int64_t given = 0;        // all units below had been given out
    std::set<int64_t> whole;  // by the checkpoint, on all blocks
    std::set<int64_t> left_out;
  };
  Resumed resumed_;
  bool is_split_ = false;      // it began with a step that only some blocks had taken
  int64_t first_unit_ = 0;     // of this run
  int64_t first_samples_ = 0;  // before it
  std::map<uint32_t, proto::View> lineages_;  // the last view of each
  proto::View view_;
  std::map<Name, std::vector<int64_t>> read_;  // by block: the versions that it was computed at
  std::map<std::pair<uint32_t, WorkerId>, Runner> runners_;
  std::map<uint32_t, std::set<int64_t>> left_out_;  // by lineage: units that somebody left out
  int64_t begun_ = 0;                               // the unit after the last that anybody began
  // The first stop, if there was one, and how far the job was then.
  struct Stopped {
    uint32_t view = 0;
    int64_t begun = 0;
    // On arrival: the unit before which the lineage ends, by what was then begun, in workers' hands
    // or on the way to them.
    int64_t most = 0;
    int64_t updates = 0;
  };
  std::optional<Stopped> stopped_;
  int64_t given_ahead_ = 0;
  std::set<int> diverged_;
  std::optional<proto::Mode> asked_mode_;
  int64_t asked_until_ = 0;
  absl::Status violated_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_INVARIANTS_H_
