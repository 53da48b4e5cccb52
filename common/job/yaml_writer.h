// A protobuf message as the YAML that YamlReader reads.
#ifndef RUBATO_COMMON_JOB_YAML_WRITER_H_
#define RUBATO_COMMON_JOB_YAML_WRITER_H_

#include <string>

#include "google/protobuf/message.h"

namespace rubato {

// Every key that is set, in the order of the schema. Small maps stand in one line. Numbers are
// exact, durations and sizes have their units.
std::string WriteYaml(const google::protobuf::Message& message);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_YAML_WRITER_H_
