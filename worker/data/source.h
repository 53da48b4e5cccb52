// The result of a reader of a data format.
#ifndef RUBATO_WORKER_DATA_SOURCE_H_
#define RUBATO_WORKER_DATA_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/data_description.pb.h"
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
  proto::DataDescription description;  // of the columns and the target; LoadData adds the rest
  std::string digest;                  // SHA-256, in hex, of all the above
  std::vector<std::string> notes;      // what people should know of the reading, a sentence each
};

// Checks in advance that `examples` examples of `floats_each` floats fit into this process's
// memory, including the copy for a split. If not, InvalidArgument with the required and the
// available bytes.
absl::Status CheckSize(const proto::Data& config, const std::string& path, int64_t examples,
                       int64_t floats_each);

// The digest of a source of floats.
std::string DigestOf(const Source& source);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_SOURCE_H_
