// How a connection of HTTP/2 (RFC 9113) begins, as far as a server looks before gRPC has it.
//
// gRPC 1.51 limits how many calls a connection may have under way only when the peer has
// acknowledged the server's settings, and until then each HEADERS frame of ten bytes makes a call
// of ten KB. So the acceptor sends its own settings first, and hands a connection to gRPC once
// their acknowledgement has arrived, still unread. gRPC sends its settings before it reads, takes
// this acknowledgement for theirs, and so enforces the limit from the first call on.
#ifndef RUBATO_COMMON_WIRE_HTTP2_OPENING_H_
#define RUBATO_COMMON_WIRE_HTTP2_OPENING_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

// A SETTINGS frame that allows `max_calls` calls at a time, with which a server may begin.
std::string FirstSettings(int max_calls);

// Within so many bytes the acknowledgement comes: gRPC's clients send it behind their own settings
// and one WINDOW_UPDATE, some 100 bytes.
constexpr size_t kMaxOpeningBytes = 4096;

enum class Opening {
  kUnfinished,    // more must come
  kAcknowledged,  // the settings are
  kNotHttp2,      // it does not begin as a client's connection must
  kTooLong,       // kMaxOpeningBytes without an acknowledgement
};

// What `bytes`, the first of a connection, are.
Opening ReadOpening(absl::string_view bytes);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_HTTP2_OPENING_H_
