// One request over HTTPS, by OpenSSL's client: the library is linked in anyway.
#ifndef RUBATO_WORKER_TRAINER_HTTPS_POST_H_
#define RUBATO_WORKER_TRAINER_HTTPS_POST_H_

#include <string>

#include "absl/status/status.h"

namespace rubato {

// Posts JSON to `url`, whose server shows a certificate for its name by an authority of `ca_file`
// (PEM). `token` is the bearer's. Waits `patience_seconds` at most, beside looking up the name; of
// the answer only that it is 200 counts. Unavailable, in one sentence.
absl::Status HttpsPost(const std::string& url, const std::string& ca_file, const std::string& token,
                       const std::string& body, int patience_seconds);

}  // namespace rubato

#endif  // RUBATO_WORKER_TRAINER_HTTPS_POST_H_
