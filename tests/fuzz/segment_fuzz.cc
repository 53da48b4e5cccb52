// Any bytes in a shared segment: what the peer claims to have written and read, and the ring of
// frames; and any text as the offer of one.
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/frames/received_values.h"
#include "common/wire/ring.h"
#include "common/wire/shared_segment.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  constexpr uint64_t kRing = 1 << 12;
  FuzzInput input(data, size);
  const uint64_t claimed = input.Number() * (input.Byte() % 2 == 0 ? 64 : 1);
  RingWriter writer(kRing);
  for (int i = 0; i < 8; ++i) {
    const uint64_t read = input.Number() * 64;
    const uint64_t payload = input.Byte() * 16;
    if (!writer.HasRoom(payload, /*lends=*/false, read)) continue;
    RUBATO_CHECK(RingBytes(payload) <= kRing);
    writer.Write(payload);
  }
  const absl::string_view rest = input.Rest();
  SharedSegment::Open(rest).status().IgnoreError();
  std::vector<char> ring(kRing);  // what is beyond it is not the peer's
  if (!rest.empty()) std::memcpy(ring.data(), rest.data(), std::min(rest.size(), ring.size()));
  const absl::StatusOr<RingFrame> found = ReadRingFrame(ring.data(), claimed, kRing);
  if (!found.ok()) return 0;
  RUBATO_CHECK(found->bytes <= claimed && claimed <= kRing);
  if (found->is_lent()) return 0;  // where that lies, the arena finds
  std::vector<char> scratch;
  const auto values = ReceivedValues::FromOtherProcessor(
      found->frame, Piece(ring.data() + kRingHeader, found->frame.payload_bytes), &scratch);
  if (!values.ok()) return 0;
  std::vector<float> floats(values->size());
  values->CopyTo(absl::MakeSpan(floats));
  return 0;
}
