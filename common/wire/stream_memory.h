// What an end of a data stream holds of its process's memory.
#ifndef RUBATO_COMMON_WIRE_STREAM_MEMORY_H_
#define RUBATO_COMMON_WIRE_STREAM_MEMORY_H_

#include <cstdint>

#include "common/wire/channel.h"
#include "common/wire/codec.h"
#include "common/wire/shared_arena.h"
#include "common/wire/shared_segment.h"
#include "proto/job.pb.h"

namespace rubato {

// Bytes that are resident, of a stream between processes of one host. Two rings, each mapped twice
// in a row and counted twice; by TCP what may be under way to a receiver.
inline int64_t StreamMemory(const proto::Wire& wire) {
  return wire.shared_memory() == proto::Wire::SHARED_MEMORY_AUTO
             ? 4 * static_cast<int64_t>(SharedSegment::kRingBytes)
             : kWindowBytes;
}

// Whether blocks in this codec are lent where memory is shared: of whole pages, in float32 and
// large enough. Only then a process has an arena for them.
inline bool IsLent(const proto::Wire& wire, Codec codec) {
  return wire.shared_memory() == proto::Wire::SHARED_MEMORY_AUTO && codec == Codec::kFloat32 &&
         wire.chunk() >= static_cast<int64_t>(kLeastLent) &&
         wire.chunk() % static_cast<int64_t>(kSharedPage) == 0;
}

// Whether workers lend their gradients, if blocks are lent: where all that a server, which holds up
// to `max_values`, reads of one worker may stay mapped. What is mapped again in every step is
// slower than the ring.
inline bool LendsGradients(int64_t max_values) {
  return max_values * sizeof(float) <= SharedArenaView::kMostResident;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_STREAM_MEMORY_H_
