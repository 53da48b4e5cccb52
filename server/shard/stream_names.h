// Which worker each data stream of a shard belongs to. A stream belongs to the first worker that
// its frames name. A member of the shard's view has one stream, which must carry the attempt number
// of its registration. So a process with a worker's key can neither push nor retire in the name of
// a member. Pulls name a rank only, pushes also its incarnation. Observers have no name.
#ifndef RUBATO_SERVER_SHARD_STREAM_NAMES_H_
#define RUBATO_SERVER_SHARD_STREAM_NAMES_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "proto/view.pb.h"

namespace rubato {

class StreamNames {
 public:
  struct Name {
    uint32_t rank = 0;
    uint32_t incarnation = 0;  // 0: not said
  };

  // The view that holds.
  void SetMembers(const proto::View& view);
  // A frame on `stream` shows this attempt. What is shown later counts for nothing.
  void Show(uint64_t stream, uint64_t attempt) { shown_.try_emplace(stream, attempt); }
  // A frame on `stream` has this name; `is_member`: that of a member of the view that holds.
  // InvalidArgument if the stream has another, or shows another attempt than the member's, or if
  // the member has another stream.
  absl::Status Check(uint64_t stream, const Name& name, bool is_member);
  // The stream is gone.
  void Forget(uint64_t stream);

 private:
  struct Holder {
    uint32_t incarnation;
    uint64_t stream;
  };

  absl::flat_hash_map<uint32_t, uint64_t> attempts_;  // of members, by rank; not those of 0
  absl::flat_hash_map<uint64_t, uint64_t> shown_;     // by stream
  absl::flat_hash_map<uint64_t, Name> by_stream_;
  absl::flat_hash_map<uint32_t, Holder> by_rank_;  // of members
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_STREAM_NAMES_H_
