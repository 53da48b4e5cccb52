#include "common/job/yaml_reader.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/nearest.h"
#include "common/job/environment.h"
#include "common/job/scalar_field.h"
#include "common/job/schema.h"
#include "common/job/yaml_document.h"
#include "proto/options.pb.h"

namespace rubato {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldOptions;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

namespace {

std::string Join(const std::string& key, absl::string_view name) {
  return key.empty() ? std::string(name) : absl::StrCat(key, ".", name);
}

// Whether it is 1 to `longest` letters, digits and `others`.
bool IsWord(absl::string_view text, size_t longest, absl::string_view others) {
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(), [others](unsigned char c) {
           return absl::ascii_isalnum(c) || absl::StrContains(others, static_cast<char>(c));
         });
}

// `key` shown in an error message is what the user wrote: short and printable.
std::string ShownKey(const std::string& parent, const std::string& name) {
  return Join(parent, Show(name));
}

// What stands between commas; spaces behind one, as people write lists, do not count.
std::vector<std::string> SplitAtCommas(absl::string_view text) {
  std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (size_t i = 1; i < parts.size(); ++i) absl::StripLeadingAsciiWhitespace(&parts[i]);
  return parts;
}

// What stands between a key and its value in such a part: staleness=3, or, as a mode is printed,
// staleness 3.
constexpr char kBeforeValue[] = "= ";

std::pair<std::string, std::string> KeyAndValue(absl::string_view part) {
  return absl::StrSplit(part, absl::MaxSplits(absl::ByAnyChar(kBeforeValue), 1));
}

// Whether `parts`, which stood between commas, are a value of the field's principal key, of a
// choice, and then a key and its value each.
bool IsShortMap(const std::vector<std::string>& parts, const FieldDescriptor& field) {
  if (field.is_repeated() || field.message_type() == nullptr || parts.size() < 2) return false;
  const FieldDescriptor* principal = Principal(*field.message_type());
  if (principal == nullptr || principal->enum_type() == nullptr) return false;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].find_first_of(kBeforeValue) == std::string::npos) return false;
  }
  return FindValue(*principal->enum_type(), parts[0]) != nullptr;
}

// What there is in place of a layer that people bring from elsewhere.
absl::string_view WhyNoKey(absl::string_view name) {
  return name == "softmax" || name == "log_softmax"
             ? "; the loss cross_entropy has a softmax of its own"
             : "";
}

// "a map such as {format: glyphs}" where `text` is what one of the message's keys may be.
std::string MapHint(const std::string& text, const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.enum_type() != nullptr && FindValue(*field.enum_type(), text) != nullptr) {
      return absl::StrCat("a map such as {", field.name(), ": ", text, "}");
    }
  }
  return "";
}

}  // namespace

Place YamlReader::PlaceOf(const YAML::Node& node, const Place& otherwise) const {
  if (override_.has_value()) return *override_;
  const YAML::Mark mark = node.Mark();
  // What is not written has no place of its own.
  if (mark.is_null() || node.IsNull()) return otherwise;
  return Place{source_, mark.line + 1, mark.column + 1};
}

absl::Status YamlReader::ReadDocument(absl::string_view text, const std::string& file) {
  TextPosition where;
  const absl::StatusOr<YAML::Node> root = ParseYaml(text, &where);
  if (!root.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(Place{file, where.line, where.column}.ToString(),
                                                   ": ", root.status().message()));
  }
  source_ = file;
  std::error_code ignored;
  folder_ = std::filesystem::absolute(file, ignored).parent_path();
  override_.reset();
  const Place begin{file, 1, 1};
  if (!root->IsMap()) {
    const Place place = PlaceOf(*root, begin);
    return absl::InvalidArgumentError(absl::StrCat(
        place.ToString(), ": found ", root->IsNull() ? "an empty file" : Describe(*root),
        ", expected a map of keys, such as version: 1"));
  }
  report_.Note("", begin);
  ReadMap(*root, "", message_);
  return absl::OkStatus();
}

void YamlReader::ReadOverride(absl::string_view assignment) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  spell_ = [](absl::string_view key) { return std::string(key); };
  const Place place{absl::StrCat("--set ", Show(parts.first)), 0, 0, parts.first};
  if (parts.first.empty() || parts.first.size() == assignment.size()) {
    report_.Add(place, "",
                absl::StrCat("found no ", parts.first.empty() ? "key" : "value",
                             ", expected KEY=VALUE, such as optimizer.learning_rate=0.1"));
    return;
  }
  Override(parts.first, parts.second, place);
}

