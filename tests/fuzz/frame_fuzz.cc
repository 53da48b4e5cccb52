// Any bytes as a message of a data stream, in one slice, in two and in three, and as a frame in
// shared memory.
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/wire/message.h"

namespace {

absl::Status Use(const rubato::Frame& frame, const rubato::ReceivedValues& values) {
  // What was understood says the same when it is written again.
  uint8_t header[rubato::kFrameHeaderBytes];
  rubato::EncodeFrame(frame, header);
  const absl::StatusOr<rubato::Frame> again = rubato::DecodeFrame(header);
  RUBATO_CHECK(again.ok());
  uint8_t second[rubato::kFrameHeaderBytes];
  rubato::EncodeFrame(*again, second);
  RUBATO_CHECK(std::memcmp(header, second, sizeof(header)) == 0);
  // Touches all values, twice, and finds the same.
  std::vector<float> copy(values.size()), sum(values.size());
  values.CopyTo(absl::MakeSpan(copy));
  values.AddTo(absl::MakeSpan(sum));
  for (size_t i = 0; i < copy.size(); ++i) RUBATO_CHECK(sum[i] == copy[i] || copy[i] != copy[i]);
  return absl::OkStatus();
}

void Read(const grpc::Slice* slices, size_t count) {
  rubato::ReadMessage(grpc::ByteBuffer(slices, count), Use).IgnoreError();
}

void ReadShared(const uint8_t* data, size_t size) {
  const absl::StatusOr<rubato::Frame> frame = rubato::DecodeFrame({data, size});
  if (!frame.ok() || frame->payload_bytes > size - rubato::kFrameHeaderBytes) return;
  const char* const payload = reinterpret_cast<const char*>(data) + rubato::kFrameHeaderBytes;
  const std::vector<char> ring(payload, payload + frame->payload_bytes);  // where floats may lie
  std::vector<char> scratch;
  const auto values = rubato::ReceivedValues::FromOtherProcessor(*frame, ring, &scratch);
  if (values.ok()) Use(*frame, *values).IgnoreError();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const grpc::Slice whole(data, size);
  Read(&whole, 1);
  ReadShared(data, size);
  const size_t half = size / 2;
  const grpc::Slice parts[] = {grpc::Slice(data, half), grpc::Slice(data + half, size - half)};
  Read(parts, 2);
  const size_t third = size / 3;
  const grpc::Slice three[] = {grpc::Slice(data, third), grpc::Slice(data + third, third),
                               grpc::Slice(data + 2 * third, size - 2 * third)};
  Read(three, 3);
  return 0;
}
