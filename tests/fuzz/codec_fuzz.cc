// Any bytes as the payload of any codec: 1 byte for the codec, 2 for how many values, the payload.
#include <cstdint>
#include <vector>

#include "common/base/check.h"
#include "common/frames/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using rubato::Codec;
  using rubato::Encoded;
  if (size < 3 || !rubato::IsCodec(data[0])) return 0;
  const size_t n = data[1] | data[2] << 8;
  const auto bytes = absl::MakeConstSpan(reinterpret_cast<const char*>(data) + 3, size - 3);
  const absl::StatusOr<Encoded> encoded = Encoded::Create(static_cast<Codec>(data[0]), bytes, n);
  if (!encoded.ok()) return 0;
  std::vector<float> values(n);
  encoded->Decode(0, absl::MakeSpan(values));
  // The inside alone, which lies elsewhere in the payload.
  std::vector<float> inside(n / 2);
  encoded->Decode(n / 4, absl::MakeSpan(inside));
  for (size_t i = 0; i < inside.size(); ++i) {
    const float whole = values[n / 4 + i];
    RUBATO_CHECK(inside[i] == whole || (inside[i] != inside[i] && whole != whole));
  }
  return 0;
}
