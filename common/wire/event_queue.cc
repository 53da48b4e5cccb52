#include "common/wire/event_queue.h"

#include <utility>

#include "absl/time/clock.h"

namespace rubato {
namespace {

// A question that takes longer has moved bytes, of an event that is not whole yet.
constexpr int64_t kQuestionNanos = 4000;
// A look ends for good then: enough for a message, and a bound where each question takes so long.
constexpr int64_t kMostNanos = 1000000;

}  // namespace

bool NextEvent(grpc::CompletionQueue* queue, LookRule* rule, void** tag, bool* ok) {
  if (!rule->MayLook()) return queue->Next(tag, ok);
  const int64_t begin = absl::GetCurrentTimeNanos();
  bool waits = false;
  for (int64_t now = begin, moved = begin;
       now - moved < LookRule::kNanos && now - begin < kMostNanos;) {
    switch (queue->AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC))) {
      case grpc::CompletionQueue::GOT_EVENT:
        if (waits) rule->OnLooked(/*found=*/true);  // else it was there before
        return true;
      case grpc::CompletionQueue::SHUTDOWN:
        return false;
      case grpc::CompletionQueue::TIMEOUT:
        waits = true;
    }
    const int64_t before = std::exchange(now, absl::GetCurrentTimeNanos());
    if (now - before > kQuestionNanos) moved = now;
  }
  rule->OnLooked(/*found=*/false);
  return queue->Next(tag, ok);
}

}  // namespace rubato
