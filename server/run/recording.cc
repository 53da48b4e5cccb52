#include "server/run/recording.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/base/status.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using Kind = RecordingEntry::Kind;

struct EntryHeader {
  uint32_t kind;
  uint32_t message_bytes;
  uint32_t value_bytes;
  uint32_t header_checksum;
  uint32_t checksum;
};
constexpr int kFormat = 5;       // of the messages (proto/record.proto)
constexpr size_t kChecked = 12;  // bytes that header_checksum is of
static_assert(sizeof(EntryHeader) == 20, "as it lies in the file");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "recordings are little-endian");

template <typename T>
absl::string_view BytesOf(const T& value, size_t size = sizeof(T)) {
  return {reinterpret_cast<const char*>(&value), size};
}

uint32_t HeaderChecksum(uint64_t number, const EntryHeader& header) {
  return Crc32c(BytesOf(header, kChecked), Crc32c(BytesOf(number)));
}

std::string RecordingNumber(const std::string& path, size_t number) {
  return number == 1 ? path : absl::StrCat(absl::StripSuffix(path, ".rec"), ".", number, ".rec");
}

}  // namespace

std::string ShardRecording(const std::string& folder, int shard) {
  return absl::StrCat(folder, "/shard-", shard, ".rec");
}

std::string CoordinatorRecording(const std::string& folder) {
  return absl::StrCat(folder, "/coordinator.rec");
}

std::string NextRecording(const std::string& path) {
  return RecordingNumber(path, Recordings(path).size() + 1);
}

std::vector<std::string> Recordings(const std::string& path) {
  std::vector<std::string> found;
  for (size_t number = 1;; ++number) {
    const std::string next = RecordingNumber(path, number);
    if (access(next.c_str(), F_OK) != 0) return found;
    found.push_back(next);
  }
}

absl::StatusOr<std::unique_ptr<RecordingWriter>> RecordingWriter::Create(
    std::string path, const proto::RecordHeader& header, const Log* log) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot record in ", folder.string()));
  }
  if (fs::exists(path, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(folder.string(), " holds a record already: ", path, " exists"));
  }
  std::unique_ptr<RecordingWriter> writer(new RecordingWriter(std::move(path), log));
  proto::RecordHeader stamped = header;
  stamped.set_format(kFormat);
  writer->Add(Kind::kHeader, &stamped, {});
  return writer;
}

RecordingWriter::~RecordingWriter() {
  if (!file_.has_value()) return;
  Add(Kind::kEnd, nullptr, {});
  Write({});
}

void RecordingWriter::Event(const google::protobuf::MessageLite& event,
                            absl::Span<const float> values) {
  if (has_failed_) return;
  Add(Kind::kEvent, &event, values);
  Write(values);
}

void RecordingWriter::Outcome(const google::protobuf::MessageLite& outcome) {
  if (!has_failed_) Add(Kind::kOutcome, &outcome, {});
}

void RecordingWriter::Add(Kind kind, const google::protobuf::MessageLite* message,
                          absl::Span<const float> values) {
  const size_t begin = pending_.size();
  pending_.resize(begin + sizeof(EntryHeader));
  if (message != nullptr) message->AppendToString(&pending_);
  EntryHeader header;
  header.kind = static_cast<uint32_t>(kind);
  header.message_bytes = static_cast<uint32_t>(pending_.size() - begin - sizeof(EntryHeader));
  header.value_bytes = static_cast<uint32_t>(values.size() * sizeof(float));
  header.header_checksum = HeaderChecksum(entries_, header);
  const absl::string_view content = absl::string_view(pending_).substr(begin + sizeof(EntryHeader));
  header.checksum = Crc32c(AsBytes(values), Crc32c(content, header.header_checksum));
  std::memcpy(&pending_[begin], &header, sizeof(header));
  ++entries_;
}

void RecordingWriter::Write(absl::Span<const float> values) {
  absl::Status status;
  if (!file_.has_value()) {
    absl::StatusOr<RecordFile> file = RecordFile::Open(path_);
    if (file.ok()) file_ = *std::move(file);
    status = file.status();
  }
  if (status.ok()) status = file_->Append({pending_, AsBytes(values)});
  pending_.clear();
  if (status.ok()) return;
  log_.Warning(absl::StrCat("the record of this run ends here: ", status.message()));
  has_failed_ = true;
  file_.reset();
}

absl::StatusOr<RecordingReader> RecordingReader::Open(const std::string& path) {
  RecordingReader reader(path);
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat("found no ", path));
  }
  reader.size_ = static_cast<int64_t>(fs::file_size(path, error));
  reader.file_.open(path, std::ios::binary);
  if (error || !reader.file_) {
    return absl::FailedPreconditionError(absl::StrCat("cannot read ", path));
  }
  uint32_t magic = 0;
  reader.file_.read(reinterpret_cast<char*>(&magic), sizeof(magic));
  if (reader.size_ >= 4 && magic != static_cast<uint32_t>(Kind::kHeader)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no record of Rubato's cores"));
  }
  reader.file_.clear();
  reader.file_.seekg(0);
  RUBATO_ASSIGN_OR_RETURN(const std::optional<RecordingEntry> entry, reader.Read());
  if (!entry.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is truncated: not even its header is whole"));
  }
  if (entry->kind != Kind::kHeader || !reader.header_.ParseFromString(entry->message)) {
    return reader.Damaged("it does not begin with a header");
  }
  if (reader.header_.format() != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s has format %d, expected %d: it was recorded by rubato %s", path,
                        reader.header_.format(), kFormat, reader.header_.version()));
  }
  return reader;
}

absl::Status RecordingReader::Damaged(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is damaged after event %d, at byte %d: %s", path_, events_, at_, what));
}

absl::StatusOr<std::optional<RecordingEntry>> RecordingReader::Read() {
  EntryHeader header;
  if (size_ - at_ < static_cast<int64_t>(sizeof(header))) return std::nullopt;
  file_.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (!file_) return Damaged("it cannot be read");
  if (HeaderChecksum(entries_, header) != header.header_checksum) {
    return Damaged("the checksum of what follows is another, or an entry is missing");
  }
  const int64_t end =
      at_ + static_cast<int64_t>(sizeof(header)) + header.message_bytes + header.value_bytes;
  if (end > size_) return std::nullopt;
  RecordingEntry entry;
  entry.kind = static_cast<Kind>(header.kind);
  entry.message.resize(header.message_bytes);
  entry.values.resize(header.value_bytes / sizeof(float));
  file_.read(entry.message.data(), header.message_bytes);
  file_.read(reinterpret_cast<char*>(entry.values.data()), header.value_bytes);
  if (!file_) return Damaged("it cannot be read");
  const uint32_t checksum = Crc32c(AsBytes(absl::MakeConstSpan(entry.values)),
                                   Crc32c(entry.message, header.header_checksum));
  if (checksum != header.checksum) return Damaged("the checksum of the next entry is another");
  at_ = end;
  ++entries_;
  return entry;
}

absl::StatusOr<std::optional<RecordingEntry>> RecordingReader::Next() {
  if (has_end_) return std::nullopt;
  RUBATO_ASSIGN_OR_RETURN(std::optional<RecordingEntry> entry, Read());
  if (!entry.has_value()) return std::nullopt;
  switch (entry->kind) {
    case Kind::kEvent:
      ++events_;
      return entry;
    case Kind::kOutcome:
      return entry;
    case Kind::kEnd:
      has_end_ = true;
      if (at_ != size_) return Damaged("something follows its end");
      return std::nullopt;
    default:
      return Damaged("an entry is of no known kind");
  }
}

}  // namespace rubato
