// What an end of a data stream holds of its process's memory.
#ifndef RUBATO_COMMON_WIRE_STREAM_MEMORY_H_
#define RUBATO_COMMON_WIRE_STREAM_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "common/frames/codec.h"
#include "common/wire/arena_space.h"
#include "common/wire/channel.h"
#include "common/wire/shared_arena.h"
#include "common/wire/shared_segment.h"

namespace rubato {

// Bytes that are resident, of a stream between processes of one host. Two rings, each mapped twice
// in a row and counted twice; by TCP what may be under way to a receiver.
inline int64_t StreamMemory(bool shares_memory) {
  return shares_memory ? 4 * static_cast<int64_t>(SharedSegment::kRingBytes) : kWindowBytes;
}

// Whether blocks of `block_bytes` (of float32) in this codec are lent where memory is shared: of
// whole pages, in float32 and large enough. Only then a process has an arena for them.
inline bool IsLent(bool shares_memory, Codec codec, int64_t block_bytes) {
  return shares_memory && codec == Codec::kFloat32 &&
         block_bytes >= static_cast<int64_t>(kMinLent) &&
         block_bytes % static_cast<int64_t>(kSharedPage) == 0;
}

// Whether workers lend their gradients, if blocks are lent: where all that a server, which holds up
// to `max_values`, reads of one worker may stay mapped. What is mapped again in every step is
// slower than the ring.
inline bool LendsGradients(int64_t max_values) {
  return static_cast<size_t>(max_values) * sizeof(float) <= SharedArenaView::kMaxResident;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_STREAM_MEMORY_H_
