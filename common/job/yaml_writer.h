// A protobuf message as the YAML that YamlReader reads.
#ifndef RUBATO_COMMON_JOB_YAML_WRITER_H_
#define RUBATO_COMMON_JOB_YAML_WRITER_H_

#include <map>
#include <string>

#include "google/protobuf/message.h"

namespace rubato {

// Every key that is set, in the order of the schema. Small maps stand in one line. Numbers are
// exact, durations and sizes have their units. `sources` says of some keys, by their paths, where
// they come from; that becomes a comment at the end of the line that holds the key:
//
//   seed: 3  # from --set
//   optimizer: {name: sgd, learning_rate: 0.1}  # learning_rate from
//   RUBATO__OPTIMIZER__LEARNING_RATE
std::string WriteYaml(const google::protobuf::Message& message,
                      const std::map<std::string, std::string>& sources = {});

// The same as values by the paths of their keys: "optimizer.learning_rate" is "0.1". A list is one
// value.
std::map<std::string, std::string> YamlValues(const google::protobuf::Message& message);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_YAML_WRITER_H_
