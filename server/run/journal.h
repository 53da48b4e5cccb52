// views.jsonl of a run folder: which views held, since when and why. Written before a view holds.
#ifndef RUBATO_SERVER_RUN_JOURNAL_H_
#define RUBATO_SERVER_RUN_JOURNAL_H_

#include <string>

#include "absl/time/time.h"
#include "proto/view.pb.h"

namespace rubato {

// One JSON object, with its newline. `time` is a moment.
std::string JournalLine(const proto::View& view, const std::string& reason, absl::Time time);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_JOURNAL_H_
