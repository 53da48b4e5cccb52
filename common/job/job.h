// A job: the YAML file that a user writes, as a checked message. The schema is proto/job.proto;
// this is how it is read, shown and compared.
#ifndef RUBATO_COMMON_JOB_JOB_H_
#define RUBATO_COMMON_JOB_JOB_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/environment.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"

namespace rubato {

// Which keys were not taken from the file, and from where: {"optimizer.momentum", "--set"},
// {"cluster.workers.start", "WORLD_SIZE"}.
using Sources = std::map<std::string, std::string>;

// Reads the job in the YAML file `path`, with what `environment` says in place of what the file
// says (see environment.h), and with `overrides` such as "optimizer.learning_rate=0.1" in place of
// both (the value is YAML; it replaces the whole of what stood under that key). The result is
// complete: every key that has a default is set, data.path is absolute (relative to the file's
// folder; to the current folder in an override). `sources`, if given, is filled.
//
// Errors have no prefix; the message has a line for each mistake, all of them at once:
//   job.yaml:12:3: optimizer.momentum: found 1.5, expected a number in [0, 1)
//   --set optimizer.learning_rat: found an unknown key; did you mean optimizer.learning_rate?
//   RUBATO__SEED: found x, expected an integer from 0 to 18446744073709551615
// NotFound if there is no such file, FailedPrecondition if it cannot be read, InvalidArgument for
// what it says.
absl::StatusOr<proto::Job> LoadJob(const std::string& path,
                                   absl::Span<const std::string> overrides = {},
                                   const Environment& environment = ProcessEnvironment(),
                                   Sources* sources = nullptr);

// The whole job as YAML, with every key and default in its place, and with comments that say which
// of them `sources` gave. LoadJob reads it back to an equal message.
std::string ResolvedYaml(const proto::Job& job, const Sources& sources = {});

// The job with the optimizer that its script's layout brings, if it is a script's.
proto::Job WithOptimizerOf(const proto::Layout& layout, const proto::Job& job);

// SHA-256, in hexadecimal, of what all processes of one job must agree on: the resolved job without
// the keys that are marked `local` in the schema, where each says why.
std::string JobDigest(const proto::Job& job);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_JOB_H_
