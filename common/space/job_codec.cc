#include "common/space/job_codec.h"

#include "common/frames/top_k.h"

namespace rubato {

size_t PushedBytes(const proto::Job& job, Range block_values, int64_t trainable) {
  const Codec codec = PushCodec(job);
  const size_t n = static_cast<size_t>(block_values.size());
  if (HoldsStatistics(block_values, trainable)) return n * sizeof(float);
  if (codec != Codec::kTopK) return EncodedBound(codec, n);
  const size_t k = TopKCount(n, job.wire().push().density());
  return k < n ? EncodedBound(codec, k) : n * sizeof(float);
}

size_t PulledBytes(const proto::Job& job, Range block_values, int64_t trainable) {
  const size_t n = static_cast<size_t>(block_values.size());
  if (HoldsStatistics(block_values, trainable)) return n * sizeof(float);
  return EncodedBound(PullCodec(job), n);
}

}  // namespace rubato
