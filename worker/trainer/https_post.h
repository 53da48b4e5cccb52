// One request over HTTPS, by OpenSSL's client: the library is linked in anyway.
#ifndef RUBATO_WORKER_TRAINER_HTTPS_POST_H_
#define RUBATO_WORKER_TRAINER_HTTPS_POST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rubato {

// Posts JSON to `url`. The server must have a certificate for its name, signed by a CA in `ca_file`
// (PEM). `token` is the bearer token. Waits `patience_seconds` at most, plus the time for resolving
// the name. Unavailable, in one sentence, unless the answer has status 200.
absl::Status HttpsPost(const std::string& url, const std::string& ca_file, const std::string& token,
                       const std::string& body, int patience_seconds);

// Whether an answer that begins so has status 200.
bool IsAccepted(absl::string_view answer);

}  // namespace rubato

#endif  // RUBATO_WORKER_TRAINER_HTTPS_POST_H_
