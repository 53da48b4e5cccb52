// Files of a study's report that are made of the runs' own files.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_FILES_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/bench/convergence/cell_result.h"
#include "tools/bench/convergence/study.h"

namespace rubato {

// `folder`/report.html, with the curves of the runs in `folder`/cells that are still there, and
// where Chromium is installed a picture of each chart beside it.
absl::Status WriteReportPage(const std::string& folder, const Study& study,
                             const std::vector<DoneCell>& cells, const std::string& command);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_FILES_H_
