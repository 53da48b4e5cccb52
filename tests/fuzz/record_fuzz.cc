// Any bytes as a recording; and any message in it as an event or an outcome, whatever the checksums
// say.
#include <cstdint>

#include "proto/record.pb.h"
#include "server/run/recording.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<RecordingReader> reader = RecordingReader::Open(FuzzFile("x.rec", bytes));
  if (!reader.ok()) return 0;
  for (auto entry = reader->Next(); entry.ok() && entry->has_value(); entry = reader->Next()) {
    proto::ShardEvent event;
    event.ParseFromString((*entry)->message);
  }
  return 0;
}
