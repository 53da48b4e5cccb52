// A message as JSON: what protobuf makes of it with the fields' own names and on many lines, for a
// tenth of the time. To print a checkpoint's manifest took a third of all that its process does for
// a small one: protobuf describes each type anew, each time.
#ifndef RUBATO_COMMON_FILES_MESSAGE_JSON_H_
#define RUBATO_COMMON_FILES_MESSAGE_JSON_H_

#include <google/protobuf/message.h>

#include <string>

namespace rubato {

// Of messages that hold numbers of 32 and 64 bits, doubles, bools, enums, UTF-8 and such messages.
std::string MessageJson(const google::protobuf::Message& message);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_MESSAGE_JSON_H_
