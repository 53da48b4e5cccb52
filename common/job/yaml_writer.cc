#include "common/job/yaml_writer.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/job/scalar.h"
#include "common/job/schema.h"
#include "google/protobuf/descriptor.h"
#include "proto/options.pb.h"

namespace rubato {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

// Maps that fit are written in one line.
constexpr size_t kMaxFlow = 76;

// Whether every reader of YAML takes `text`, as it is, for text.
bool IsPlain(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return false;
  }
  if (text.empty() || !(absl::ascii_isalpha(text[0]) || text[0] == '/')) return false;
  for (char c : text) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.' && c != '/') return false;
  }
  return true;
}

std::string WriteText(const std::string& text) {
  if (IsPlain(text)) return text;
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (absl::ascii_iscntrl(c)) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// The value of a scalar field; of entry `index` of a repeated one.
std::string WriteScalar(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& r = *message.GetReflection();
  const bool repeated = field.is_repeated();
  const proto::Unit unit = field.options().GetExtension(proto::unit);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(repeated ? r.GetRepeatedInt32(message, &field, index)
                                   : r.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value =
          repeated ? r.GetRepeatedInt64(message, &field, index) : r.GetInt64(message, &field);
      return unit == proto::UNIT_BYTES ? FormatSize(value) : absl::StrCat(value);
    }
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(repeated ? r.GetRepeatedUInt64(message, &field, index)
                                   : r.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value =
          repeated ? r.GetRepeatedDouble(message, &field, index) : r.GetDouble(message, &field);
      return unit == proto::UNIT_DURATION ? FormatDuration(value) : FormatNumber(value);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return (repeated ? r.GetRepeatedBool(message, &field, index) : r.GetBool(message, &field))
                 ? "true"
                 : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return YamlName(repeated ? *r.GetRepeatedEnum(message, &field, index)
                               : *r.GetEnum(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return WriteText(repeated ? r.GetRepeatedString(message, &field, index)
                                : r.GetString(message, &field));
    default:
      RUBATO_CHECK(false);  // the schema keeps to the types above
      return "";
  }
}

// A field that is set, and what it is a field of: the message itself, or one inlined into it.
struct SetField {
  const Message* owner;
  const FieldDescriptor* field;
};

std::vector<SetField> SetFields(const Message& message) {
  // In the order of declaration; Reflection::ListFields has the order of numbers.
  std::vector<SetField> fields;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const Reflection& reflection = *message.GetReflection();
    if (field->is_repeated() ? reflection.FieldSize(message, field) == 0
                             : !reflection.HasField(message, field)) {
      continue;
    }
    if (IsInlined(*field)) {
      const std::vector<SetField> inlined = SetFields(reflection.GetMessage(message, field));
      fields.insert(fields.end(), inlined.begin(), inlined.end());
    } else {
      fields.push_back({&message, field});
    }
  }
  return fields;
}

std::string WriteFlow(const Message& message);

std::string WriteFlowValue(const Message& message, const FieldDescriptor& field, int index) {
  if (field.message_type() == nullptr) return WriteScalar(message, field, index);
  const Reflection& r = *message.GetReflection();
  return WriteFlow(field.is_repeated() ? r.GetRepeatedMessage(message, &field, index)
                                       : r.GetMessage(message, &field));
}

std::string WriteFlowField(const Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return WriteFlowValue(message, field, 0);
  std::vector<std::string> entries;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    entries.push_back(WriteFlowValue(message, field, i));
  }
  return absl::StrCat("[", absl::StrJoin(entries, ", "), "]");
}

// "{a: 1, b: 2}"; "relu" for a choice without settings.
std::string WriteFlow(const Message& message) {
  const std::vector<SetField> fields = SetFields(message);
  if (IsChoice(*message.GetDescriptor()) && fields.size() == 1 &&
      SetFields(message.GetReflection()->GetMessage(message, fields[0].field)).empty()) {
    return fields[0].field->name();
  }
  std::vector<std::string> entries;
  for (const auto& [owner, field] : fields) {
    entries.push_back(absl::StrCat(field->name(), ": ", WriteFlowField(*owner, *field)));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

bool HasListOfMaps(const Message& message) {
  for (const auto& [owner, field] : SetFields(message)) {
    if (field->is_repeated() && field->message_type() != nullptr) return true;
  }
  return false;
}

using Sources = std::map<std::string, std::string>;

// "  # from --set", of `key` or, with `inner`, of what is in it too; else "".
std::string Comment(const std::string& key, bool inner, const Sources& sources) {
  std::vector<std::string> parts;
  for (const auto& [path, source] : sources) {
    if (path == key) {
      parts.push_back(absl::StrCat("from ", source));
    } else if (inner && absl::StartsWith(path, key + ".")) {
      parts.push_back(absl::StrCat(path.substr(key.size() + 1), " from ", source));
    }
  }
  return parts.empty() ? "" : absl::StrCat("  # ", absl::StrJoin(parts, ", "));
}

// The fields of `message`, which is at `path`, a line or a block of lines each. A choice is never
// written as a block.
void WriteBlock(const Message& message, int indent, const std::string& path, const Sources& sources,
                std::string* out) {
  const std::string margin(indent, ' ');
  for (const auto& [owner, field] : SetFields(message)) {
    const Reflection& reflection = *owner->GetReflection();
    const std::string flow = WriteFlowField(*owner, *field);
    const bool nested = field->message_type() != nullptr;
    const std::string key = path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
    absl::StrAppend(out, margin, field->name(), ":");
    if (nested && field->is_repeated()) {
      absl::StrAppend(out, Comment(key, true, sources), "\n");
      for (int i = 0; i < reflection.FieldSize(*owner, field); ++i) {
        const std::string entry = WriteFlowValue(*owner, *field, i);
        // A choice has one key: "- linear: {...}" reads better than "- {linear: {...}}".
        const bool braced = IsChoice(*field->message_type()) && entry.front() == '{';
        absl::StrAppend(out, margin, "  - ", braced ? entry.substr(1, entry.size() - 2) : entry,
                        "\n");
      }
    } else if (nested && (margin.size() + field->name().size() + flow.size() > kMaxFlow ||
                          HasListOfMaps(reflection.GetMessage(*owner, field)))) {
      absl::StrAppend(out, Comment(key, false, sources), "\n");
      WriteBlock(reflection.GetMessage(*owner, field), indent + 2, key, sources, out);
    } else {
      absl::StrAppend(out, " ", flow, Comment(key, true, sources), "\n");
    }
  }
}

void Flatten(const Message& message, const std::string& path,
             std::map<std::string, std::string>* out) {
  for (const auto& [owner, field] : SetFields(message)) {
    const std::string key = path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
    if (field->message_type() != nullptr && !field->is_repeated() &&
        !IsChoice(*field->message_type())) {
      Flatten(owner->GetReflection()->GetMessage(*owner, field), key, out);
    } else {
      (*out)[key] = WriteFlowField(*owner, *field);
    }
  }
}

}  // namespace

std::map<std::string, std::string> YamlValues(const Message& message) {
  std::map<std::string, std::string> values;
  Flatten(message, "", &values);
  return values;
}

std::string WriteYaml(const Message& message, const Sources& sources) {
  std::string out;
  WriteBlock(message, 0, "", sources, &out);
  return out;
}

}  // namespace rubato
