#include "tools/bench/convergence/report_files.h"

#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "tools/bench/convergence/pictures.h"
#include "tools/bench/convergence/report_page.h"
#include "tools/plot/curves.h"

namespace rubato {

absl::Status WriteReportPage(const std::string& folder, const Study& study,
                             const std::vector<DoneCell>& cells, const std::string& command) {
  CellCurves curves;
  for (const auto& [cell, result] : cells) {
    if (cell.is_trial || !result.error.empty()) continue;
    const absl::StatusOr<RunCurves> run = ReadCurves(absl::StrCat(folder, "/cells/", cell.name));
    if (!run.ok()) continue;
    absl::StatusOr<std::vector<Evaluation>> evaluations = EvaluationsOf(*run, study.target);
    if (evaluations.ok()) curves[cell.name] = *std::move(evaluations);
  }
  RUBATO_RETURN_IF_ERROR(
      WriteFileAtomically(folder + "/report.html", ReportPage(study, cells, curves, command)));
  const char* const path = std::getenv("PATH");
  const std::string browser = FindBrowser(path == nullptr ? "" : path);
  if (!browser.empty()) TakePictures(browser, folder, ChartHeights(study, cells));
  return absl::OkStatus();
}

}  // namespace rubato
