#include "server/run/tensorboard_file.h"

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/crc32c.h"
#include "common/base/status.h"
#include "proto/tensorboard_event.pb.h"

namespace rubato {
namespace {

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 255);
  return text;
}

// A checksum of data that hold checksums themselves is weak; hence the mask
// (tensorflow/core/lib/hash/crc32c.h).
std::string MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return LittleEndian((crc >> 15 | crc << 17) + 0xa282ead8u, 4);
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

proto::tensorboard::Event EventAt(absl::Time now) {
  proto::tensorboard::Event event;
  event.set_wall_time(absl::ToDoubleSeconds(now - absl::UnixEpoch()));
  return event;
}

}  // namespace

std::string TfRecord(absl::string_view data) {
  const std::string length = LittleEndian(data.size(), 8);
  return absl::StrCat(length, MaskedCrc(length), data, MaskedCrc(data));
}

absl::StatusOr<TensorboardFile> TensorboardFile::Create(const std::string& folder, absl::Time now,
                                                        const std::string& writer) {
  RUBATO_ASSIGN_OR_RETURN(RecordFile file,
                          RecordFile::Open(absl::StrFormat(
                              "%s/events.out.tfevents.%010d.%s", folder, absl::ToUnixSeconds(now),
                              writer.empty() ? absl::StrCat(HostName(), ".", getpid()) : writer)));
  proto::tensorboard::Event event = EventAt(now);
  event.set_file_version("brain.Event:2");
  RUBATO_RETURN_IF_ERROR(file.Append(TfRecord(event.SerializeAsString())));
  return TensorboardFile(std::move(file));
}

absl::Status TensorboardFile::Append(const MetricsLine& line, absl::Time now) {
  proto::tensorboard::Event event = EventAt(now);
  event.set_step(line.step);
  const auto add = [&](absl::string_view figure, double value) {
    proto::tensorboard::Summary::Value& scalar = *event.mutable_summary()->add_value();
    scalar.set_tag(absl::StrCat(KindName(line), "/", figure));
    scalar.set_simple_value(static_cast<float>(value));
  };
  add("loss", line.loss);
  if (line.accuracy.has_value()) add("accuracy", *line.accuracy);
  if (line.kind == MetricsLine::Kind::kTrain) {
    add("learning_rate", line.learning_rate);
    add("samples_per_second", line.samples_per_second);
    add("staleness", line.staleness);
    if (const std::optional<double> hidden = line.overlap.hidden()) {
      add("communication_hidden", *hidden);
    }
  }
  return file_.Append(TfRecord(event.SerializeAsString()));
}

}  // namespace rubato