void YamlReader::ReadVariable(const std::string& variable, const std::string& key,
                              const std::string& value) {
  spell_ = VariableOf;
  // A variable with a name of its own does not tell which key it sets.
  Override(key, value, Place{Show(variable), 0, 0, variable == VariableOf(key) ? key : ""});
}

void YamlReader::ReadKey(const std::string& source, const std::string& key,
                         const std::string& value) {
  spell_ = [](absl::string_view key) { return std::string(key); };
  Override(key, value, Place{source});
}

void YamlReader::ReadFlag(const std::string& flag, absl::string_view text) {
  spell_ = [](absl::string_view key) { return std::string(key); };
  const std::string principal = Principal(*message_->GetDescriptor())->name();
  const Place place{flag, 0, 0, principal};
  report_.Note("", place);
  const std::vector<std::string> parts = SplitAtCommas(text);
  Override(principal, parts[0], place);
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = KeyAndValue(parts[i]);
    Override(key, value, place);
  }
}

void YamlReader::Override(const std::string& path, const std::string& value, const Place& place) {
  folder_.clear();
  override_ = place;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  Message* message = message_;
  std::string key;
  for (size_t i = 0; i < names.size(); ++i) {
    const FieldDescriptor* field = FindKey(*message->GetDescriptor(), names[i]);
    if (field == nullptr) {
      RejectKey(names[i], key, place, *message->GetDescriptor());
      return;
    }
    message = OwnerOf(*field, message);
    const std::string parent = std::exchange(key, Join(key, names[i]));
    if (const OneofDescriptor* oneof = field->real_containing_oneof()) {
      // Choosing this one unmakes the choice in the file.
      for (int j = 0; j < oneof->field_count(); ++j) {
        if (oneof->field(j) != field) report_.Forget(Join(parent, oneof->field(j)->name()));
      }
    }
    if (i + 1 == names.size()) {
      // As --mode of `rubato switch`: bounded,staleness=3.
      const std::vector<std::string> parts = SplitAtCommas(value);
      const bool is_short = IsShortMap(parts, *field);
      Assign(is_short ? parts[0] : value, key, place, *field, message);
      for (size_t j = 1; is_short && j < parts.size(); ++j) {
        const auto [part, setting] = KeyAndValue(parts[j]);
        Override(Join(path, part), setting, place);
      }
      return;
    }
    if (field->is_repeated() || field->message_type() == nullptr) {
      report_.Add(
          place, path,
          field->is_repeated()
              ? absl::StrCat("found a part of a list, expected the whole: ", spell_(key), "=[...]")
              : absl::StrCat("found a key in a single value, expected ", spell_(key), "=VALUE"));
      return;
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
}

void YamlReader::Assign(const std::string& text, const std::string& key, const Place& place,
                        const Field& field, Message* message) {
  report_.Forget(key);
  report_.Note(key, place);
  message->GetReflection()->ClearField(message, &field);
  TextPosition where;
  absl::StatusOr<YAML::Node> value = ParseYaml(text, &where);
  // [::1]:29500 is no YAML without quotes, which a shell would take away.
  const bool is_text = field.cpp_type() == Field::CPPTYPE_STRING && !field.is_repeated();
  if (!value.ok() && is_text && absl::StartsWith(text, "[")) value = YAML::Node(text);
  if (!value.ok()) {
    report_.Add(place, key,
                absl::StrCat(value.status().message(), ", at character ", where.column, " of ",
                             Show(text)));
    return;
  }
  ReadField(*value, key, place, field, message);
}

void YamlReader::ReadMap(const YAML::Node& map, const std::string& key, Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  std::map<std::string, Place> seen;
  std::map<const OneofDescriptor*, std::string> chosen;
  for (const auto& entry : map) {
    const Place place = PlaceOf(entry.first, report_.PlaceOf(key));
    if (!entry.first.IsScalar()) {
      report_.Add(place, key,
                  absl::StrCat("found ", Describe(entry.first), " as a key, expected ",
                               JoinOr(KeyNames(type))));
      continue;
    }
    const std::string name = entry.first.Scalar();
    const FieldDescriptor* field = FindKey(type, name);
    if (field == nullptr) {
      RejectKey(name, key, place, type);
      continue;
    }
    const std::string path = Join(key, name);
    const auto inserted = seen.insert({name, place});
    if (!inserted.second) {
      const Place& first = inserted.first->second;
      report_.Add(
          place, path,
          absl::StrCat("found twice",
                       first.line > 0 ? absl::StrCat(" (first in line ", first.line, ")") : "",
                       ", expected once"));
      continue;
    }
    report_.Note(path, place);
    if (const OneofDescriptor* oneof = field->real_containing_oneof()) {
      const auto choice = chosen.insert({oneof, name});
      if (!choice.second) {
        report_.Add(place, key,
                    absl::StrCat("found ", choice.first->second, " and ", name,
                                 ", expected only one of them"));
        continue;
      }
    }
    ReadField(entry.second, path, place, *field, OwnerOf(*field, message));
  }
}

void YamlReader::ReadField(const YAML::Node& value, const std::string& key, const Place& place,
                           const Field& field, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  if (!field.is_repeated()) {
    if (field.message_type() != nullptr) {
      ReadMessage(value, key, place, field, message, reflection.MutableMessage(message, &field));
    } else {
      ReadScalar(value, key, place, field, message);
    }
    return;
  }
  const bool needs_any = field.options().GetExtension(proto::required) ||
                         field.options().HasExtension(proto::default_yaml);
  if (!value.IsSequence() || (needs_any && value.begin() == value.end())) {
    Reject(value, key, place, ListExpectation(field));
    return;
  }
  int index = 0;
  for (const YAML::Node& entry : value) {
    const std::string entry_key = absl::StrCat(key, "[", index++, "]");
    const Place entry_place = PlaceOf(entry, place);
    report_.Note(entry_key, entry_place);
    if (field.message_type() != nullptr) {
      ReadMessage(entry, entry_key, entry_place, field, message,
                  reflection.AddMessage(message, &field));
    } else {
      ReadScalar(entry, entry_key, entry_place, field, message);
    }
  }
}

void YamlReader::ReadMessage(const YAML::Node& value, const std::string& key, const Place& place,
                             const Field& field, Message* parent, Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  if (value.IsMap()) {
    ReadMap(value, key, message);
    return;
  }
  if (value.IsScalar() && IsChoice(type)) {
    ReadChoice(value, key, place, message);
    return;
  }
  const FieldDescriptor* principal = Principal(type);
  if (value.IsScalar() && principal != nullptr) {
    const std::string principal_key = Join(key, principal->name());
    report_.Note(principal_key, place);
    ReadScalar(value, principal_key, place, *principal, OwnerOf(*principal, message));
    return;
  }
  // `- relu:` is `- relu`.
  const OneofDescriptor* oneof = field.real_containing_oneof();
  if (value.IsNull() && oneof != nullptr && IsChoice(*field.containing_type())) return;
  if (!field.is_repeated()) parent->GetReflection()->ClearField(parent, &field);
  const std::string hint = value.IsScalar() ? MapHint(value.Scalar(), type) : "";
  Reject(value, key, place, hint.empty() ? Expectation(field) : hint);
}

void YamlReader::ReadChoice(const YAML::Node& value, const std::string& key, const Place& place,
                            Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  const FieldDescriptor* chosen = type.FindFieldByName(value.Scalar());
  if (chosen != nullptr) {
    report_.Note(Join(key, chosen->name()), place);
    message->GetReflection()->MutableMessage(message, chosen);
    return;
  }
  const std::vector<std::string> names = KeyNames(type);
  const std::string near = NearestWord(value.Scalar(), names);
  Reject(value, key, place,
         absl::StrCat(JoinOr(names), near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"),
                      WhyNoKey(value.Scalar())));
}

void YamlReader::ReadScalar(const YAML::Node& value, const std::string& key, const Place& place,
                            const Field& field, Message* message) {
  if (!value.IsScalar()) {
    Reject(value, key, place, Expectation(field));
    return;
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      ReadEnum(value, key, place, field, message);
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      ReadString(value, key, place, field, message);
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!IsQuoted(value) && (value.Scalar() == "true" || value.Scalar() == "false")) {
        StoreBool(value.Scalar() == "true", field, message);
        return;
      }
      break;
    default:
      if (!IsQuoted(value) && StoreNumber(value.Scalar(), field, message)) return;
  }
  Reject(value, key, place, Expectation(field));
}

void YamlReader::ReadEnum(const YAML::Node& value, const std::string& key, const Place& place,
                          const Field& field, Message* message) {
  const EnumValueDescriptor* found = FindValue(*field.enum_type(), value.Scalar());
  const std::vector<std::string> names = ValueNames(*field.enum_type());
  std::string expected = JoinOr(names);
  if (found == nullptr) {
    const std::string near = NearestWord(value.Scalar(), names);
    if (!near.empty() && names.size() > 1) absl::StrAppend(&expected, "; did you mean ", near, "?");
  } else if (found->options().HasExtension(proto::refused)) {
    absl::StrAppend(&expected, " (", found->options().GetExtension(proto::refused), ")");
  } else {
    StoreEnum(*found, field, message);
    return;
  }
  Reject(value, key, place, expected);
}

void YamlReader::ReadString(const YAML::Node& value, const std::string& key, const Place& place,
                            const Field& field, Message* message) {
  const FieldOptions& options = field.options();
  std::string text = value.Scalar();
  bool right = !(text.empty() && options.GetExtension(proto::not_empty));
  if (options.GetExtension(proto::is_file_name)) {
    right = IsWord(text, 128, "_.-");
  } else if (options.GetExtension(proto::is_metric)) {
    absl::string_view name = text;
    right = absl::ConsumePrefix(&name, "eval/") && IsWord(name, 64, "_");
  }
  if (!right) {
    Reject(value, key, place, Expectation(field));
    return;
  }
  if (options.GetExtension(proto::is_path) && !text.empty()) {
    // An empty folder is the current one.
    std::error_code ignored;
    const std::filesystem::path path =
        std::filesystem::absolute(std::filesystem::path(folder_) / text, ignored);
    text = path.lexically_normal().string();
    if (text.size() > 1 && text.back() == '/') text.pop_back();
  }
  StoreText(text, field, message);
}

void YamlReader::Reject(const YAML::Node& value, const std::string& key, const Place& place,
                        const std::string& expected) {
  std::string found = Describe(value);
  // 10 is a number, "10" is not: that must show.
  if (value.IsScalar() && IsQuoted(value)) {
    absl::StrAppend(&found, found.front() == '"' ? "" : " in quotes");
  }
  report_.Add(PlaceOf(value, place), key, absl::StrCat("found ", found, ", expected ", expected));
}

void YamlReader::RejectKey(const std::string& written, const std::string& parent,
                           const Place& place, const Descriptor& type) {
  const std::string key = ShownKey(parent, written);
  const std::string name = written == "lr" ? "learning_rate" : written;  // as PyTorch calls it
  const std::string near = NearestWord(name, KeyNames(type));
  if (!near.empty()) {
    report_.Excuse(Join(parent, near));
    report_.Add(place, key,
                absl::StrCat("found an unknown key; did you mean ",
                             override_.has_value() ? spell_(Join(parent, near)) : near, "?"));
    return;
  }
  if (name == "<<") {
    report_.Add(place, key, "found a merge key, expected plain keys: << is not part of YAML 1.2");
    return;
  }
  const size_t colon = name.find(':');
  if (colon != std::string::npos && FindKey(type, name.substr(0, colon)) != nullptr) {
    report_.Excuse(Join(parent, name.substr(0, colon)));
    report_.Add(place, key, "found a key with a colon in it, expected a space after the colon");
    return;
  }
  std::string what = "found an unknown key";
  std::vector<std::string> elsewhere = PathsTo(*message_->GetDescriptor(), name);
  std::vector<std::string> below;  // more likely
  for (const std::string& path : elsewhere) {
    if (!parent.empty() && absl::StartsWith(path, parent + ".")) below.push_back(path);
  }
  if (!below.empty()) {
    elsewhere = below;
    report_.Excuse(below[0]);
  }
  if (override_.has_value()) {
    for (std::string& path : elsewhere) path = spell_(path);
  }
  // The keys of the whole document are many, and a better guess is there.
  if ((!parent.empty() && below.empty()) || elsewhere.empty()) {
    absl::StrAppend(&what, ", expected ",
                    type.field_count() == 0 ? "no keys here" : JoinOr(KeyNames(type)));
  }
  if (!elsewhere.empty()) absl::StrAppend(&what, "; did you mean ", JoinOr(elsewhere), "?");
  absl::StrAppend(&what, WhyNoKey(name));
  report_.Add(place, key, what);
}

}  // namespace rubato
