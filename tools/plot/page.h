// The page that `rubato plot` writes.
#ifndef RUBATO_TOOLS_PLOT_PAGE_H_
#define RUBATO_TOOLS_PLOT_PAGE_H_

#include <string>
#include <vector>

#include "tools/plot/curves.h"

namespace rubato {

// One HTML document that loads nothing else: the curves of all runs, the script that draws them and
// Chart.js, with its licence.
std::string PlotPage(const std::vector<RunCurves>& runs);

}  // namespace rubato

#endif  // RUBATO_TOOLS_PLOT_PAGE_H_
