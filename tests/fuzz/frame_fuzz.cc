// Any bytes as a message of a data stream, in one slice or in two.
#include <cstdint>
#include <cstring>

#include "common/check.h"
#include "common/wire/message.h"

namespace {

void Read(const grpc::Slice* slices, size_t count) {
  const absl::StatusOr<rubato::Message> message =
      rubato::ParseMessage(grpc::ByteBuffer(slices, count));
  if (!message.ok()) return;
  // What was understood says the same when it is written again.
  uint8_t header[rubato::kFrameHeaderBytes];
  rubato::EncodeFrame(message->frame, header);
  const absl::StatusOr<rubato::Frame> again = rubato::DecodeFrame(header);
  RUBATO_CHECK(again.ok());
  uint8_t second[rubato::kFrameHeaderBytes];
  rubato::EncodeFrame(*again, second);
  RUBATO_CHECK(std::memcmp(header, second, sizeof(header)) == 0);
  // Touches all values.
  volatile float sum = 0;
  for (float value : message->payload.values) sum = sum + value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const grpc::Slice whole(data, size);
  Read(&whole, 1);
  const size_t half = size / 2;
  const grpc::Slice parts[] = {grpc::Slice(data, half), grpc::Slice(data + half, size - half)};
  Read(parts, 2);
  return 0;
}
