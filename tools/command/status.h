// How a running job stands, for `rubato status`.
#ifndef RUBATO_TOOLS_COMMAND_STATUS_H_
#define RUBATO_TOOLS_COMMAND_STATUS_H_

#include <string>

#include "proto/cluster.pb.h"

namespace rubato {

// Some lines for a person.
std::string StatusText(const proto::JobStatus& status);

// One JSON object on one line, with the names of the message's fields.
std::string StatusJson(const proto::JobStatus& status);
// The coordinator's answer to a requested change, as one JSON object.
std::string AnswerJson(const std::string& text);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_STATUS_H_
