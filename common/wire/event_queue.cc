#include "common/wire/event_queue.h"

#include "absl/time/clock.h"

namespace rubato {

bool NextEvent(grpc::CompletionQueue* queue, LookRule* rule, void** tag, bool* ok) {
  if (!rule->MayLook()) return queue->Next(tag, ok);
  const int64_t begin = absl::GetCurrentTimeNanos();
  bool waits = false;
  do {
    switch (queue->AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC))) {
      case grpc::CompletionQueue::GOT_EVENT:
        if (waits) rule->OnLooked(/*found=*/true);  // else it was there before
        return true;
      case grpc::CompletionQueue::SHUTDOWN:
        return false;
      case grpc::CompletionQueue::TIMEOUT:
        waits = true;
    }
  } while (absl::GetCurrentTimeNanos() - begin < LookRule::kNanos);
  rule->OnLooked(/*found=*/false);
  return queue->Next(tag, ok);
}

}  // namespace rubato
