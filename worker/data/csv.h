// Tables with a header line in CSV files, plain or gzip.
#ifndef RUBATO_WORKER_DATA_CSV_H_
#define RUBATO_WORKER_DATA_CSV_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/source.h"

namespace rubato {

// Reads `path` and, if it is given, `test_path`, whose columns may be in another order.
// proto/job.proto explains the keys of `config`. Channels are the numeric columns, followed by
// "column=name" for each name of each categorical column. With impute: mean, missing values are NaN
// here.
//
// NotFound or InvalidArgument, in one sentence with the file, the line, the column, what was found
// and what was expected.
absl::StatusOr<Source> ReadCsv(const proto::Data& config, bool classification);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_CSV_H_
