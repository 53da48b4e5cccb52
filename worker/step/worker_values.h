// The floats of a worker: gradients on their way to the shards, and tests of parameters, whoever
// computes both (model_values.h, worker/script/script_values.h). What is to be done with them, the
// session decides (worker/session/worker_session.h).
#ifndef RUBATO_WORKER_STEP_WORKER_VALUES_H_
#define RUBATO_WORKER_STEP_WORKER_VALUES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/space/flat_space.h"
#include "common/space/sample_schedule.h"
#include "common/wire/shared_arena.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "proto/view.pb.h"
#include "worker/step/contributions.h"
#include "worker/step/gradient_sums.h"
#include "worker/step/pin_memory.h"
#include "worker/step/push_encoder.h"
#include "worker/step/reader_memory.h"

namespace rubato {

class WorkerValues {
 public:
  virtual ~WorkerValues() = default;

  // What the worker shows of its model and data, without a rank.
  virtual proto::WorkerRegistration Registration() const = 0;
  // What people should know, a sentence each.
  virtual std::vector<std::string> notes() const = 0;
  virtual std::vector<std::string> warnings() const { return {}; }
  const proto::Layout& layout() const { return layout_; }
  const FlatSpace& space() const { return space_; }
  // The parameters with which a computation can begin.
  virtual Range first() const { return {0, space_.values()}; }
  // The flat vector that the job begins with, where layout().gives_values; until the first
  // computation.
  virtual absl::Span<const float> initial() const { return {}; }

  // Forgets what it has not sent: the worker joins as one who has not been here before. An error
  // says why gradients will not be lent, though they might be.
  absl::Status OnJoin();
  // For parameters, by what computes the gradients.
  virtual PinMemory pin() { return nullptr; }
  // For parameters, by who computes the gradients elsewhere.
  virtual ReaderMemory reader_memory() { return nullptr; }
  // Whether what computes has parameters of its own, by the time that the last sum of a computation
  // begins to leave: those that were pulled may change then.
  virtual bool copies_parameters() const { return false; }
  // Gradients lie there; may be null.
  const std::shared_ptr<SharedArena>& arena() const { return arena_; }
  // From now on the members of `view` share the work, with shards of up to `max_values` values.
  virtual void OnView(const proto::View& view, int64_t max_values) = 0;

  // These micro-batches will be computed after those that were announced before.
  virtual void ReadAhead(const SampleSchedule& schedule, int64_t unit, Range leaves) = 0;
  // From OnView on.
  Contributions& contributions() { return *contributions_; }

  // Tests a copy of `parameters`, which have seen `unit` units, beside what else is computed; the
  // final ones on the test split too.
  virtual void StartTest(int64_t unit, absl::Span<const float> parameters, bool is_final) = 0;
  // The job's final parameters, which have seen `unit` units, and which another worker tests.
  virtual void KeepFinal(int64_t /*unit*/, absl::Span<const float> /*parameters*/) {}
  // Ends tests that were started before: no result of theirs is told behind this. It takes as long
  // as a batch of a test, not as long as a test.
  virtual void EndTests() = 0;

 protected:
  WorkerValues(const proto::Job& job, const proto::Layout& layout);

  const proto::Job& job() const { return job_; }
  bool has_sums() const { return contributions_.has_value(); }
  // `sums` make the contributions from now on; they live until DropSums.
  void UseSums(GradientSums* sums);
  // OnJoin: nothing uses them any more.
  virtual void DropSums() = 0;

 private:
  const proto::Job job_;
  const proto::Layout layout_;
  const FlatSpace space_;
  std::shared_ptr<SharedArena> arena_;
  std::optional<PushEncoder> encoder_;
  std::optional<Contributions> contributions_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_WORKER_VALUES_H_
