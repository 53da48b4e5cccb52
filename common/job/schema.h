// What a protobuf message says about the YAML that is read into it: names, what each key expects,
// and which keys have a meaning. See proto/options.proto for the options that carry this.
#ifndef RUBATO_COMMON_JOB_SCHEMA_H_
#define RUBATO_COMMON_JOB_SCHEMA_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "google/protobuf/message.h"

namespace rubato {

// As YAML says it: TYPE_AUTO of the enum Type is "auto".
std::string YamlName(const google::protobuf::EnumValueDescriptor& value);
template <typename Enum>
std::string YamlName(Enum value) {
  return YamlName(*google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value));
}
// nullptr if the enum has no such value.
const google::protobuf::EnumValueDescriptor* FindValue(const google::protobuf::EnumDescriptor& type,
                                                       absl::string_view name);
// Those that are not refused.
std::vector<std::string> ValueNames(const google::protobuf::EnumDescriptor& type);

// Whether the keys of `field`, a message, stand beside it.
bool IsInlined(const google::protobuf::FieldDescriptor& field);
// The field that the key `name` in a map of `type` sets, which may be one of an inlined message;
// nullptr if there is none.
const google::protobuf::FieldDescriptor* FindKey(const google::protobuf::Descriptor& type,
                                                 absl::string_view name);
// What `field`, which FindKey has found, is a field of: `message`, or a message inlined into it.
google::protobuf::Message* OwnerOf(const google::protobuf::FieldDescriptor& field,
                                   google::protobuf::Message* message);
// In the order of the schema.
std::vector<std::string> KeyNames(const google::protobuf::Descriptor& type);
// The field that a scalar sets, or nullptr.
const google::protobuf::FieldDescriptor* Principal(const google::protobuf::Descriptor& type);
// The oneof of which exactly one key must be given, or nullptr.
const google::protobuf::OneofDescriptor* RequiredOneof(const google::protobuf::Descriptor& type);
// Whether a bare name stands for a message of this type: all keys of its required oneof are
// messages.
bool IsChoice(const google::protobuf::Descriptor& type);

// Whether the enum `key` of `message` has one of the values `names`.
bool KeyIs(const google::protobuf::Message& message, const std::string& key,
           const google::protobuf::RepeatedPtrField<std::string>& names);
// Whether `field` has a meaning beside the other values of `message`.
bool IsApplicable(const google::protobuf::Message& message,
                  const google::protobuf::FieldDescriptor& field);
// Whether the defaults alone make a whole message of this type.
bool IsFillable(const google::protobuf::Descriptor& type);

// What the value of `field` should be, for an error message: "an integer from 1 to 4096", "sync or
// async". For a repeated field, of one entry.
std::string Expectation(const google::protobuf::FieldDescriptor& field);
// Likewise of the whole list.
std::string ListExpectation(const google::protobuf::FieldDescriptor& field);

// "a", "a or b", "a, b or c".
std::string JoinOr(const std::vector<std::string>& words);
// Paths of all keys called `name` in `type` that are not in lists.
std::vector<std::string> PathsTo(const google::protobuf::Descriptor& type, absl::string_view name);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_SCHEMA_H_
