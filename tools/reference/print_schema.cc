// Prints a page of docs/reference in Markdown, made from declarations:
//   print_schema keys SCHEMA       every key of a job (proto/job.proto)
//   print_schema messages SCHEMA   every message of the protocol and of files
//   print_schema metrics SCHEMA    every figure of metrics.jsonl (server/run/figures.h)
// SCHEMA is a FileDescriptorSet with comments, as protoc writes it.
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/job/schema.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "proto/job.pb.h"
#include "server/run/figures.h"

namespace rubato {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// As text in a table's cell or a line.
std::string OneLine(absl::string_view text) {
  return absl::StrReplaceAll(
      absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty()), " "),
      {{"|", "\\|"}, {"<", "&lt;"}, {"*", "\\*"}});
}

// Comments of the .proto files, which the generated descriptors do not have.
class Schema {
 public:
  explicit Schema(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    google::protobuf::FileDescriptorSet set;
    RUBATO_CHECK(set.ParseFromIstream(&file));
    for (const auto& proto : set.file()) {
      files_.push_back(pool_.BuildFile(proto));
      RUBATO_CHECK(files_.back() != nullptr);
    }
  }

  const std::vector<const FileDescriptor*>& files() const { return files_; }

  // Of a message, field or value of either pool, found by its name.
  template <typename Element>
  std::string Comment(const Element& element) const {
    google::protobuf::SourceLocation location;
    if (!Same(element)->GetSourceLocation(&location)) return "";
    return OneLine(absl::StrCat(location.leading_comments, " ", location.trailing_comments));
  }

 private:
  const Descriptor* Same(const Descriptor& type) const {
    return pool_.FindMessageTypeByName(type.full_name());
  }
  const FieldDescriptor* Same(const FieldDescriptor& field) const {
    return pool_.FindFieldByName(field.full_name());
  }
  const google::protobuf::EnumValueDescriptor* Same(
      const google::protobuf::EnumValueDescriptor& value) const {
    return pool_.FindEnumTypeByName(value.type()->full_name())->FindValueByName(value.name());
  }

  DescriptorPool pool_;
  std::vector<const FileDescriptor*> files_;
};

std::string Code(absl::string_view text) { return absl::StrCat("`", text, "`"); }

std::string CodeList(const google::protobuf::RepeatedPtrField<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(Code(word));
  return JoinOr(quoted);
}

// The keys of a job, a section for each message in the order in which they are first met.
class KeysPage {
 public:
  explicit KeysPage(const Schema& schema) : schema_(schema) {
    Meet(*proto::Job::descriptor(), "Job");
    for (size_t i = 0; i < sections_.size(); ++i) {
      const auto [type, title] = sections_[i];
      for (int f = 0; f < type->field_count(); ++f) MeetField(*type->field(f), title);
    }
  }

  std::string Text() const {
    std::string text;
    for (const auto& [type, title] : sections_) {
      absl::StrAppend(&text, "\n## ", title, "\n");
      const std::string comment = type->full_name() == "rubato.proto.Job" ? "" : About(*type);
      if (!comment.empty()) absl::StrAppend(&text, "\n", comment, "\n");
      if (type->field_count() == 0) continue;
      absl::StrAppend(&text, "\n| key | value | default | meaning |\n|---|---|---|---|\n");
      AppendRows(*type, &text);
    }
    return text;
  }

 private:
  void Meet(const Descriptor& type, const std::string& title) {
    if (titles_.emplace(&type, title).second) sections_.emplace_back(&type, title);
  }

  void MeetField(const FieldDescriptor& field, const std::string& title) {
    if (field.message_type() == nullptr) return;
    if (IsInlined(field)) return;
    const std::string& name = field.message_type()->name();
    // Messages that several keys share have their own names; others their place in the job.
    static const std::set<std::string>* const kShared =
        new std::set<std::string>{"Point", "Layer", "Stage"};
    const bool own = kShared->count(name) > 0 || title == "Layer";
    Meet(*field.message_type(), own && title != "Layer" ? name
                                : title == "Layer"      ? field.name()
                                : title == "Job"        ? field.name()
                                                        : absl::StrCat(title, ".", field.name()));
  }

