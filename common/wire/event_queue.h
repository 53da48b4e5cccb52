// Waiting for the events of a completion queue.
#ifndef RUBATO_COMMON_WIRE_EVENT_QUEUE_H_
#define RUBATO_COMMON_WIRE_EVENT_QUEUE_H_

#include "common/wire/grpc_types.h"
#include "common/wire/spin_rule.h"

namespace rubato {

// As grpc::CompletionQueue::Next, but spins before it sleeps where `rule` says so, which is the
// calling thread's own: until nothing has moved for kQueueSpinNanos.
bool NextEvent(grpc::CompletionQueue* queue, SpinRule* rule, void** tag, bool* ok);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_EVENT_QUEUE_H_
