// Sparse rows as LIBSVM and XGBoost write them, plain or gzip:
//   <label> <index>:<value> <index>:<value> ...  # what follows is a remark
#ifndef RUBATO_WORKER_DATA_LIBSVM_H_
#define RUBATO_WORKER_DATA_LIBSVM_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/source.h"

namespace rubato {

// Reads `path` and, if it is given, `test_path` into dense rows: what is not written is 0. Indices
// ascend from data.index_base on; there are data.features of them, or as many as the largest in
// either file says.
//
// NotFound or InvalidArgument, in one sentence with the file, the line, the field, what was found
// and what was expected.
absl::StatusOr<Source> ReadLibsvm(const proto::Data& config, bool classification);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_LIBSVM_H_
