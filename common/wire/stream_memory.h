// How much memory one end of a data stream takes.
#ifndef RUBATO_COMMON_WIRE_STREAM_MEMORY_H_
#define RUBATO_COMMON_WIRE_STREAM_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "common/frames/codec.h"
#include "common/wire/arena_space.h"
#include "common/wire/shared_arena.h"
#include "common/wire/shared_segment.h"

namespace rubato {

// Resident bytes of a stream between processes of one host: two rings, each mapped twice in a row
// and counted twice; over TCP, the message that is being handled and the next one, which may hold a
// block that is larger than others, and as much in gRPC's buffers.
inline int64_t StreamMemory(bool shares_memory) {
  return shares_memory ? 4 * static_cast<int64_t>(SharedSegment::kRingBytes) : 4 << 20;
}

// Whether blocks of `block_bytes` (of float32) in this codec are lent where memory is shared: of
// whole pages, in float32 and large enough. Only then a process has an arena for them.
inline bool IsLent(bool shares_memory, Codec codec, int64_t block_bytes) {
  return shares_memory && codec == Codec::kFloat32 &&
         block_bytes >= static_cast<int64_t>(kMinLent) &&
         block_bytes % static_cast<int64_t>(kSharedPage) == 0;
}

// Whether workers lend their gradients, if blocks are lent: only if all gradients that a server
// with up to `max_values` values reads from one worker can stay mapped. Mapping them again in every
// step is slower than the ring.
inline bool LendsGradients(int64_t max_values) {
  return static_cast<size_t>(max_values) * sizeof(float) <= SharedArenaView::kMaxResident;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_STREAM_MEMORY_H_
