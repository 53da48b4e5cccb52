#include "tools/bench/convergence/study_file.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/job/scalar.h"
#include "common/job/yaml_document.h"
#include "common/job/yaml_reader.h"
#include "tools/bench/convergence/study_file.pb.h"

namespace rubato {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

bool HasConfig(const std::string& text) {
  TextPosition unused;
  const absl::StatusOr<YAML::Node> root = ParseYaml(text, &unused);
  return root.ok() && root->IsMap() && (*root)["config"].IsDefined();
}

// Entry `index` of a repeated field; of a singular one, its value.
std::string TextOf(const proto::StudyFile& file, const FieldDescriptor& field, int index) {
  const Reflection& from = *file.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? from.GetRepeatedString(file, &field, index) : from.GetString(file, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(repeated ? from.GetRepeatedInt32(file, &field, index)
                                   : from.GetInt32(file, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(from.GetInt64(file, &field));
    default:
      RUBATO_CHECK(field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE && repeated);
      return FormatNumber(from.GetRepeatedDouble(file, &field, index));
  }
}

// Of "--learning_rates=0.1": "learning-rates"; "" of what is no flag.
std::string FlagOf(absl::string_view word) {
  if (!absl::StartsWith(word, "--")) return "";
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word.substr(2), absl::MaxSplits('=', 1));
  return absl::StrReplaceAll(parts.first, {{"_", "-"}});
}

}  // namespace

absl::StatusOr<std::optional<StudyFile>> ReadStudyFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (!text.ok() || !HasConfig(*text)) return std::nullopt;
  proto::StudyFile read;
  YamlReader reader(&read);
  RUBATO_RETURN_IF_ERROR(reader.ReadDocument(*text, path));
  RUBATO_RETURN_IF_ERROR(reader.report().ToStatus());
  StudyFile file;
  file.config =
      (std::filesystem::path(path).parent_path() / read.config()).lexically_normal().string();
  std::vector<const FieldDescriptor*> fields;
  read.GetReflection()->ListFields(read, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->name() == "config") continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      if (read.GetReflection()->GetBool(read, field)) file.flags.push_back("--" + field->name());
      continue;
    }
    const std::string flag =
        absl::StrCat("--", absl::StrReplaceAll(field->name(), {{"_", "-"}}), "=");
    const int entries = field->is_repeated() ? read.GetReflection()->FieldSize(read, field) : 1;
    for (int i = 0; i < entries; ++i) file.flags.push_back(flag + TextOf(read, *field, i));
  }
  return file;
}

std::vector<std::string> WithStudyFile(const StudyFile& file,
                                       const std::vector<std::string>& typed) {
  std::vector<std::string> words;
  for (const std::string& word : file.flags) {
    const std::string flag = FlagOf(word);
    const bool is_typed =
        flag != "set" && std::any_of(typed.begin(), typed.end(), [&](const std::string& other) {
          return FlagOf(other) == flag || (flag == "processes" && FlagOf(other) == "simulated");
        });
    if (!is_typed) words.push_back(word);
  }
  words.insert(words.end(), typed.begin(), typed.end());
  return words;
}

}  // namespace rubato
