#include "common/job/completion.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/job/schema.h"
#include "common/job/yaml_reader.h"
#include "proto/options.pb.h"

namespace rubato {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

std::string Join(const std::string& key, const std::string& name) {
  return key.empty() ? name : absl::StrCat(key, ".", name);
}

// The values beside which `field` has a meaning: "csv or libsvm".
std::string Alternatives(const FieldDescriptor& field) {
  const proto::When& when = field.options().GetExtension(proto::when);
  return JoinOr({when.is().begin(), when.is().end()});
}

bool IsPresent(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

// Of an inlined message, whether its principal is.
bool IsGiven(const Message& message, const FieldDescriptor& field) {
  if (!IsPresent(message, field) || !IsInlined(field)) return IsPresent(message, field);
  const Message& inlined = message.GetReflection()->GetMessage(message, &field);
  return IsPresent(inlined, *Principal(*inlined.GetDescriptor()));
}

void SetToDefault(const FieldDescriptor& field, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < field.options().ExtensionSize(proto::default_when); ++i) {
    const proto::DefaultWhen& other = field.options().GetExtension(proto::default_when, i);
    if (!KeyIs(*message, other.key(), other.is())) continue;
    return reflection.SetDouble(message, &field, other.value());
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(message, &field, field.default_value_int32());
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(message, &field, field.default_value_int64());
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(message, &field, field.default_value_uint64());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(message, &field, field.default_value_double());
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(message, &field, field.default_value_bool());
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnum(message, &field, field.default_value_enum());
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(message, &field, field.default_value_string());
    default:
      RUBATO_CHECK(false);  // the schema keeps to the types above
  }
}

class Completion {
 public:
  explicit Completion(Report* report) : report_(*report) {}

  void CompleteMessage(const std::string& key, Message* message) {
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *message->GetDescriptor()->field(i);
      const std::string path = Join(key, field.name());
      if (ClearIfMeaningless(key, path, field, message)) continue;
      if (!IsGiven(*message, field)) FillAbsent(path, field, message);
      if (IsPresent(*message, field)) {
        CompletePresent(IsInlined(field) ? key : path, field, message);
      }
    }
  }

 private:
  // Whether `field` has no meaning here, or cannot be judged.
  bool ClearIfMeaningless(const std::string& key, const std::string& path,
                          const FieldDescriptor& field, Message* message) {
    if (!field.options().HasExtension(proto::when)) return false;
    const std::string& decider = field.options().GetExtension(proto::when).key();
    if (!report_.Sound(Join(key, decider))) return true;
    if (IsApplicable(*message, field)) return false;
    if (report_.Given(path) && report_.Sound(path)) {
      const FieldDescriptor* by = message->GetDescriptor()->FindFieldByName(decider);
      report_.Add(path, absl::StrCat("found with ", decider, ": ",
                                     YamlName(*message->GetReflection()->GetEnum(*message, by)),
                                     ", expected only with ", decider, ": ", Alternatives(field)));
    }
    message->GetReflection()->ClearField(message, &field);
    return true;
  }

  void FillAbsent(const std::string& path, const FieldDescriptor& field, Message* message) {
    if (field.options().GetExtension(proto::required)) {
      if (report_.Given(path) || !report_.Sound(path)) return;
      std::string what =
          absl::StrCat("found nothing, expected ",
                       field.is_repeated() ? ListExpectation(field) : Expectation(field));
      if (field.options().HasExtension(proto::when)) {
        const proto::When& when = field.options().GetExtension(proto::when);
        absl::StrAppend(&what, ", because ", when.key(), " is ",
                        YamlName(*message->GetReflection()->GetEnum(
                            *message, message->GetDescriptor()->FindFieldByName(when.key()))));
      }
      report_.Add(path, what);
      return;
    }
    if (field.real_containing_oneof() != nullptr) return;
    if (field.is_repeated()) {
      FillList(path, field, message);
    } else if (field.message_type() == nullptr) {
      if (field.has_default_value()) SetToDefault(field, message);
    } else if (field.options().HasExtension(proto::default_yaml)) {
      YamlReader reader(message->GetReflection()->MutableMessage(message, &field));
      RUBATO_CHECK(
          reader.ReadDocument(field.options().GetExtension(proto::default_yaml), path).ok());
      RUBATO_CHECK(reader.report().ToStatus().ok());
    } else if (IsFillable(*field.message_type())) {
      message->GetReflection()->MutableMessage(message, &field);
    }
  }

  void FillList(const std::string& path, const FieldDescriptor& field, Message* message) {
    if (!field.options().HasExtension(proto::default_yaml)) return;
    const std::unique_ptr<Message> filled(message->New());
    YamlReader reader(filled.get());
    const std::string& list = field.options().GetExtension(proto::default_yaml);
    RUBATO_CHECK(reader.ReadDocument(absl::StrCat(field.name(), ": ", list), path).ok());
    RUBATO_CHECK(reader.report().ToStatus().ok());
    message->MergeFrom(*filled);
  }

  void CompletePresent(const std::string& path, const FieldDescriptor& field, Message* message) {
    if (field.message_type() == nullptr) return;
    const Reflection& reflection = *message->GetReflection();
    if (!field.is_repeated()) {
      CompleteOne(path, field, reflection.MutableMessage(message, &field));
      return;
    }
    for (int i = 0; i < reflection.FieldSize(*message, &field); ++i) {
      CompleteOne(absl::StrCat(path, "[", i, "]"), field,
                  reflection.MutableRepeatedMessage(message, &field, i));
    }
  }

  void CompleteOne(const std::string& path, const FieldDescriptor& field, Message* message) {
    const OneofDescriptor* oneof = RequiredOneof(*message->GetDescriptor());
    if (oneof != nullptr && !message->GetReflection()->HasOneof(*message, oneof) &&
        report_.Sound(path)) {
      std::vector<std::string> keys;
      for (int i = 0; i < oneof->field_count(); ++i) keys.push_back(oneof->field(i)->name());
      const bool is_all = oneof->field_count() == message->GetDescriptor()->field_count();
      report_.Add(path, is_all ? absl::StrCat("found nothing, expected ", Expectation(field))
                               : absl::StrCat("found no ", JoinOr(keys), ", expected one of them"));
    }
    CompleteMessage(path, message);
  }

  Report& report_;
};

}  // namespace

void Complete(Message* message, Report* report) { Completion(report).CompleteMessage("", message); }

}  // namespace rubato
