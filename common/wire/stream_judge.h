// Checks the invariants of every data stream, under any fault of its connection, from the actions
// of its two ends. Among the frames that wait before the first pull the lowest block goes first; no
// frame overtakes a pull; frames of one block keep their order. Each frame is read once, in the
// order of writing, unless the stream ends. Nothing is read from a peer that does not take its
// answers. An end whose connection is gone ends.
#ifndef RUBATO_COMMON_WIRE_STREAM_JUDGE_H_
#define RUBATO_COMMON_WIRE_STREAM_JUDGE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/wire/stream_core.h"

namespace rubato {

class StreamJudge {
 public:
  // One end of the stream with this number.
  using End = std::pair<int32_t, StreamCore::Side>;

  // `on_violation` gets an Internal error that begins with the name of what does not hold.
  explicit StreamJudge(std::function<void(const absl::Status&)> on_violation)
      : on_violation_(std::move(on_violation)) {}

  // An end is given its frame `number` to send.
  void OnQueued(End end, uint32_t number, bool is_pull, uint64_t block, int64_t bytes);
  // It gives it to the network.
  void OnWrite(End end, uint32_t number);
  // A write has failed: what waits is dropped.
  void OnWriteFailed(End end) { sent_[end].waiting.clear(); }
  // A server's end, which is to read only while at most `max_waiting` bytes wait, begins to.
  void OnBeginRead(End end, int64_t max_waiting);
  // It reads the other's frame `number`. A fault may have doubled it.
  void OnRead(End end, uint32_t number);
  void OnGone(End end);
  // Its connection is gone, and all that follows has been done.
  void OnDead(End end, bool is_gone);

  // Frames that were written before others that had been queued before them.
  int64_t overtakings() const { return overtakings_; }

 private:
  struct Frame {
    uint32_t number;
    bool is_pull;
    uint64_t block;
    int64_t bytes;
  };
  // What one end sends to the other.
  struct Direction {
    std::vector<Frame> waiting;    // in the order of the calls
    std::deque<uint32_t> written;  // and not read
    uint32_t last_read = 0;
  };

  static End Other(End end) {
    const bool is_server = end.second == StreamCore::Side::kServer;
    return {end.first, is_server ? StreamCore::Side::kWorker : StreamCore::Side::kServer};
  }
  void Violated(const char* rule, End end, const std::string& what);

  const std::function<void(const absl::Status&)> on_violation_;
  std::map<End, Direction> sent_;  // by the end that sends
  std::set<End> gone_;             // whose other end is not
  int64_t overtakings_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_STREAM_JUDGE_H_