  std::string About(const Descriptor& type) const {
    std::string text = schema_.Comment(type);
    if (const FieldDescriptor* principal = Principal(type)) {
      absl::StrAppend(&text, text.empty() ? "" : " ", "A plain value sets ",
                      Code(principal->name()), ".");
    }
    if (IsChoice(type)) absl::StrAppend(&text, text.empty() ? "" : " ", "Exactly one of these.");
    return text;
  }

  void AppendRows(const Descriptor& type, std::string* text) const {
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (IsInlined(field)) {
        AppendRows(*field.message_type(), text);
        continue;
      }
      absl::StrAppend(text, "| ", Code(field.name()), " | ", Value(field), " | ", Default(field),
                      " | ", Meaning(field), " |\n");
    }
  }

  std::string Value(const FieldDescriptor& field) const {
    if (field.message_type() != nullptr) {
      const std::string& title = titles_.at(field.message_type());
      const std::string anchor = absl::StrReplaceAll(absl::AsciiStrToLower(title), {{".", ""}});
      return absl::StrCat(field.is_repeated() ? "a list of " : "", "[", title, "](#", anchor, ")");
    }
    return OneLine(field.is_repeated() ? ListExpectation(field) : Expectation(field));
  }

  std::string Default(const FieldDescriptor& field) const {
    const auto& options = field.options();
    if (options.GetExtension(proto::required)) return "required";
    if (options.HasExtension(proto::default_yaml))
      return Code(options.GetExtension(proto::default_yaml));
    if (!field.has_default_value()) return "";
    std::string text =
        Code(field.enum_type() != nullptr ? YamlName(*field.default_value_enum())
                                          : absl::StripPrefix(NativeDefault(field), "+"));
    for (int i = 0; i < options.ExtensionSize(proto::default_when); ++i) {
      const proto::DefaultWhen& when = options.GetExtension(proto::default_when, i);
      absl::StrAppend(&text, "; ", Code(absl::StrCat(when.value())), " beside ",
                      CodeList(when.is()));
    }
    return text;
  }

  static std::string NativeDefault(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return field.default_value_bool() ? "true" : "false";
      case FieldDescriptor::CPPTYPE_STRING:
        return field.default_value_string();
      case FieldDescriptor::CPPTYPE_INT32:
        return absl::StrCat(field.default_value_int32());
      case FieldDescriptor::CPPTYPE_INT64:
        return absl::StrCat(field.default_value_int64());
      case FieldDescriptor::CPPTYPE_UINT64:
        return absl::StrCat(field.default_value_uint64());
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return absl::StrCat(field.default_value_double());
      default:
        RUBATO_CHECK(false);
        return "";
    }
  }

  std::string Meaning(const FieldDescriptor& field) const {
    std::vector<std::string> parts;
    if (field.options().HasExtension(proto::when)) {
      const proto::When& when = field.options().GetExtension(proto::when);
      parts.push_back(absl::StrCat("Only with ", Code(when.key()), " ", CodeList(when.is()), "."));
    }
    if (const std::string comment = schema_.Comment(field); !comment.empty())
      parts.push_back(comment);
    if (field.enum_type() != nullptr) {
      for (int i = 0; i < field.enum_type()->value_count(); ++i) {
        const auto& value = *field.enum_type()->value(i);
        const std::string about = schema_.Comment(value);
        if (!about.empty() && !value.options().HasExtension(proto::refused))
          parts.push_back(
              absl::StrCat(Code(YamlName(value)), ": ", absl::StripSuffix(about, "."), "."));
      }
    }
    return absl::StrJoin(parts, " ");
  }

  const Schema& schema_;
  std::map<const Descriptor*, std::string> titles_;
  std::vector<std::pair<const Descriptor*, std::string>> sections_;
};

