// The file state.json of a run's folder (proto/run_state.proto), and term.json, which is what it
// was when the term began, and soon afterwards when its first view held. The first is not flushed
// to the disk; the second is, so that a run whose machine has lost power goes on from its
// checkpoints, or from the values that shards on other machines have kept of the term.
#ifndef RUBATO_SERVER_RUN_RUN_STATE_H_
#define RUBATO_SERVER_RUN_RUN_STATE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/run_folder.h"
#include "proto/run_state.pb.h"
#include "server/run/last_metrics.h"

namespace rubato {

// None if there is neither. InvalidArgument, naming them, if neither is whole.
absl::StatusOr<std::optional<proto::RunState>> ReadRunState(const RunFolder& folder);
absl::Status WriteRunState(const RunFolder& folder, const proto::RunState& state);
// The same, of a term that begins, and term.json before.
absl::Status WriteFirstRunState(const RunFolder& folder, const proto::RunState& state);
// term.json alone.
absl::Status WriteTermState(const RunFolder& folder, const proto::RunState& state);

// Of metrics.jsonl; zeroes if there is none.
LastMetrics ReadLastMetrics(const RunFolder& folder);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_RUN_STATE_H_
