#include "common/frames/frame.h"

#include <cstring>

#include "absl/strings/str_format.h"

namespace rubato {
namespace {

// "RUB" and the version of the protocol.
constexpr uint32_t kMagic = 0x06425552;

// Fields follow one another in this order; the rest of the header is zero.
template <typename Visit>
void VisitFields(Frame& frame, Visit visit) {
  visit(frame.view);
  visit(frame.worker);
  visit(frame.incarnation);
  visit(frame.block_count);
  visit(frame.block);
  visit(frame.clock);
  visit(frame.version);
  visit(frame.samples);
  visit(frame.first_leaf);
  visit(frame.end_leaf);
  visit(frame.staleness);
  visit(frame.unit);
  visit(frame.slot);
  visit(frame.snapshot);
  visit(frame.lineage);
  visit(frame.payload_bytes);
  visit(frame.values);
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian");

}  // namespace

void EncodeFrame(const Frame& frame, uint8_t* out) {
  std::memset(out, 0, kFrameHeaderBytes);
  std::memcpy(out, &kMagic, sizeof(kMagic));
  out[4] = static_cast<uint8_t>(frame.kind);
  out[5] = static_cast<uint8_t>(frame.codec);
  uint8_t* at = out + 8;
  Frame copy = frame;
  VisitFields(copy, [&at](auto& field) {
    std::memcpy(at, &field, sizeof(field));
    at += sizeof(field);
  });
  static_assert(8 + 4 * 4 + 3 * 8 + 4 * 4 + 8 + 5 * 4 <= kFrameHeaderBytes,
                "the header holds them");
}

absl::StatusOr<Frame> DecodeFrame(absl::Span<const uint8_t> header) {
  if (static_cast<int64_t>(header.size()) < kFrameHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("frame has %d bytes; a header has %d", header.size(), kFrameHeaderBytes));
  }
  uint32_t magic;
  std::memcpy(&magic, header.data(), sizeof(magic));
  if (magic != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrFormat("frame begins with %08x; expected %08x", magic, kMagic));
  }
  Frame frame;
  const uint8_t kind = header[4];
  if (kind < 1 || kind > 5) {
    return absl::InvalidArgumentError(absl::StrFormat("frame has kind %d; expected 1 to 5", kind));
  }
  frame.kind = static_cast<FrameKind>(kind);
  if (!IsCodec(header[5])) {
    return absl::InvalidArgumentError(
        absl::StrFormat("frame has codec %d; expected 0 to %d", header[5], Codec::kTopK));
  }
  frame.codec = static_cast<Codec>(header[5]);
  const uint8_t* at = header.data() + 8;
  VisitFields(frame, [&at](auto& field) {
    std::memcpy(&field, at, sizeof(field));
    at += sizeof(field);
  });
  return frame;
}

}  // namespace rubato
