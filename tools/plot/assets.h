// The parts of the page of `rubato plot`, embedded at build time.
#ifndef RUBATO_TOOLS_PLOT_ASSETS_H_
#define RUBATO_TOOLS_PLOT_ASSETS_H_

#include <string_view>

namespace rubato {

extern const std::string_view kPageHtml;
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace rubato

#endif  // RUBATO_TOOLS_PLOT_ASSETS_H_
