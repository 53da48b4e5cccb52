// The binary version of CIFAR-10: Krizhevsky, "Learning multiple layers of features from tiny
// images", 2009.
#ifndef RUBATO_WORKER_DATA_CIFAR10_H_
#define RUBATO_WORKER_DATA_CIFAR10_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/source.h"

namespace rubato {

// Reads data_batch_1.bin to data_batch_5.bin, in this order, as training split and test_batch.bin
// as test split, plain or gzip (.gz): records of a label, a byte, and 3 x 32 x 32 pixels, red
// first. The names of the classes come from batches.meta.txt, if it is there. The files are in
// `folder`, or in cifar-10-batches-bin in it, as in the published archive.
//
// NotFound if files are missing; InvalidArgument, naming file and record, if a file is cut off or a
// label is above 9.
absl::StatusOr<Source> ReadCifar10(const std::string& folder);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_CIFAR10_H_
