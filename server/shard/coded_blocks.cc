#include "server/shard/coded_blocks.h"

#include <atomic>

namespace rubato {

Payload CodedBlocks::Get(int64_t block, int64_t version, Codec codec,
                         absl::Span<const float> values) {
  Coded(&coded)[2] = blocks_[block];
  for (const Coded& one : coded) {
    if (one.version == version && one.codec == codec) {
      return Payload(one.bytes, codec, *one.bytes, values.size());
    }
  }
  Coded& oldest = coded[0].version < coded[1].version ? coded[0] : coded[1];
  oldest.version = version;
  oldest.codec = codec;
  if (oldest.bytes != nullptr && oldest.bytes.use_count() == 1) {
    std::atomic_thread_fence(std::memory_order_acquire);  // after what its last reader did
  } else {                                                // it is still on its way to somebody
    oldest.bytes = std::make_shared<std::vector<char>>();
  }
  oldest.bytes->resize(EncodedBound(codec, values.size()));
  Encode(codec, /*key=*/0, values, oldest.bytes->data());
  return Payload(oldest.bytes, codec, *oldest.bytes, values.size());
}

}  // namespace rubato
