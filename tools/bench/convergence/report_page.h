// report.html of a study: its report with charts. A core: it reads and writes no files.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_PAGE_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_PAGE_H_

#include <map>
#include <string>
#include <vector>

#include "tools/bench/convergence/cell_result.h"
#include "tools/bench/convergence/study.h"
#include "tools/bench/convergence/verdict.h"

namespace rubato {

// Evaluations of runs, by the names of their cells.
using CellCurves = std::map<std::string, std::vector<Evaluation>>;

// The charts that the page has, by the names of their elements: how high a picture of one is, so
// that each of its rows has room. Pixels.
std::map<std::string, int> ChartHeights(const Study& study, const std::vector<DoneCell>& cells);

// One HTML document that loads nothing else. A run without a curve is in all but the bands.
std::string ReportPage(const Study& study, const std::vector<DoneCell>& cells,
                       const CellCurves& curves, const std::string& command);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_PAGE_H_
