// The file state.json of a run's folder (proto/run_state.proto), and term.json, which is what it
// was when the term began. The first is not flushed to the disk; the second is, so that a run whose
// machine has lost power goes on from its checkpoints.
#ifndef RUBATO_SERVER_RUN_RUN_STATE_H_
#define RUBATO_SERVER_RUN_RUN_STATE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/run_folder.h"
#include "proto/run_state.pb.h"

namespace rubato {

// None if there is neither. InvalidArgument, naming them, if neither is whole.
absl::StatusOr<std::optional<proto::RunState>> ReadRunState(const RunFolder& folder);
absl::Status WriteRunState(const RunFolder& folder, const proto::RunState& state);
// The same, of a term that begins, and term.json before.
absl::Status WriteFirstRunState(const RunFolder& folder, const proto::RunState& state);

// How far the run came, by the last line of training in metrics.jsonl and the tests behind it,
// which may be of parameters of long before; zeroes if there is none.
struct LastMetrics {
  int64_t samples = 0;
  double seconds = 0;  // of training
};
LastMetrics ReadLastMetrics(const RunFolder& folder);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_RUN_STATE_H_
