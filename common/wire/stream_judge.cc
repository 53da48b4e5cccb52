#include "common/wire/stream_judge.h"

#include <string>

#include "absl/strings/str_format.h"

namespace rubato {

void StreamJudge::Violated(const char* rule, End end, const std::string& what) {
  const bool is_server = end.second == StreamCore::Side::kServer;
  on_violation_(absl::InternalError(absl::StrFormat(
      "%s: the %s's end of stream %d %s", rule, is_server ? "shard" : "worker", end.first, what)));
}

void StreamJudge::OnQueued(End end, uint32_t number, bool is_pull, uint64_t block, int64_t bytes) {
  sent_[end].waiting.push_back({number, is_pull, block, bytes});
}

void StreamJudge::OnWrite(End end, uint32_t number) {
  Direction& sent = sent_[end];
  std::vector<Frame>& waiting = sent.waiting;
  if (waiting.empty()) {
    Violated("stream order", end, absl::StrFormat("writes frame %d, and none waits", number));
    return;
  }
  // The first that is the lowest of those before the first pull; or that pull.
  size_t next = 0;
  for (size_t i = 1; i < waiting.size() && !waiting[0].is_pull && !waiting[i].is_pull; ++i) {
    if (waiting[i].block < waiting[next].block) next = i;
  }
  if (waiting[next].number != number) {
    Violated("stream order", end,
             absl::StrFormat("writes frame %d before frame %d, a %s of block %d", number,
                             waiting[next].number, waiting[next].is_pull ? "pull" : "payload",
                             waiting[next].block));
    return;
  }
  if (next > 0) ++overtakings_;
  waiting.erase(waiting.begin() + static_cast<int64_t>(next));
  sent.written.push_back(number);
}

void StreamJudge::OnBeginRead(End end, int64_t max_waiting) {
  int64_t bytes = 0;
  for (const Frame& frame : sent_[end].waiting) bytes += frame.bytes;
  if (bytes <= max_waiting) return;
  Violated("back-pressure", end,
           absl::StrFormat("reads while %d bytes wait to be taken: the limit is %d", bytes,
                           max_waiting));
}

void StreamJudge::OnRead(End end, uint32_t number) {
  Direction& sent = sent_[Other(end)];
  if (number == sent.last_read) return;
  if (sent.written.empty() || sent.written.front() != number) {
    Violated("stream loss", end,
             absl::StrFormat("reads frame %d, and the next that was written is %d", number,
                             sent.written.empty() ? -1 : static_cast<int>(sent.written.front())));
    return;
  }
  sent.written.pop_front();
  sent.last_read = number;
}

void StreamJudge::OnGone(End end) {
  if (gone_.erase(Other(end)) == 0) {  // the other goes on for a while
    gone_.insert(end);
    return;
  }
  sent_.erase(end);
  sent_.erase(Other(end));
}

void StreamJudge::OnDead(End end, bool is_gone) {
  if (!is_gone) Violated("stream end", end, "has lost its connection and goes on");
}

}  // namespace rubato
