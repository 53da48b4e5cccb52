#include "common/job/schema.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/job/scalar.h"
#include "proto/options.pb.h"

namespace rubato {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldOptions;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;

namespace {

// "UpperCamel" as "UPPER_CAMEL_": how Google's style begins the values of an enum.
std::string ValuePrefix(const EnumDescriptor& type) {
  std::string prefix;
  for (char c : type.name()) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  return prefix + "_";
}

std::string Bound(const FieldDescriptor& field, double value) {
  switch (field.options().GetExtension(proto::unit)) {
    case proto::UNIT_DURATION:
      return value == 0 ? "0" : FormatDuration(value);
    case proto::UNIT_BYTES:
      return FormatSize(static_cast<int64_t>(value));
    case proto::UNIT_NONE:
      break;
  }
  // Integers and small numbers without an exponent.
  if (value == static_cast<double>(static_cast<int64_t>(value))) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  return FormatNumber(value);
}

// `noun` with the bounds of `field`: "a number above 0".
std::string Bounded(const FieldDescriptor& field, absl::string_view noun) {
  const FieldOptions& options = field.options();
  const auto bound = [&](const auto& extension) {
    return Bound(field, options.GetExtension(extension));
  };
  const bool at_least = options.HasExtension(proto::at_least);
  const bool at_most = options.HasExtension(proto::at_most);
  if (at_least && at_most) {
    if (bound(proto::at_least) == bound(proto::at_most)) return bound(proto::at_least);
    return absl::StrCat(noun, " from ", bound(proto::at_least), " to ", bound(proto::at_most));
  }
  std::vector<std::string> limits;
  if (at_least) limits.push_back("at least " + bound(proto::at_least));
  if (options.HasExtension(proto::above)) limits.push_back("above " + bound(proto::above));
  if (at_most) limits.push_back("at most " + bound(proto::at_most));
  if (options.HasExtension(proto::below)) limits.push_back("below " + bound(proto::below));
  return limits.empty() ? std::string(noun)
                        : absl::StrCat(noun, " ", absl::StrJoin(limits, " and "));
}

std::string NumberExpectation(const FieldDescriptor& field) {
  const FieldOptions& options = field.options();
  switch (options.GetExtension(proto::unit)) {
    case proto::UNIT_DURATION:
      return Bounded(field, "a duration such as 5s or 10m");
    case proto::UNIT_BYTES: {
      const int64_t multiple = options.GetExtension(proto::multiple_of);
      return Bounded(field, multiple == 0 ? "a size such as 256KiB"
                                          : absl::StrCat("a size such as 256KiB, a multiple of ",
                                                         multiple, ","));
    }
    case proto::UNIT_NONE:
      break;
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Bounded(field, "a number");
    case FieldDescriptor::CPPTYPE_UINT32:
      return Bounded(field, "an integer from 0 to 4294967295");
    case FieldDescriptor::CPPTYPE_UINT64:
      return Bounded(field, "an integer from 0 to 18446744073709551615");
    default:
      return Bounded(field, "an integer");
  }
}

}  // namespace

std::string YamlName(const EnumValueDescriptor& value) {
  absl::string_view name = value.name();
  const std::string prefix = ValuePrefix(*value.type());
  RUBATO_CHECK(absl::StartsWith(name, prefix));
  return absl::AsciiStrToLower(name.substr(prefix.size()));
}

const EnumValueDescriptor* FindValue(const EnumDescriptor& type, absl::string_view name) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (YamlName(*type.value(i)) == name) return type.value(i);
  }
  return nullptr;
}

std::vector<std::string> ValueNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (!type.value(i)->options().HasExtension(proto::refused)) {
      names.push_back(YamlName(*type.value(i)));
    }
  }
  return names;
}

bool IsInlined(const FieldDescriptor& field) {
  return field.options().GetExtension(proto::inlined);
}

const FieldDescriptor* FindKey(const Descriptor& type, absl::string_view name) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const FieldDescriptor* found = &field;
    if (IsInlined(field)) {
      found = FindKey(*field.message_type(), name);
    } else if (field.name() != name) {
      found = nullptr;
    }
    if (found != nullptr) return found;
  }
  return nullptr;
}

Message* OwnerOf(const FieldDescriptor& field, Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  if (field.containing_type() == &type) return message;
  for (int i = 0; i < type.field_count(); ++i) {
    if (!IsInlined(*type.field(i)) || field.containing_type() != type.field(i)->message_type()) {
      continue;
    }
    return message->GetReflection()->MutableMessage(message, type.field(i));
  }
  RUBATO_CHECK(false);  // inlined messages have none of their own
  return nullptr;
}

std::vector<std::string> KeyNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::vector<std::string> own =
        IsInlined(field) ? KeyNames(*field.message_type()) : std::vector<std::string>{field.name()};
    names.insert(names.end(), own.begin(), own.end());
  }
  return names;
}

