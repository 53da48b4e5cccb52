#include "server/run/tensorboard_file.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/base/max_count.h"
#include "common/base/status.h"
#include "proto/tensorboard_event.pb.h"

namespace rubato {
namespace {

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

std::string EventPath(const std::string& folder, absl::Time now, const std::string& writer) {
  return absl::StrFormat("%s/events.out.tfevents.%010d.%s", folder, absl::ToUnixSeconds(now),
                         writer.empty() ? absl::StrCat(HostName(), ".", getpid()) : writer);
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
  const std::string path = EventPath(folder, now, writer);
  return Open(path, path, now);
}

absl::StatusOr<TensorboardFile> TensorboardFile::CreateUnpublished(const std::string& folder,
                                                                   absl::Time now) {
  const std::string path = absl::StrCat(folder, "/events.out.copied");
  std::error_code error;
  std::filesystem::remove(path, error);  // that of a process that died
  return Open(path, EventPath(folder, now, ""), now);
}

absl::Status TensorboardFile::Publish() { return file_.Rename(published_); }

absl::StatusOr<TensorboardFile> TensorboardFile::Open(std::string path, std::string published,
                                                      absl::Time now) {
  std::error_code error;
  const bool is_begun = std::filesystem::file_size(path, error) > 0 && !error;
  RUBATO_ASSIGN_OR_RETURN(RecordFile file, RecordFile::Open(std::move(path)));
  TensorboardFile made(std::move(file), std::move(published));
  if (is_begun) return made;
  proto::tensorboard::Event event = EventAt(now);
  event.set_file_version("brain.Event:2");
  RUBATO_RETURN_IF_ERROR(made.file_.Append(TfRecord(event.SerializeAsString())));
  return made;
}

absl::Status TensorboardFile::Append(const MetricsLine& line, absl::Time now) {
  proto::tensorboard::Event event = EventAt(now);
  event.set_step(line.step);
  ForEachFigure(line, [&](const Figure& figure, const Figure::Value& value) {
    if (figure.use != Figure::Use::kCurve) return;
    proto::tensorboard::Summary::Value& scalar = *event.mutable_summary()->add_value();
    scalar.set_tag(absl::StrCat(KindName(line), "/", figure.name));
    scalar.set_simple_value(
        std::visit([](auto number) { return static_cast<float>(number); }, value));
  });
  return file_.Append(TfRecord(event.SerializeAsString()));
}

absl::Status TensorboardFile::AppendJson(const nlohmann::json& line, absl::Time now) {
  if (!line.is_object() || !line.contains("kind") || !line["kind"].is_string()) {
    return absl::OkStatus();
  }
  proto::tensorboard::Event event = EventAt(now);
  const auto add = [&](absl::string_view name, const nlohmann::json& value) {
    proto::tensorboard::Summary::Value& scalar = *event.mutable_summary()->add_value();
    scalar.set_tag(absl::StrCat(line["kind"].get<std::string>(), "/", name));
    // What was not finite is null.
    scalar.set_simple_value(value.is_number() ? value.get<float>()
                                              : std::numeric_limits<float>::quiet_NaN());
  };
  for (const Figure& figure : Figures()) {
    const auto value = line.find(std::string(figure.name));
    if (value == line.end()) continue;
    if (figure.name == "step" && value->is_number()) {
      event.set_step(ClampedCount(value->get<double>()));
    }
    if (figure.use == Figure::Use::kCurve) add(figure.name, *value);
  }
  for (const auto& other : line.items()) {
    if (IsFreeName(other.key())) add(other.key(), other.value());
  }
  return file_.Append(TfRecord(event.SerializeAsString()));
}

}  // namespace rubato
