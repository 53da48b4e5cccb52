#include "common/wire/event_queue.h"

#include <grpcpp/grpcpp.h>

#include "common/base/monotonic.h"

namespace rubato {

bool NextEvent(grpc::CompletionQueue* queue, SpinRule* rule, void** tag, bool* ok) {
  if (!rule->MaySpin()) return queue->Next(tag, ok);
  rule->Begin(MonotonicNanos());
  bool waits = false;
  do {
    switch (queue->AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC))) {
      case grpc::CompletionQueue::GOT_EVENT:
        if (waits) rule->OnSpun(/*found=*/true);  // else it was there before
        return true;
      case grpc::CompletionQueue::SHUTDOWN:
        return false;
      case grpc::CompletionQueue::TIMEOUT:
        waits = true;
    }
  } while (rule->MayAskAgain(MonotonicNanos()));
  rule->OnSpun(/*found=*/false);
  return queue->Next(tag, ok);
}

}  // namespace rubato
