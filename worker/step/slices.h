// The flat vector in slices, of which each GPU of a worker adds up, receives and sends its own.
#ifndef RUBATO_WORKER_STEP_SLICES_H_
#define RUBATO_WORKER_STEP_SLICES_H_

#include <cstdint>

#include "common/space/flat_space.h"

namespace rubato {

// It is cut into chunks, and each chunk into as many slices as there are GPUs, all as long, though
// the last chunk's end behind the vector. A chunk is exchanged at once: so gradients leave while
// backward goes on, and every GPU's link is used all the time.
class Slices {
 public:
  // 1 MiB: copies of less reach less of a link's speed, and each chunk costs the host some calls
  // for each GPU. 256 bytes, by which all that CUDA allocates is aligned.
  static constexpr int64_t kMost = 1 << 18, kAlignment = 64;

  // Of `values` > 0 numbers, for `gpus` > 0; none has more than `most`, a multiple of kAlignment.
  Slices(int64_t values, int gpus, int64_t most = kMost);

  int gpus() const { return gpus_; }
  int64_t values() const { return values_; }
  int64_t chunks() const { return chunks_; }
  Range Chunk(int64_t chunk) const;           // of the vector
  int64_t Length(int64_t chunk) const;        // of each of its slices, a multiple of kAlignment
  Range Slice(int64_t chunk, int gpu) const;  // what of it is of the vector, maybe nothing

  // All slices of one GPU behind one another, each chunk's at Place.
  int64_t Place(int64_t chunk) const { return chunk * most_; }
  int64_t values_of_each() const { return chunks_ * most_; }

  // The vector with what slices have behind it, and how much that is at most.
  int64_t padded_values() const;
  static int64_t Spare(int gpus) { return gpus * kAlignment; }

 private:
  int64_t values_, gpus_, most_, chunks_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_SLICES_H_
