// `rubato plot`: the curves of runs as one page.
#ifndef RUBATO_TOOLS_PLOT_PLOT_H_
#define RUBATO_TOOLS_PLOT_PLOT_H_

#include <string>
#include <vector>

namespace rubato {

// Writes the page and prints its name. Returns the exit code; `arguments` follow the verb.
int PlotMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_PLOT_PLOT_H_
