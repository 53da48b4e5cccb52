// Scalars into fields of any type: a singular field is set, a repeated one gets one entry more.
#ifndef RUBATO_COMMON_JOB_SCALAR_FIELD_H_
#define RUBATO_COMMON_JOB_SCALAR_FIELD_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace rubato {

// Stores the number in `text`; false, and nothing is stored, if it is none, not of the field's type
// and unit, or out of its bounds.
bool StoreNumber(absl::string_view text, const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message* message);

void StoreBool(bool value, const google::protobuf::FieldDescriptor& field,
               google::protobuf::Message* message);
void StoreEnum(const google::protobuf::EnumValueDescriptor& value,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message* message);
void StoreText(const std::string& value, const google::protobuf::FieldDescriptor& field,
               google::protobuf::Message* message);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_SCALAR_FIELD_H_
