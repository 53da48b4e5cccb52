// Any events, behind right checksums, as a recording that `rubato replay` runs again: of a shard or
// of the coordinator, as the first byte says. An event is its message behind two bytes that say how
// long it is and one that says how many floats follow it.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/log.h"
#include "google/protobuf/text_format.h"
#include "proto/record.pb.h"
#include "server/run/recording.h"
#include "tests/fuzz/input.h"
#include "tools/replay/coordinator_replay.h"
#include "tools/replay/shard_replay.h"

namespace {

constexpr char kHeader[] =
    "version: '1.0' job_digest: 'digest' job { "
    "cluster { servers: 1 workers { start: 1 min: 1 max: 2 } address: '127.0.0.1:1' "
    "start_timeout: 60 lease: 5 stall_timeout: 600 } consistency { mode { mode: NAME_ASYNC } } "
    "optimizer { name: NAME_SGD learning_rate: 0.1 momentum: 0.5 } "
    "train { batch_size: 8 micro_batches: 4 until { epochs: 20 } } wire { chunk: 64 } "
    "evaluation { every { epochs: 1 } } metrics { every { steps: 1 } } "
    "checkpoint { every { steps: 4 } } }";

template <typename Event>
void Write(rubato::FuzzInput input, rubato::RecordingWriter* writer) {
  while (!input.empty()) {
    const size_t size = input.Byte() | input.Byte() << 8;
    const std::vector<float> floats(input.Byte() % 64, 0.5f);
    const absl::string_view bytes = input.Bytes(size);
    Event event;
    if (event.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      writer->Event(event, floats);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  FuzzInput input(data, size);
  const bool is_shard = input.Byte() % 2 == 0;
  proto::RecordHeader header;
  RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(kHeader, &header));
  if (is_shard) header.set_shard(0);
  const std::string path = FuzzFolder() + "/replayed.rec";
  std::filesystem::remove(path);
  const Log log("fuzz", -1, LogLevel::kError);
  auto writer = RecordingWriter::Create(path, header, &log);
  RUBATO_CHECK(writer.ok());
  is_shard ? Write<proto::ShardEvent>(input, writer->get())
           : Write<proto::CoordinatorEvent>(input, writer->get());
  *writer = nullptr;
  std::optional<KeptShard> kept;
  const absl::Status status =
      is_shard ? ReplayShard(path, 0, &kept).status() : ReplayCoordinator(path).status();
  RUBATO_CHECK(status.ok() || !status.message().empty());
  return 0;
}
