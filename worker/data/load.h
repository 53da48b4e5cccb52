// Loads the examples that the `data:` section of a job describes.
#ifndef RUBATO_WORKER_DATA_LOAD_H_
#define RUBATO_WORKER_DATA_LOAD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/data_description.pb.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace rubato {

struct Data {
  Dataset train, validation, test;  // disjoint; validation is empty unless the job asks for it
  // Names of the channels and of the classes, where the format has any.
  std::vector<std::string> columns, classes;
  // What `normalize: auto` has computed of the training split, for each number among the channels;
  // a missing value has been given its column's mean. Empty for others.
  Normalization normalization;
  // SHA-256, in hex, of the examples, independent of their path, split and normalisation: processes
  // with equal digests and equal jobs hold the same examples at the same positions.
  std::string digest;
  proto::DataDescription description;  // empty if it takes more than kMaxDescription
  std::vector<std::string> notes;      // what people should know of the reading, a sentence each
};

// How many of `size` examples the job keeps apart as validation.
int64_t ValidationSize(const proto::Data& config, int64_t size);
// InvalidArgument if those would be none, or all.
absl::Status CheckValidation(const proto::Data& config, int64_t size);

// `job` as LoadJob makes it: its data, seed and loss are read. NotFound, FailedPrecondition or
// InvalidArgument, in one sentence, if the files that it names, or keys beside them, are wrong.
absl::StatusOr<Data> LoadData(const proto::Job& job);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_LOAD_H_
