#include "server/coordinator/layout_difference.h"

#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"

namespace rubato {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string ShapeOf(const proto::Parameter& parameter) {
  return absl::StrCat("(", absl::StrJoin(parameter.shape(), ", "), ")");
}

std::string ValueOf(const Message& message, const FieldDescriptor& field) {
  std::string text;
  if (field.is_repeated()) {
    const int size = message.GetReflection()->FieldSize(message, &field);
    if (size > 8) return absl::StrCat(size, " entries");
    for (int i = 0; i < size; ++i) {
      std::string entry;
      google::protobuf::TextFormat::PrintFieldValueToString(message, &field, i, &entry);
      absl::StrAppend(&text, i == 0 ? "" : ", ", entry);
    }
    return absl::StrCat("[", text, "]");
  }
  if (!message.GetReflection()->HasField(message, &field)) return "nothing";
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, -1, &text);
  return text;
}

std::string SettingsDifference(const Message& found, const Message& expected) {
  for (int i = 0; i < found.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *found.GetDescriptor()->field(i);
    const std::string a = ValueOf(found, field), b = ValueOf(expected, field);
    if (a == b) continue;
    return absl::StrFormat("optimizer.%s: found %s, expected %s", field.name(), a, b);
  }
  return "optimizer: found another";
}

}  // namespace

std::string LayoutDifference(const proto::Layout& found, const proto::Layout& expected) {
  if (found.SerializeAsString() == expected.SerializeAsString()) return "";
  for (int i = 0; i < found.parameters_size() && i < expected.parameters_size(); ++i) {
    const proto::Parameter &a = found.parameters(i), &b = expected.parameters(i);
    if (a.SerializeAsString() == b.SerializeAsString()) continue;
    if (a.name() != b.name()) {
      return absl::StrFormat("parameter %d: found %s, expected %s", i, Printable(a.name()),
                             Printable(b.name()));
    }
    if (ShapeOf(a) != ShapeOf(b)) {
      return absl::StrFormat("%s: found shape %s, expected %s", Printable(a.name()), ShapeOf(a),
                             ShapeOf(b));
    }
    return absl::StrCat(Printable(a.name()), ": found another initial distribution");
  }
  if (found.parameters_size() != expected.parameters_size()) {
    return absl::StrFormat("found %d parameters, expected %d", found.parameters_size(),
                           expected.parameters_size());
  }
  const std::string constants = ConstantsDifference(found, expected);
  return constants.empty() ? SettingsDifference(found.optimizer(), expected.optimizer())
                           : constants;
}

std::string ConstantsDifference(const proto::Layout& found, const proto::Layout& expected) {
  for (int i = 0; i < found.constants_size() && i < expected.constants_size(); ++i) {
    const proto::Constant &a = found.constants(i), &b = expected.constants(i);
    if (a.name() != b.name()) {
      return absl::StrFormat("of those that are not trained number %d: found %s, expected %s", i,
                             Printable(a.name()), Printable(b.name()));
    }
    if (a.digest() == b.digest()) continue;
    return absl::StrCat(
        Printable(a.name()),
        ", which is not trained: found other values, or another type (does the script draw them "
        "without a seed? Call torch.manual_seed first)");
  }
  if (found.constants_size() == expected.constants_size()) return "";
  return absl::StrFormat("found %d that are not trained, expected %d", found.constants_size(),
                         expected.constants_size());
}

}  // namespace rubato
