#include "common/job/scalar_field.h"

#include <limits>
#include <optional>

#include "common/base/check.h"
#include "common/job/scalar.h"
#include "proto/options.pb.h"

namespace rubato {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldOptions;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {

// Whether `value` keeps the bounds of `field`.
bool InRange(const FieldDescriptor& field, double value) {
  const FieldOptions& options = field.options();
  if (options.HasExtension(proto::at_least) && value < options.GetExtension(proto::at_least)) {
    return false;
  }
  if (options.HasExtension(proto::at_most) && value > options.GetExtension(proto::at_most)) {
    return false;
  }
  if (options.HasExtension(proto::above) && value <= options.GetExtension(proto::above)) {
    return false;
  }
  return !options.HasExtension(proto::below) || value < options.GetExtension(proto::below);
}

template <typename T>
void Store(const Reflection& reflection, const FieldDescriptor& field, Message* message, T value,
           void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
           void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  (reflection.*(field.is_repeated() ? add : set))(message, &field, value);
}

}  // namespace

bool StoreNumber(absl::string_view text, const FieldDescriptor& field, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const proto::Unit unit = field.options().GetExtension(proto::unit);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const std::optional<double> value =
          unit == proto::UNIT_DURATION ? ParseDuration(text) : ParseNumber(text);
      if (!value.has_value() || !InRange(field, *value)) return false;
      Store<double>(reflection, field, message, *value, &Reflection::SetDouble,
                    &Reflection::AddDouble);
      return true;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const std::optional<uint64_t> value = ParseUint(text);
      if (!value.has_value() || !InRange(field, static_cast<double>(*value))) return false;
      Store<uint64_t>(reflection, field, message, *value, &Reflection::SetUInt64,
                      &Reflection::AddUInt64);
      return true;
    }
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_INT32: {
      const std::optional<int64_t> value =
          unit == proto::UNIT_BYTES ? ParseSize(text) : ParseInt(text);
      if (!value.has_value() || !InRange(field, static_cast<double>(*value))) return false;
      const int64_t multiple_of = field.options().GetExtension(proto::multiple_of);
      if (multiple_of != 0 && *value % multiple_of != 0) return false;
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        Store<int64_t>(reflection, field, message, *value, &Reflection::SetInt64,
                       &Reflection::AddInt64);
        return true;
      }
      if (*value < std::numeric_limits<int32_t>::min() ||
          *value > std::numeric_limits<int32_t>::max()) {
        return false;
      }
      Store<int32_t>(reflection, field, message, static_cast<int32_t>(*value),
                     &Reflection::SetInt32, &Reflection::AddInt32);
      return true;
    }
    default:
      // The schema keeps to the types above.
      RUBATO_CHECK(false);
      return false;
  }
}

void StoreBool(bool value, const FieldDescriptor& field, Message* message) {
  Store<bool>(*message->GetReflection(), field, message, value, &Reflection::SetBool,
              &Reflection::AddBool);
}

void StoreEnum(const EnumValueDescriptor& value, const FieldDescriptor& field, Message* message) {
  Store<const EnumValueDescriptor*>(*message->GetReflection(), field, message, &value,
                                    &Reflection::SetEnum, &Reflection::AddEnum);
}

void StoreText(const std::string& value, const FieldDescriptor& field, Message* message) {
  Store<std::string>(*message->GetReflection(), field, message, value, &Reflection::SetString,
                     &Reflection::AddString);
}

}  // namespace rubato
