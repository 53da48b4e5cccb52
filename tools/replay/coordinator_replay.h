// The coordinator's recording, run again through its core, with the times that it was told.
#ifndef RUBATO_TOOLS_REPLAY_COORDINATOR_REPLAY_H_
#define RUBATO_TOOLS_REPLAY_COORDINATOR_REPLAY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/record.pb.h"
#include "proto/view.pb.h"
#include "server/run/metrics.h"
#include "tools/replay/replayed_part.h"

namespace rubato {

struct CoordinatorReplay {
  ReplayedPart part;
  proto::RecordHeader header;
  proto::View view;  // the last one
  // As in views.jsonl, but for their times: they begin at the beginning of time.
  std::vector<std::string> views;
  // Those that were written.
  struct Checkpoint {
    uint32_t snapshot;
    std::string path;
  };
  std::vector<Checkpoint> checkpoints;
  // Of the run, if it came to the point of writing its result.
  std::optional<Summary> summary;
};

// Errors as ReplayShard.
absl::StatusOr<CoordinatorReplay> ReplayCoordinator(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_TOOLS_REPLAY_COORDINATOR_REPLAY_H_
