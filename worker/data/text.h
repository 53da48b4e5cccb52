// A text as a sequence of characters, plain or gzip.
#ifndef RUBATO_WORKER_DATA_TEXT_H_
#define RUBATO_WORKER_DATA_TEXT_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/source.h"

namespace rubato {

// Characters are those of UTF-8, numbered in ascending order: source.classes[c] is character c.
// Example i holds as features the numbers of the characters [i * context, (i + 1) * context), as
// floats, and as labels those of the characters after each of them: `context` labels an example.
// The rest of the text, too short for an example, is left out.
//
// NotFound or InvalidArgument, naming file, line and column, if there is no such file, or if it is
// not UTF-8 or is too short.
absl::StatusOr<Source> ReadText(const proto::Data& config);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_TEXT_H_
