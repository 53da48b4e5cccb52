// The parts of report.html, embedded at build time.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_PAGE_ASSETS_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_PAGE_ASSETS_H_

#include <string_view>

namespace rubato {

extern const std::string_view kReportHtml;
extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_REPORT_PAGE_ASSETS_H_
