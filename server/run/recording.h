// A file of all events of one core, in order, with the outcomes of each: enough to run the core
// again (proto/record.proto, tools/replay).
//
// Entries follow one another: the header, then events, each with its outcomes behind it, and an end
// if the process ended in order. An entry is a message and, of an event, floats, behind 20 bytes:
//
//   kind, bytes of the message, bytes of the floats, checksum of these 12 bytes, checksum of the
//   entry
//
// as 32 bits each, little-endian. The checksums (CRC-32C) include the entry's number, so that a
// missing entry is detected like a damaged one.
#ifndef RUBATO_SERVER_RUN_RECORDING_H_
#define RUBATO_SERVER_RUN_RECORDING_H_

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/log.h"
#include "common/files/record_file.h"
#include "google/protobuf/message_lite.h"
#include "proto/record.pb.h"

namespace rubato {

// The files in a folder of recordings.
std::string ShardRecording(const std::string& folder, int shard);
std::string CoordinatorRecording(const std::string& folder);
// Of a process or term that comes after others: shard-1.2.rec behind shard-1.rec, and so on.
std::string NextRecording(const std::string& path);
// All of them that are there, in that order.
std::vector<std::string> Recordings(const std::string& path);

struct RecordingEntry {
  enum class Kind : uint32_t {  // as bytes: "RUB1" opens the file
    kHeader = 0x31425552,
    kEvent = 0x544e5645,    // "EVNT"
    kOutcome = 0x4354554f,  // "OUTC"
    kEnd = 0x20444e45,      // "END "
  };
  Kind kind = Kind::kHeader;
  std::string message;
  std::vector<float> values;
};

// For one thread at a time.
class RecordingWriter {
 public:
  // Will write to `path`, which is made when the first event comes, so that a server that cannot
  // even listen leaves nothing; its folder is made now. AlreadyExists if `path` is there; the error
  // of the folder. `log` must outlive it.
  static absl::StatusOr<std::unique_ptr<RecordingWriter>> Create(std::string path,
                                                                 const proto::RecordHeader& header,
                                                                 const Log* log);
  // Writes the end.
  ~RecordingWriter();
  RecordingWriter(const RecordingWriter&) = delete;

  // Call it before the core handles the event, so that the event is in the file even if the process
  // dies. If the write fails, the recording ends there, with one warning.
  void Event(const google::protobuf::MessageLite& event, absl::Span<const float> values = {});
  // Of the last event. Kept in memory until the next one.
  void Outcome(const google::protobuf::MessageLite& outcome);

 private:
  RecordingWriter(std::string path, const Log* log) : path_(std::move(path)), log_(*log) {}

  // Appends all of the entry but `values` to what is to be written.
  void Add(RecordingEntry::Kind kind, const google::protobuf::MessageLite* message,
           absl::Span<const float> values);
  // Writes what is to be written, and `values`.
  void Write(absl::Span<const float> values);

  const std::string path_;
  const Log& log_;
  std::optional<RecordFile> file_;  // from the first event on
  bool has_failed_ = false;
  uint64_t entries_ = 0;
  std::string pending_;
};

class RecordingReader {
 public:
  // NotFound; InvalidArgument, in one sentence, if the file does not begin as a recording does.
  static absl::StatusOr<RecordingReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const proto::RecordHeader& header() const { return header_; }
  // Of the file, in bytes.
  int64_t size() const { return size_; }

  // The next event or outcome; none at the end. InvalidArgument, in one sentence, if it is damaged.
  // An incomplete last entry, left by a killed process, is ignored.
  absl::StatusOr<std::optional<RecordingEntry>> Next();
  // Events read so far.
  int64_t events() const { return events_; }
  // At the end: whether the process ended in order. Else it was killed, or its disk was full.
  bool has_end() const { return has_end_; }

 private:
  explicit RecordingReader(std::string path) : path_(std::move(path)) {}
  absl::StatusOr<std::optional<RecordingEntry>> Read();
  absl::Status Damaged(absl::string_view what) const;

  std::string path_;
  std::ifstream file_;
  int64_t size_ = 0;
  int64_t at_ = 0;
  uint64_t entries_ = 0;
  int64_t events_ = 0;
  bool has_end_ = false;
  proto::RecordHeader header_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_RECORDING_H_
