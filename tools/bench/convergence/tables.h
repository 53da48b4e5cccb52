// Tables of what the runs of each mode did besides reaching the target. A core, as report.h.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_TABLES_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_TABLES_H_

#include <string>
#include <vector>

#include "tools/bench/convergence/cell_result.h"
#include "tools/bench/convergence/study.h"

namespace rubato {

// What `bounded` bounds, which is not the staleness of updates; "" if the study does not have it.
std::string BoundNote(const Study& study);

// Markdown, of the runs that are judged, at the first computing time. Empty if there is nothing to
// tell: no updates on arrival, no times.
std::string StalenessMarkdown(const Study& study, const std::vector<DoneCell>& cells);
std::string TimesMarkdown(const Study& study, const std::vector<DoneCell>& cells);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_TABLES_H_
