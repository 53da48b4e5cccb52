// Whose the data streams of a shard are. A stream is that of the first worker that its frames name,
// and a member of the shard's view has one stream: so who has a worker's key neither pushes nor
// retires in the name of a member that is there. Pulls name a rank alone, pushes its incarnation
// too. Observers have no name.
#ifndef RUBATO_SERVER_SHARD_STREAM_NAMES_H_
#define RUBATO_SERVER_SHARD_STREAM_NAMES_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace rubato {

class StreamNames {
 public:
  struct Name {
    uint32_t rank = 0;
    uint32_t incarnation = 0;  // 0: not said
  };

  // A frame on `stream` has this name; `is_member`: that of a member of the view that holds.
  // InvalidArgument if the stream has another, or a member another stream.
  absl::Status Check(uint64_t stream, const Name& name, bool is_member);
  // The stream is gone.
  void Forget(uint64_t stream);

 private:
  struct Holder {
    uint32_t incarnation;
    uint64_t stream;
  };

  absl::flat_hash_map<uint64_t, Name> by_stream_;
  absl::flat_hash_map<uint32_t, Holder> by_rank_;  // of members
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_STREAM_NAMES_H_
