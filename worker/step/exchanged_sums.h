// The sums of a worker's GPUs, added by the GPUs: each adds up a slice of all of them, along the
// tree, and sends it to the host over its own link; parameters come the same way back.
#ifndef RUBATO_WORKER_STEP_EXCHANGED_SUMS_H_
#define RUBATO_WORKER_STEP_EXCHANGED_SUMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/exchange.h"
#include "worker/model/model.h"
#include "worker/step/lane_plan.h"
#include "worker/step/slices.h"

namespace rubato {

// For one thread at a time, beside those of the models.
class ExchangedSums {
 public:
  // models: on the exchange's GPUs, in their order, alike, with Slices::Spare values to spare; they
  // must outlive it. places: where sums wait between rounds (WaitingPlaces). ResourceExhausted if a
  // GPU or the host lacks the memory; a GPU has it only if what libraries take later stays free.
  static absl::StatusOr<std::unique_ptr<ExchangedSums>> Create(std::unique_ptr<Exchange> exchange,
                                                               std::vector<Model*> models,
                                                               int64_t places,
                                                               int64_t most = Slices::kMost);

  const Exchange& exchange() const { return *exchange_; }
  // Of parameters and sums, between memory that is not pinned (Model::Pin) and what the GPUs read
  // and write.
  int64_t copied_bytes() const { return copied_bytes_; }

  // Each GPU is sent a slice, and gathers the others'; all have all when it returns. `await` as in
  // Model::Gradient; false if it says no. No model is at work.
  bool SendParameters(absl::Span<const float> parameters, AwaitParameters await);

  // A round of lanes, the i-th GPU the i-th lane, all of whose sums stay (Summing). Chunks, last
  // ones first, are given to the GPUs as all lanes are done with them; they are done when Finish
  // returns. `sum` receives the node's sum, if the round makes it whole.
  void BeginRound(SumsOfRound round, absl::Span<float> sum);
  // Where the chunk begins that is given next, if there is one.
  std::optional<int64_t> next() const;
  // All lanes are done from `done` on. Returns from where on `sum` is whole: without what was given
  // last, for which the host does not wait yet.
  int64_t Give(int64_t done);
  // Of what was given; returns from where on `sum` is whole.
  int64_t Finish();

 private:
  // Of one GPU.
  struct Memory {
    float* parameters;  // the model's
    const float* own;   // the model's sum
    float* received;    // slices of all lanes' sums, chunk by chunk
    float* waiting;     // slices of waiting sums, place by place
    float* sent;        // on the host: slices of parameters, if they are not pinned
    float* staged;      // and of the sum, likewise
  };

  ExchangedSums(std::unique_ptr<Exchange> exchange, std::vector<Model*> models, int64_t places,
                int64_t most);
  absl::Status Allocate();
  void GiveChunk(int64_t chunk);
  void AddSlices(int64_t chunk, int gpu);
  void TakeChunk(int64_t chunk);
  float* Place(int gpu, int64_t place, int64_t chunk) const {
    return memory_[gpu].waiting + place * slices_.values_of_each() + slices_.Place(chunk);
  }

  const std::unique_ptr<Exchange> exchange_;
  const std::vector<Model*> models_;
  const Slices slices_;
  const int64_t places_;
  std::vector<Memory> memory_;
  std::vector<float*> parameters_, received_;  // of all GPUs
  std::vector<const float*> own_;

  SumsOfRound round_;
  absl::Span<float> sum_;
  bool pins_sum_ = false;
  int64_t next_ = -1, untaken_ = -1;  // chunks above are given, and taken
  int64_t copied_bytes_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_EXCHANGED_SUMS_H_
