// A job: the YAML file that a user writes, as a checked message. The schema is proto/job.proto;
// this is how it is read, shown and compared.
#ifndef RUBATO_COMMON_JOB_JOB_H_
#define RUBATO_COMMON_JOB_JOB_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"

namespace rubato {

// Reads the job in the YAML file `path`, with `overrides` such as "optimizer.learning_rate=0.1" in
// place of what the file says (the value is YAML; it replaces the whole of what stood under that
// key). The result is complete: every key that has a default is set, data.path is absolute
// (relative to the file's folder; to the current folder in an override).
//
// Errors have no prefix; the message has a line for each mistake, all of them at once:
//   job.yaml:12:3: optimizer.momentum: found 1.5, expected a number in [0, 1)
//   --set optimizer.learning_rat: found an unknown key; did you mean optimizer.learning_rate?
// NotFound if there is no such file, FailedPrecondition if it cannot be read, InvalidArgument for
// what it says.
absl::StatusOr<proto::Job> LoadJob(const std::string& path,
                                   absl::Span<const std::string> overrides = {});

// The whole job as YAML, with every key and default in its place. LoadJob reads it back to an equal
// message.
std::string ResolvedYaml(const proto::Job& job);

// SHA-256, in hexadecimal, of what all processes of one job must agree on: the resolved job without
// the keys that are marked `local` in the schema, where each says why.
std::string JobDigest(const proto::Job& job);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_JOB_H_
