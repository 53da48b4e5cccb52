#include "tools/plot/page.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "tools/plot/assets.h"

namespace rubato {
namespace {

using Json = nlohmann::ordered_json;

// Counts are exact; of others seven digits are more than can be seen, and half the page. NaN
// becomes null.
Json Rounded(absl::string_view figure, const std::vector<double>& values) {
  if (figure == "step" || figure == "samples") return values;
  Json rounded = Json::array();
  for (const double value : values) {
    double near = value;
    if (std::isfinite(value)) (void)absl::SimpleAtod(absl::StrFormat("%.7g", value), &near);
    rounded.push_back(near);
  }
  return rounded;
}

// In a script element no text may end it: '<' is written as an escape of JSON.
std::string DataText(const std::vector<RunCurves>& runs) {
  Json all = Json::array();
  for (const RunCurves& run : runs) {
    Json kinds = Json::object();
    for (const auto& [kind, curves] : run.kinds) {
      for (const auto& [figure, values] : curves) {
        bool any = false;
        for (const double value : values) any = any || value == value;
        // Lines of tests have fewer figures. A loss that was never finite is worth a note.
        if (any || figure == "loss") kinds[kind][figure] = Rounded(figure, values);
      }
    }
    all.push_back({{"name", run.name}, {"mode", run.mode}, {"kinds", std::move(kinds)}});
  }
  const Json data = {{"runs", std::move(all)}};
  return absl::StrReplaceAll(data.dump(-1, ' ', false, Json::error_handler_t::replace),
                             {{"<", "\\u003c"}});
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string PlotPage(const std::vector<RunCurves>& runs) {
  // In one pass, so that what is put in is not searched again.
  return absl::StrReplaceAll(View(kPageHtml), {{"@STYLE@", View(kPageStyle)},
                                               {"@DATA@", DataText(runs)},
                                               {"@LICENCE@", View(kChartLicence)},
                                               {"@LIBRARY@", View(kChartLibrary)},
                                               {"@SCRIPT@", View(kPageScript)}});
}

}  // namespace rubato
