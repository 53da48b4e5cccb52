#include "common/wire/message.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace rubato {
namespace {

// So that a block that fills a message takes a few small frames along.
constexpr size_t kHeadersBytes = 4096;

// Payloads up to here are copied beside their headers: cheaper than slices of their own.
constexpr size_t kCopiedBytes = 8 << 10;

// The payload by reference; their owner is kept until the slice is gone.
grpc::Slice Reference(Payload payload) {
  auto* owner = new std::shared_ptr<const void>(std::move(payload.owner));
  return grpc::Slice(
      const_cast<char*>(payload.bytes.data()), payload.bytes.size(),
      [](void* user_data) { delete static_cast<std::shared_ptr<const void>*>(user_data); }, owner);
}

}  // namespace

grpc::ByteBuffer TakeMessage(Outbox* outbox) {
  size_t frames = 0, bytes = 0, copied = 0;
  outbox->ForEachWhile([&](const OutgoingFrame& outgoing) {
    const size_t payload = outgoing.payload_bytes();
    if (frames > 0 && bytes + kFrameHeaderBytes + payload > kMessageBytes + kHeadersBytes)
      return false;
    ++frames;
    bytes += kFrameHeaderBytes + payload;
    copied += kFrameHeaderBytes + (payload <= kCopiedBytes ? payload : 0);
    return true;
  });
  // One buffer holds all that is copied; references lie between its parts.
  const grpc_slice buffer = grpc_slice_malloc(copied);
  const grpc::Slice whole(buffer, grpc::Slice::STEAL_REF);
  uint8_t* const begin = const_cast<uint8_t*>(whole.begin());
  uint8_t* at = begin;
  size_t cut = 0;
  std::vector<grpc::Slice> slices;
  for (; frames > 0; --frames) {
    OutgoingFrame outgoing = outbox->PopFront();
    const size_t payload = outgoing.payload_bytes();
    EncodeFrame(HeaderOf(outgoing.frame, outgoing.payload), at);
    at += kFrameHeaderBytes;
    if (payload > kCopiedBytes) {
      slices.push_back(whole.sub(cut, static_cast<size_t>(at - begin)));
      cut = static_cast<size_t>(at - begin);
      slices.push_back(Reference(std::move(outgoing.payload)));
    } else if (payload > 0) {
      std::memcpy(at, outgoing.payload.bytes.data(), payload);
      at += payload;
    }
  }
  if (cut < copied) slices.push_back(whole.sub(cut, copied));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status ReadMessage(
    const grpc::ByteBuffer& message,
    absl::FunctionRef<absl::Status(const Frame& frame, const ReceivedValues& values)> on_frame) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return absl::InvalidArgumentError("message cannot be read");
  std::vector<Piece> pieces;
  std::vector<char> scratch;
  size_t left = 0;
  for (const grpc::Slice& slice : slices) {
    if (slice.size() == 0) continue;
    pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
    left += slice.size();
  }
  absl::Span<const Piece> rest = pieces;  // from the piece at hand on
  size_t offset = 0;                      // in that
  const auto skip = [&](size_t bytes) {
    left -= bytes;
    for (; bytes > 0 && bytes >= rest.front().size() - offset; offset = 0) {
      bytes -= rest.front().size() - offset;
      rest.remove_prefix(1);
    }
    offset += bytes;
  };
  do {
    uint8_t header[kFrameHeaderBytes];
    size_t size = 0;  // of what there is of a header
    while (size < sizeof(header) && left > 0) {
      const Piece piece = rest.front().subspan(offset, sizeof(header) - size);
      std::memcpy(header + size, piece.data(), piece.size());
      size += piece.size();
      skip(piece.size());
    }
    RUBATO_ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(absl::MakeConstSpan(header, size)));
    if (frame.payload_bytes > left) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "frame has a payload of %d bytes; %d follow it", frame.payload_bytes, left));
    }
    RUBATO_ASSIGN_OR_RETURN(const ReceivedValues values,
                            ReceivedValues::Create(frame, rest, offset, &scratch));
    RUBATO_RETURN_IF_ERROR(on_frame(frame, values));
    skip(frame.payload_bytes);
  } while (left > 0);
  return absl::OkStatus();
}

}  // namespace rubato