const FieldDescriptor* Principal(const Descriptor& type) {
  if (!type.options().HasExtension(proto::principal)) return nullptr;
  const FieldDescriptor* field = FindKey(type, type.options().GetExtension(proto::principal));
  RUBATO_CHECK(field != nullptr);
  return field;
}

const OneofDescriptor* RequiredOneof(const Descriptor& type) {
  for (int i = 0; i < type.oneof_decl_count(); ++i) {
    if (type.oneof_decl(i)->options().GetExtension(proto::one_required)) return type.oneof_decl(i);
  }
  return nullptr;
}

bool IsChoice(const Descriptor& type) {
  const OneofDescriptor* oneof = RequiredOneof(type);
  if (oneof == nullptr) return false;
  for (int i = 0; i < oneof->field_count(); ++i) {
    if (oneof->field(i)->message_type() == nullptr) return false;
  }
  return true;
}

bool KeyIs(const Message& message, const std::string& key,
           const google::protobuf::RepeatedPtrField<std::string>& names) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(key);
  RUBATO_CHECK(field != nullptr && field->enum_type() != nullptr);
  const EnumValueDescriptor* value = message.GetReflection()->GetEnum(message, field);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    RUBATO_CHECK(FindValue(*field->enum_type(), name) != nullptr);
    return YamlName(*value) == name;
  });
}

bool IsApplicable(const Message& message, const FieldDescriptor& field) {
  if (!field.options().HasExtension(proto::when)) return true;
  const proto::When& when = field.options().GetExtension(proto::when);
  return KeyIs(message, when.key(), when.is());
}

bool IsFillable(const Descriptor& type) {
  if (RequiredOneof(type) != nullptr) return false;
  const Message* defaults =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->options().GetExtension(proto::required) &&
        IsApplicable(*defaults, *type.field(i))) {
      return false;
    }
  }
  return true;
}

std::string Expectation(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return JoinOr(ValueNames(*field.enum_type()));
    case FieldDescriptor::CPPTYPE_STRING:
      if (field.options().GetExtension(proto::is_file_name)) {
        return "1 to 128 letters, digits, '_', '.' or '-'";
      }
      if (field.options().GetExtension(proto::is_path)) return "a path";
      if (field.options().GetExtension(proto::is_metric)) {
        return "eval/loss, eval/accuracy or, beside a script, eval/ and the name of another figure "
               "of its tests (1 to 64 letters, digits and '_')";
      }
      return "text";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
    default:
      return NumberExpectation(field);
  }
  const Descriptor& type = *field.message_type();
  if (IsInlined(field)) return Expectation(*Principal(type));
  if (IsChoice(type)) return JoinOr(KeyNames(type));
  // Of one key alone.
  if (const OneofDescriptor* oneof = RequiredOneof(type);
      oneof != nullptr && oneof->field_count() == type.field_count()) {
    std::vector<std::string> forms;
    for (const std::string& key : KeyNames(type)) forms.push_back(absl::StrCat("{", key, ": N}"));
    return JoinOr(forms);
  }
  std::string expected = absl::StrCat("a map {", absl::StrJoin(KeyNames(type), ", "), "}");
  const FieldDescriptor* principal = Principal(type);
  return principal == nullptr ? expected : absl::StrCat(Expectation(*principal), ", or ", expected);
}

std::string ListExpectation(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) return absl::StrCat("a list of ", Expectation(field));
  std::string entry = Expectation(field);
  for (absl::string_view article : {"a ", "an "}) {
    if (absl::StartsWith(entry, article)) {
      // "a number above 0" as "numbers above 0".
      const size_t begin = article.size();
      const size_t end = std::min(entry.find(' ', begin), entry.size());
      entry = absl::StrCat(entry.substr(begin, end - begin), "s", entry.substr(end));
      break;
    }
  }
  return absl::StrCat("a list of ", entry);
}

std::string JoinOr(const std::vector<std::string>& words) {
  if (words.size() < 2) return absl::StrJoin(words, "");
  const std::vector<std::string> head(words.begin(), words.end() - 1);
  return absl::StrCat(absl::StrJoin(head, ", "), " or ", words.back());
}

std::vector<std::string> PathsTo(const Descriptor& type, absl::string_view name) {
  std::vector<std::string> paths;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool inlined = IsInlined(field);
    if (!inlined && field.name() == name) paths.push_back(field.name());
    if (field.message_type() == nullptr || field.is_repeated()) continue;
    for (const std::string& path : PathsTo(*field.message_type(), name)) {
      paths.push_back(inlined ? path : absl::StrCat(field.name(), ".", path));
    }
  }
  return paths;
}

}  // namespace rubato
