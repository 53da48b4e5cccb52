// What the reader of a format hands over.
#ifndef RUBATO_WORKER_DATA_SOURCE_H_
#define RUBATO_WORKER_DATA_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace rubato {

struct Source {
  Examples train;
  Examples test;  // none if it is still to be taken from train
  // Channels [0, quantities) are quantities, which normalisation concerns; the rest are 0 or 1.
  int64_t quantities = 0;
  // Names of the channels and of the classes, where the format has any.
  std::vector<std::string> columns, classes;
  std::string digest;              // SHA-256, in hex, of all the above
  std::vector<std::string> notes;  // what people should know of the reading, a sentence each
};

// Before they are made: whether so many examples of so many floats have a place in this process's
// memory, with those that a split then takes out of them. InvalidArgument, with what they take and
// what there is, if not.
absl::Status CheckSize(const proto::Data& config, const std::string& path, int64_t examples,
                       int64_t floats_each);

// The digest of a source of floats.
std::string DigestOf(const Source& source);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_SOURCE_H_
