// The floats of a worker whose gradients a script computes: it is handed one micro-batch after the
// other, with the parameters, and gives each one's gradient back.
#ifndef RUBATO_WORKER_SCRIPT_SCRIPT_VALUES_H_
#define RUBATO_WORKER_SCRIPT_SCRIPT_VALUES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/monotonic.h"
#include "common/space/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "worker/script/script_channel.h"
#include "worker/step/gradient_buffers.h"
#include "worker/step/worker_values.h"

namespace rubato {

class ScriptValues : public WorkerValues, private GradientSums {
 public:
  struct Callbacks {
    // A result of a test has come. On the thread that hears the script, or within StartTest where
    // the script has gone.
    std::function<void(const proto::EvaluationResult& result)> on_tested;
    // The script wants to leave, or has gone. On the same thread.
    std::function<void(absl::Status why)> on_leave;
  };

  // `channel` must outlive it; from here on this alone hears the script. `registration` is without
  // a rank; its layout gives values, which lie in the channel's memory.
  ScriptValues(const proto::Job& job, const proto::WorkerRegistration& registration,
               ScriptAbilities abilities, ScriptChannel* channel, Callbacks callbacks);
  // Hears the script no more.
  ~ScriptValues() override;

  proto::WorkerRegistration Registration() const override { return registration_; }
  std::vector<std::string> notes() const override { return {}; }
  bool copies_parameters() const override { return true; }
  absl::Span<const float> initial() const override { return channel_.parameters(); }
  ReaderMemory reader_memory() override {
    return [this] { return TakeRegion(); };
  }
  void OnView(const proto::View& view, int64_t max_values) override;
  void ReadAhead(const SampleSchedule& schedule, int64_t unit, Range leaves) override;
  void StartTest(int64_t unit, absl::Span<const float> parameters, bool is_final) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void KeepFinal(int64_t unit, absl::Span<const float> parameters) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void EndTests() override ABSL_LOCKS_EXCLUDED(mutex_);

 protected:
  void DropSums() override { buffers_.reset(); }

 private:
  // Of a micro-batch's gradient.
  struct Given {
    int64_t id = -1;
    bool is_whole = false;
    int64_t begin = 0;         // else values from there on are filled
    bool is_in_place = false;  // they are in the sum that was lent, not in the channel's region
    std::optional<int64_t> weight;
    std::optional<double> loss_sum;
  };
  // What a script that adds is told with a micro-batch.
  struct Adding {
    int64_t kept = 0;    // sums of the node that it has kept, outermost first; others are no more
    int64_t adds = 0;    // to how many of them, the last first, it adds the gradient
    bool keeps = false;  // the result, else that is the node's sum, which it gives
  };
  struct Test {
    int64_t unit = 0;
    bool is_final = false;
    bool is_handed_out = false;
    int64_t samples_before = 0;
  };

  // Unavailable if the script has gone.
  absl::StatusOr<std::vector<BatchResult>> Compute(const SampleSchedule& schedule, int64_t unit,
                                                   Range node, absl::Span<const float> parameters,
                                                   Push push, AwaitParameters await) override;
  std::optional<int64_t> weight() const override { return weight_; }
  // Has the script compute one micro-batch, and adds its weight; its gradient is in `sum` or in the
  // channel's region, as given_in_place_ says, or kept by the script. `on_filled` hears meanwhile
  // from where on that is final. InvalidArgument if the weights are more than can be said,
  // Unavailable if the script has gone.
  absl::StatusOr<BatchResult> ComputeLeaf(const SampleSchedule& schedule, int64_t unit,
                                          int64_t leaf, absl::Span<const float> parameters,
                                          absl::Span<float> sum, const Adding& adding,
                                          absl::FunctionRef<void(int64_t begin)> on_filled)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The channel's parameters, if they may change: the script has asked for what is next. Not before
  // it has computed something: until then they are what the job begins with.
  absl::Span<float> TakeRegion() ABSL_LOCKS_EXCLUDED(mutex_);
  // Chooses the next micro-batch's region for a gradient, one that is not being sent any more.
  // Returns whether the other is not, either: only then may this one be sent, or none would be
  // free.
  bool ChooseRegion();
  // Tells the script of the next micro-batch, when it asks.
  void HandOut(const SampleSchedule& schedule, int64_t unit, int64_t leaf,
               absl::Span<const float> parameters, absl::Span<float> sum, const Adding& adding)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Where the script finds memory of this process; null: it cannot.
  nlohmann::json Lend(absl::Span<float> values) const;
  // Waits for values below `done`, or for the whole. Nothing: the script has gone.
  std::optional<Given> AwaitMore(int64_t done) ABSL_LOCKS_EXCLUDED(mutex_);
  nlohmann::json Describe(const SampleSchedule& schedule, int64_t unit, int64_t leaf) const;

  void Hear() ABSL_LOCKS_EXCLUDED(mutex_);
  void On(const nlohmann::json& frame) ABSL_LOCKS_EXCLUDED(mutex_);
  void MaybeHandOutFinal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What came of the test, which is over. What the frame does not say is not known.
  void Tell(const nlohmann::json& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const proto::WorkerRegistration registration_;
  const ScriptAbilities abilities_;
  ScriptChannel& channel_;
  const Callbacks callbacks_;
  const uint64_t seed_;

  // Of the thread that computes.
  std::optional<GradientBuffers> buffers_;
  bool lends_ = false;                          // buffers_ lie where servers read them
  const GradientBuffers::Gradient regions_[2];  // the channel's; shared by what is being sent
  int region_ = 0;                              // of the micro-batch at hand
  nlohmann::json where_;                        // of the view, for the script
  std::optional<SampleSchedule> schedule_;      // likewise
  int64_t weight_ = 0;                          // of the node
  int64_t id_ = 0;
  bool given_in_place_ = false;
  nlohmann::json ahead_ = nlohmann::json::array();
  // With abilities_.samples_once, in this view: unit, leaf.
  std::set<std::pair<int64_t, int64_t>> announced_;

  MonotonicMutex mutex_;
  bool is_asked_ ABSL_GUARDED_BY(mutex_) = false;  // the script waits for what is next
  int asks_before_ ABSL_GUARDED_BY(mutex_) = 0;    // it has not seen what KeepFinal gave it
  bool has_gone_ ABSL_GUARDED_BY(mutex_) = false;
  // The unit whose parameters the script has, as it was told; -1: its region has others, or may be
  // filled in part.
  int64_t has_of_unit_ ABSL_GUARDED_BY(mutex_) = -1;
  Given given_ ABSL_GUARDED_BY(mutex_);
  std::optional<Test> test_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> final_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> ends_ = false;
  std::thread hears_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_SCRIPT_SCRIPT_VALUES_H_
