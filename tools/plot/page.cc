#include "tools/plot/page.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "server/run/figures.h"
#include "tools/plot/assets.h"

namespace rubato {
namespace {

using Json = nlohmann::ordered_json;

// Counts are exact; of others seven digits are more than can be seen, and half the page. NaN
// becomes null.
Json Rounded(const Figure& figure, const std::vector<double>& values) {
  if (figure.unit == Unit::kCount && figure.use == Figure::Use::kAxis) return values;
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
  Json all = Json::array(), figures = Json::array();
  for (const RunCurves& run : runs) {
    Json kinds = Json::object();
    for (const auto& [kind, curves] : run.kinds) {
      for (const Figure& figure : Figures()) {
        const auto found = curves.find(std::string(figure.name));
        if (found == curves.end()) continue;
        const std::vector<double>& values = found->second;
        const bool any = std::any_of(values.begin(), values.end(),
                                     [](double value) { return !std::isnan(value); });
        // Lines of tests have fewer figures. A loss that was never finite is worth a note.
        if (any || figure.name == "loss") kinds[kind][found->first] = Rounded(figure, values);
      }
    }
    all.push_back({{"name", run.name}, {"mode", run.mode}, {"kinds", std::move(kinds)}});
  }
  for (const Figure& figure : Figures()) {
    if (figure.use == Figure::Use::kRecord) continue;
    figures.push_back({{"name", std::string(figure.name)},
                       {"title", std::string(figure.title)},
                       {"unit", std::string(UnitName(figure.unit))},
                       {"isAxis", figure.use == Figure::Use::kAxis}});
  }
  const Json data = {{"runs", std::move(all)}, {"figures", std::move(figures)}};
  return absl::StrReplaceAll(JsonText(data), {{"<", "\\u003c"}});
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
