// The parts that all pages share, embedded at build time.
#ifndef RUBATO_TOOLS_PLOT_DOCUMENT_ASSETS_H_
#define RUBATO_TOOLS_PLOT_DOCUMENT_ASSETS_H_

#include <string_view>

namespace rubato {

extern const std::string_view kDocumentHtml;
extern const std::string_view kSharedStyle;
extern const std::string_view kSharedScript;
// Chart.js of the distribution, and its licence.
extern const std::string_view kChartLibrary;
extern const std::string_view kChartLicence;

}  // namespace rubato

#endif  // RUBATO_TOOLS_PLOT_DOCUMENT_ASSETS_H_
