// Reads the parameters of all shards, as an observer, over the same streams that workers use.
#ifndef RUBATO_SERVER_COLLECT_H_
#define RUBATO_SERVER_COLLECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/flat_space.h"
#include "proto/view.pb.h"

namespace rubato {

// The whole flat vector, each block at `version` or later. DeadlineExceeded if a shard does not
// answer within `timeout`; the error of a stream that breaks.
absl::StatusOr<std::vector<float>> CollectParameters(const proto::View& view,
                                                     const FlatSpace& space, int64_t version,
                                                     const std::string& job_digest,
                                                     absl::Duration timeout);

// Writes them under the layout's names and shapes; returns TensorsDigest of them.
absl::StatusOr<std::string> WriteParameters(const std::string& path, const proto::Layout& layout,
                                            const std::vector<float>& parameters);

}  // namespace rubato

#endif  // RUBATO_SERVER_COLLECT_H_
