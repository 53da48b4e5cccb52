// Reads YAML into a protobuf message by reflection: the message, with the options of
// proto/options.proto, is the schema, and adding a field to it needs no code here.
#ifndef RUBATO_COMMON_JOB_YAML_READER_H_
#define RUBATO_COMMON_JOB_YAML_READER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/job/report.h"
#include "google/protobuf/message.h"

namespace YAML {
class Node;
}

namespace rubato {

// Fills one message from one document and any number of overrides. Mistakes do not end the reading:
// they are collected in the report, and what is wrong is left unset.
//
//   YamlReader reader(&job);
//   RUBATO_RETURN_IF_ERROR(reader.ReadDocument(text, "job.yaml"));
//   reader.ReadOverride("optimizer.learning_rate=0.1");
//   Complete(&job, &reader.report());
//   return reader.report().ToStatus();
class YamlReader {
 public:
  // `message` must outlive the reader, and be empty.
  explicit YamlReader(google::protobuf::Message* message) : message_(message) {}

  // Reads a whole document. `file` is the name that mistakes give, and relative paths in the
  // document are relative to its folder. InvalidArgument, in one line, if the text is not one map
  // of YAML; then there is nothing to go on with.
  absl::Status ReadDocument(absl::string_view text, const std::string& file);

  // Reads "KEY=VALUE", where KEY is a path of keys with dots and VALUE is YAML, in place of what
  // stood there.
  void ReadOverride(absl::string_view assignment);
  // The same for a key that the variable `variable` of the environment sets.
  void ReadVariable(const std::string& variable, const std::string& key, const std::string& value);
  // The same for a key of something else, which mistakes name as `source`.
  void ReadKey(const std::string& source, const std::string& key, const std::string& value);

  // Reads "VALUE,KEY=VALUE,...", the value of the flag `flag`: the first is the principal's.
  void ReadFlag(const std::string& flag, absl::string_view text);

  // For checks beyond the schema, which add their own mistakes.
  Report& report() { return report_; }

 private:
  using Message = google::protobuf::Message;
  using Field = google::protobuf::FieldDescriptor;

  // Puts `value` in the place of `path`, for the override at `place`.
  void Override(const std::string& path, const std::string& value, const Place& place);
  // Puts the YAML in `text` in place of what `field` held.
  void Assign(const std::string& text, const std::string& key, const Place& place,
              const Field& field, Message* message);
  void ReadMap(const YAML::Node& map, const std::string& key, Message* message);
  // `place` is where the key stands; the value's own place is taken where it has one.
  void ReadField(const YAML::Node& value, const std::string& key, const Place& place,
                 const Field& field, Message* message);
  void ReadMessage(const YAML::Node& value, const std::string& key, const Place& place,
                   const Field& field, Message* parent, Message* message);
  void ReadChoice(const YAML::Node& value, const std::string& key, const Place& place,
                  Message* message);
  void ReadScalar(const YAML::Node& value, const std::string& key, const Place& place,
                  const Field& field, Message* message);
  void ReadEnum(const YAML::Node& value, const std::string& key, const Place& place,
                const Field& field, Message* message);
  void ReadString(const YAML::Node& value, const std::string& key, const Place& place,
                  const Field& field, Message* message);
  void Reject(const YAML::Node& value, const std::string& key, const Place& place,
              const std::string& expected);
  void RejectKey(const std::string& name, const std::string& parent, const Place& place,
                 const google::protobuf::Descriptor& type);

  Place PlaceOf(const YAML::Node& node, const Place& otherwise) const;

  Message* message_;
  Report report_;
  std::string source_;  // what mistakes name
  std::string folder_;  // that paths are relative to
  // What is being read: an override's place, and how it would spell another key.
  std::optional<Place> override_;
  std::string (*spell_)(absl::string_view key) = nullptr;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_YAML_READER_H_
