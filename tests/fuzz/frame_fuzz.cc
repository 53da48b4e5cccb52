// Any bytes as a message of a data stream, in one slice, in two and in three.
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/check.h"
#include "common/wire/message.h"

namespace {

void Read(const grpc::Slice* slices, size_t count) {
  const absl::Status status =
      rubato::ReadMessage(grpc::ByteBuffer(slices, count),
                          [](const rubato::Frame& frame, const rubato::ReceivedValues& values) {
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
                            for (size_t i = 0; i < copy.size(); ++i) {
                              RUBATO_CHECK(sum[i] == copy[i] || copy[i] != copy[i]);
                            }
                            return absl::OkStatus();
                          });
  (void)status;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const grpc::Slice whole(data, size);
  Read(&whole, 1);
  const size_t half = size / 2;
  const grpc::Slice parts[] = {grpc::Slice(data, half), grpc::Slice(data + half, size - half)};
  Read(parts, 2);
  const size_t third = size / 3;
  const grpc::Slice three[] = {grpc::Slice(data, third), grpc::Slice(data + third, third),
                               grpc::Slice(data + 2 * third, size - 2 * third)};
  Read(three, 3);
  return 0;
}
