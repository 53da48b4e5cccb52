// From the `data:` section of a job to the examples it means.
#ifndef RUBATO_WORKER_DATA_LOAD_H_
#define RUBATO_WORKER_DATA_LOAD_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace rubato {

struct Data {
  Dataset train, test;
  // SHA-256, in hex, of what the examples are, whatever their path and normalisation: processes
  // with equal digests hold the same examples in the same places.
  std::string digest;
};

// `config` as LoadJob makes it. NotFound, FailedPrecondition or InvalidArgument, in one sentence,
// if the files that it names, or normalize beside them, are wrong.
absl::StatusOr<Data> LoadData(const proto::Data& config);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_LOAD_H_
