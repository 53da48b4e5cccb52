// The way between a script and the worker process that takes part for it: frames of JSON over a
// socket, and floats in memory that both have mapped. The script's side is
// python/rubato/core.py.
#ifndef RUBATO_WORKER_SCRIPT_SCRIPT_CHANNEL_H_
#define RUBATO_WORKER_SCRIPT_SCRIPT_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/last_words_file.h"

namespace rubato {

// What a script says, when it registers, that it does.
struct ScriptAbilities {
  bool samples_once = false;  // keeps the samples of micro-batches that were announced
  bool adds = false;          // adds up the gradients of a node of the step's tree
};

// A frame is its length in 4 bytes, little-endian, and so many bytes of a JSON object.
class ScriptChannel {
 public:
  static constexpr uint32_t kMaxFrame = 64 << 20;  // a layout

  // Takes both descriptors: a stream socket's, and that of the memory.
  ScriptChannel(int socket, int memory);
  ScriptChannel(const ScriptChannel&) = delete;
  ~ScriptChannel();

  // The next frame, by one thread. Unavailable if the script has gone; InvalidArgument, in one
  // sentence, if it is no JSON object.
  absl::StatusOr<nlohmann::json> Read();
  // Any thread. A script that has gone hears nothing.
  void Write(const nlohmann::json& frame) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells `rubato train`, if it has started the script (kStageVariable). Any thread.
  void Note(ScriptStage stage) ABSL_LOCKS_EXCLUDED(mutex_);
  // What is noted from now on changes nothing: the script has gone. Any thread.
  void EndNotes() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until the script has read all that was written, or has gone.
  void AwaitRead() const;
  // Read comes to nothing from now on, also where it waits. Any thread.
  void EndReading();

  // Maps the parameters and two gradients of `values` floats each, for which the script has made
  // the memory large enough. InvalidArgument if it has not.
  absl::Status Map(int64_t values);
  absl::Span<float> parameters() const { return Region(0); }
  absl::Span<float> gradient(int index) const { return Region(1 + index); }

 private:
  static constexpr int kRegions = 3;

  absl::Span<float> Region(int index) const;
  absl::Status ReadBytes(char* to, size_t size);

  const int socket_;
  const int memory_;
  int stage_file_;  // -1: nobody asks
  absl::Mutex mutex_;
  ScriptStage stage_ ABSL_GUARDED_BY(mutex_) = ScriptStage::kOutside;
  bool is_noted_ ABSL_GUARDED_BY(mutex_) = true;
  int64_t values_ = 0;
  int64_t region_bytes_ = 0;
  char* mapped_ = nullptr;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_SCRIPT_SCRIPT_CHANNEL_H_
