#include "common/wire/message.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"

namespace rubato {

grpc::ByteBuffer MakeMessage(const Frame& frame, const Payload& payload) {
  uint8_t header[kFrameHeaderBytes];
  EncodeFrame(frame, header);
  if (payload.values.empty()) {
    const grpc::Slice slice(header, sizeof(header));
    return grpc::ByteBuffer(&slice, 1);
  }
  auto* owner = new std::shared_ptr<const void>(payload.owner);
  const grpc::Slice slices[2] = {
      grpc::Slice(header, sizeof(header)),
      grpc::Slice(
          const_cast<float*>(payload.values.data()), payload.values.size() * sizeof(float),
          [](void* user_data) { delete static_cast<std::shared_ptr<const void>*>(user_data); },
          owner)};
  return grpc::ByteBuffer(slices, 2);
}

absl::StatusOr<Message> ParseMessage(grpc::ByteBuffer bytes) {
  auto slice = std::make_shared<grpc::Slice>();
  if (!bytes.TrySingleSlice(slice.get()).ok() && !bytes.DumpToSingleSlice(slice.get()).ok()) {
    return absl::InvalidArgumentError("message cannot be read");
  }
  const int64_t size = slice->size();
  Message message;
  RUBATO_ASSIGN_OR_RETURN(
      message.frame,
      DecodeFrame(absl::MakeConstSpan(slice->begin(), std::min<int64_t>(size, kFrameHeaderBytes))));
  const int64_t payload_bytes = size - kFrameHeaderBytes;
  if (payload_bytes % sizeof(float) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("payload has %d bytes; expected a multiple of 4", payload_bytes));
  }
  const size_t count = payload_bytes / sizeof(float);
  const uint8_t* data = slice->begin() + kFrameHeaderBytes;
  if (reinterpret_cast<uintptr_t>(data) % alignof(float) == 0) {
    message.payload.values = absl::MakeConstSpan(reinterpret_cast<const float*>(data), count);
    message.payload.owner = std::move(slice);
  } else {
    auto copy = std::make_shared<std::vector<float>>(count);
    std::memcpy(copy->data(), data, payload_bytes);
    message.payload.values = absl::MakeConstSpan(*copy);
    message.payload.owner = std::move(copy);
  }
  return message;
}

}  // namespace rubato
