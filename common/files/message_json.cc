#include "common/files/message_json.h"

#include <google/protobuf/descriptor.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/json.h"

namespace rubato {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void AppendMessage(const Message& message, int depth, std::string* json);

void AppendText(const std::string& text, std::string* json) {
  for (const char c : text) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') {
      json->append(JsonText(nlohmann::json(text)));
      return;
    }
  }
  absl::StrAppend(json, "\"", text, "\"");
}

// With as few digits as give the same number again.
void AppendDouble(double value, std::string* json) {
  if (!std::isfinite(value)) {
    return AppendText(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity", json);
  }
  const std::string text = absl::StrFormat("%.15g", value);
  json->append(std::strtod(text.c_str(), nullptr) == value ? text
                                                           : absl::StrFormat("%.17g", value));
}

// What `field` holds, or element number `index` of it if it is repeated.
void AppendValue(const Message& message, const FieldDescriptor* field, int index, int depth,
                 std::string* json) {
  const google::protobuf::Reflection& of = *message.GetReflection();
  const bool repeats = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrAppend(
          json, repeats ? of.GetRepeatedInt32(message, field, index) : of.GetInt32(message, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrAppend(json, repeats ? of.GetRepeatedUInt32(message, field, index)
                                           : of.GetUInt32(message, field));
    case FieldDescriptor::CPPTYPE_INT64:  // not every reader's numbers hold those
      return absl::StrAppend(
          json, "\"",
          repeats ? of.GetRepeatedInt64(message, field, index) : of.GetInt64(message, field), "\"");
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrAppend(
          json, "\"",
          repeats ? of.GetRepeatedUInt64(message, field, index) : of.GetUInt64(message, field),
          "\"");
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return AppendDouble(
          repeats ? of.GetRepeatedDouble(message, field, index) : of.GetDouble(message, field),
          json);
    case FieldDescriptor::CPPTYPE_BOOL:
      return absl::StrAppend(
          json, (repeats ? of.GetRepeatedBool(message, field, index) : of.GetBool(message, field))
                    ? "true"
                    : "false");
    case FieldDescriptor::CPPTYPE_ENUM:
      return AppendText(
          (repeats ? of.GetRepeatedEnum(message, field, index) : of.GetEnum(message, field))
              ->name(),
          json);
    case FieldDescriptor::CPPTYPE_STRING:
      return AppendText(
          repeats ? of.GetRepeatedString(message, field, index) : of.GetString(message, field),
          json);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return AppendMessage(
          repeats ? of.GetRepeatedMessage(message, field, index) : of.GetMessage(message, field),
          depth, json);
    case FieldDescriptor::CPPTYPE_FLOAT:
      break;
  }
  RUBATO_CHECK(false);  // see the header
}

void BeginLine(int depth, std::string* json) {
  json->push_back('\n');
  json->append(depth, ' ');
}

void AppendMessage(const Message& message, int depth, std::string* json) {
  std::vector<const FieldDescriptor*> fields;  // in the order of their numbers
  message.GetReflection()->ListFields(message, &fields);
  json->push_back('{');
  for (const FieldDescriptor* const field : fields) {
    if (field != fields.front()) json->push_back(',');
    BeginLine(depth + 1, json);
    absl::StrAppend(json, "\"", field->name(), "\": ");
    if (!field->is_repeated()) {
      AppendValue(message, field, 0, depth + 1, json);
      continue;
    }
    json->push_back('[');
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      if (i > 0) json->push_back(',');
      BeginLine(depth + 2, json);
      AppendValue(message, field, i, depth + 2, json);
    }
    BeginLine(depth + 1, json);
    json->push_back(']');
  }
  if (!fields.empty()) BeginLine(depth, json);
  json->push_back('}');
}

}  // namespace

std::string MessageJson(const Message& message) {
  std::string json;
  AppendMessage(message, 0, &json);
  json.push_back('\n');
  return json;
}

}  // namespace rubato
