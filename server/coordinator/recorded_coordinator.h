// The coordinator's core, with a record of what enters it if one is wanted. The calls are the
// core's own (server/coordinator/coordinator.h); recording them changes nothing.
#ifndef RUBATO_SERVER_COORDINATOR_RECORDED_COORDINATOR_H_
#define RUBATO_SERVER_COORDINATOR_RECORDED_COORDINATOR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/record.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_action.h"
#include "server/run/recording.h"

namespace rubato {

class RecordedCoordinator {
 public:
  // Without a `recording` nothing is recorded. `actions` below are empty before a call.
  explicit RecordedCoordinator(Coordinator core, std::unique_ptr<RecordingWriter> recording);

  const Coordinator& core() const { return core_; }

  void OnMessage(PeerId peer, const proto::PeerMessage& message, absl::Time now,
                 CoordinatorActions* actions);
  void OnPeerGone(PeerId peer, absl::Time now, CoordinatorActions* actions);
  void OnHeartbeat(const WorkerId& worker, absl::Time now);
  void OnTick(absl::Time now, CoordinatorActions* actions);
  void OnCollected(const absl::Status& status, CoordinatorActions* actions);
  void OnCheckpointed(uint32_t snapshot, const absl::StatusOr<std::string>& path, absl::Time now,
                      CoordinatorActions* actions);
  absl::Status RequestCheckpoint(absl::Time now, CoordinatorActions* actions);
  absl::StatusOr<std::string> RequestSwitch(const Mode& mode, absl::Time now,
                                            CoordinatorActions* actions);
  void RequestStop(const absl::Status& end, const std::string& reason, absl::Time now,
                   CoordinatorActions* actions);
  void OnFailure(const absl::Status& status, CoordinatorActions* actions);

 private:
  // What `fill` makes of an event, if one is wanted.
  template <typename Fill>
  void Event(absl::Time now, Fill fill);
  void Outcomes(const CoordinatorActions& actions);

  Coordinator core_;
  std::unique_ptr<RecordingWriter> recording_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_RECORDED_COORDINATOR_H_
