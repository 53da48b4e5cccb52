// What enters the coordinator's core and what comes of it, as messages of proto/record.proto.
#ifndef RUBATO_SERVER_COORDINATOR_COORDINATOR_EVENTS_H_
#define RUBATO_SERVER_COORDINATOR_COORDINATOR_EVENTS_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/record.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_action.h"

namespace rubato {

proto::Result ToResult(const absl::Status& status);
absl::Status FromResult(const proto::Result& result);

proto::CoordinatorOutcome OutcomeOf(const CoordinatorAction& action);
// What a person is answered.
proto::CoordinatorOutcome AnswerOf(const absl::StatusOr<std::string>& answer);

// Calls the core as it was called, and adds to what came of it.
void Repeat(const proto::CoordinatorEvent& event, Coordinator* core,
            std::vector<proto::CoordinatorOutcome>* outcomes);

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_COORDINATOR_EVENTS_H_
