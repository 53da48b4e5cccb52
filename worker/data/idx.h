// MNIST's IDX format: http://yann.lecun.com/exdb/mnist, as is or compressed by gzip.
#ifndef RUBATO_WORKER_DATA_IDX_H_
#define RUBATO_WORKER_DATA_IDX_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace rubato {

struct IdxFolder {
  Examples train, test;
  std::string digest;  // SHA-256, in hex, of the decoded bytes of the four files
};

// Reads the four files of a folder, by their customary names:
// {train,t10k}-{images-idx3,labels-idx1}-ubyte, also with a dot for the second hyphen, also with
// .gz. Labels lie in [0, classes), classes being the largest label of train plus one.
//
// NotFound if files are missing (all are named); InvalidArgument, naming the file, what was found
// and what was expected, if one is damaged or they contradict each other.
absl::StatusOr<IdxFolder> ReadIdxFolder(const std::string& folder);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_IDX_H_