void AppendEnum(const Schema& schema, const EnumDescriptor& type, std::string* text) {
  absl::StrAppend(text, "\n### ", type.name(), "\n\n| value | number | meaning |\n|---|---|---|\n");
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    absl::StrAppend(text, "| ", Code(value.name()), " | ", value.number(), " | ",
                    schema.Comment(value), " |\n");
  }
}

void AppendMessage(const Schema& schema, const Descriptor& type, std::string* text) {
  absl::StrAppend(text, "\n### ", absl::StripPrefix(type.full_name(), "rubato.proto."), "\n");
  if (const std::string comment = schema.Comment(type); !comment.empty())
    absl::StrAppend(text, "\n", comment, "\n");
  if (type.field_count() > 0)
    absl::StrAppend(text, "\n| field | number | type | meaning |\n|---|---|---|---|\n");
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string of = field.message_type() != nullptr ? field.message_type()->name()
                           : field.enum_type() != nullptr  ? field.enum_type()->name()
                                                           : std::string(field.type_name());
    absl::StrAppend(text, "| ", Code(field.name()), " | ", field.number(), " | ",
                    field.is_repeated() ? "repeated " : "", of, " | ",
                    field.real_containing_oneof() == nullptr
                        ? ""
                        : absl::StrCat("One of ", Code(field.containing_oneof()->name()), ". "),
                    schema.Comment(field), " |\n");
  }
  for (int i = 0; i < type.enum_type_count(); ++i) AppendEnum(schema, *type.enum_type(i), text);
  for (int i = 0; i < type.nested_type_count(); ++i)
    AppendMessage(schema, *type.nested_type(i), text);
}

// Of all files but that of the job, whose keys have a page of their own, and what is not ours.
std::string MessagesPage(const Schema& schema) {
  std::string text;
  for (const FileDescriptor* file : schema.files()) {
    if (file->package() != "rubato.proto" || file->name() == "proto/job.proto" ||
        file->name() == "proto/options.proto") {
      continue;
    }
    absl::StrAppend(&text, "\n## ", file->name(), "\n");
    for (int i = 0; i < file->service_count(); ++i) {
      for (int m = 0; m < file->service(i)->method_count(); ++m) {
        const auto& method = *file->service(i)->method(m);
        absl::StrAppend(
            &text, m == 0 ? "\n" : "", "* ", file->service(i)->name(), ".", method.name(), ": ",
            method.client_streaming() ? "stream of " : "", method.input_type()->name(), " to ",
            method.server_streaming() ? "stream of " : "", method.output_type()->name(), "\n");
      }
    }
    for (int i = 0; i < file->enum_type_count(); ++i)
      AppendEnum(schema, *file->enum_type(i), &text);
    for (int i = 0; i < file->message_type_count(); ++i)
      AppendMessage(schema, *file->message_type(i), &text);
  }
  return text;
}

std::string MetricsPage() {
  static constexpr const char* kUses[] = {"axis", "curve", "record"};
  std::string text = "\n| figure | unit | use | lines | meaning |\n|---|---|---|---|---|\n";
  for (const Figure& figure : Figures()) {
    absl::StrAppend(&text, "| ", Code(figure.name), " | ", UnitName(figure.unit), " | ",
                    kUses[static_cast<int>(figure.use)], " | ", figure.of_tests ? "all" : "train",
                    " | ", figure.help, " |\n");
  }
  return text;
}

}  // namespace
}  // namespace rubato

int main(int argc, char** argv) {
  RUBATO_CHECK(argc == 3);
  const rubato::Schema schema(argv[2]);
  const std::string page = argv[1];
  std::cout << (page == "keys"       ? rubato::KeysPage(schema).Text()
                : page == "messages" ? rubato::MessagesPage(schema)
                                     : rubato::MetricsPage());
}
