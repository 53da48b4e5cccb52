// How the two ends of `rubato bench wire` authenticate, depending on the measured path.
#ifndef RUBATO_TOOLS_BENCH_WIRE_SECURITY_H_
#define RUBATO_TOOLS_BENCH_WIRE_SECURITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/wire/connection_options.h"
#include "common/wire/key.h"

namespace rubato {

// A secret and certificates in a folder of their own, which goes with this. While it lives, the
// environment has what a server finds there: of processes that are started meanwhile.
class BenchSecurity {
 public:
  static absl::StatusOr<std::unique_ptr<BenchSecurity>> Create();
  ~BenchSecurity();

  // Of the worker's end of `path`: by a key if that is "token", by TLS if it is "mtls".
  absl::StatusOr<ConnectionOptions> OfWorker(const std::string& path) const;

 private:
  BenchSecurity() = default;

  const JobKey secret_ = JobKey::DrawSecret();
  std::string folder_;
};

// Of the server's end, in a process that was started meanwhile.
absl::StatusOr<ConnectionOptions> BenchServerSecurity(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_WIRE_SECURITY_H_
