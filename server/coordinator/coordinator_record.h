// What enters the coordinator's core and what comes of it, as messages of proto/record.proto: how a
// run is recorded, and how a recording is replayed.
#ifndef RUBATO_SERVER_COORDINATOR_COORDINATOR_RECORD_H_
#define RUBATO_SERVER_COORDINATOR_COORDINATOR_RECORD_H_

#include <vector>

#include "absl/time/time.h"
#include "proto/record.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/run/recording.h"

namespace rubato::coordinator {

// What comes of the event; event and outcomes are recorded if `recording` is not null.
Outcomes HandleAndRecord(const Event& event, absl::Time now, Coordinator* core,
                         RecordingWriter* recording);

// What comes of a recorded event.
std::vector<proto::CoordinatorOutcome> Replay(const proto::CoordinatorEvent& event,
                                              Coordinator* core);

}  // namespace rubato::coordinator

#endif  // RUBATO_SERVER_COORDINATOR_COORDINATOR_RECORD_H_
