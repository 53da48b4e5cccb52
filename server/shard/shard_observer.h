// Sees all that enters a shard's engine and all that comes of it, and changes nothing: for
// recording it, and for comparing a second time with the first.
#ifndef RUBATO_SERVER_SHARD_SHARD_OBSERVER_H_
#define RUBATO_SERVER_SHARD_SHARD_OBSERVER_H_

#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "proto/record.pb.h"
#include "server/run/recording.h"

namespace rubato {

// On the engine's thread.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;
  // What the engine is about to handle. `values` are a frame's.
  virtual void OnEvent(const proto::ShardEvent& event, absl::Span<const float> values) = 0;
  // What comes of the last event, in order.
  virtual void OnOutcome(const proto::ShardOutcome& outcome) = 0;
};

// Writes it down.
class ShardRecorder : public ShardObserver {
 public:
  explicit ShardRecorder(std::unique_ptr<RecordingWriter> writer) : writer_(std::move(writer)) {}

  void OnEvent(const proto::ShardEvent& event, absl::Span<const float> values) override {
    writer_->Event(event, values);
  }
  void OnOutcome(const proto::ShardOutcome& outcome) override { writer_->Outcome(outcome); }

 private:
  const std::unique_ptr<RecordingWriter> writer_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_OBSERVER_H_
