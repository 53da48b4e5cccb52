#include "tools/plot/page.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "server/run/figures.h"
#include "tools/plot/assets.h"
#include "tools/plot/document.h"

namespace rubato {
namespace {

using Json = nlohmann::ordered_json;

// Counts are exact.
Json Rounded(const Figure& figure, const std::vector<double>& values) {
  if (figure.unit == Unit::kCount && figure.use == Figure::Use::kAxis) return values;
  Json rounded = Json::array();
  for (const double value : values) rounded.push_back(RoundedToSee(value));
  return rounded;
}

// Behind those that every run may have, the others of scripts' tests.
std::vector<Figure> FiguresOf(const std::vector<RunCurves>& runs) {
  std::vector<Figure> figures(Figures().begin(), Figures().end());
  std::set<absl::string_view> others;
  for (const RunCurves& run : runs) {
    for (const auto& [kind, curves] : run.kinds) {
      for (const auto& [name, values] : curves) {
        if (IsFreeName(name)) others.insert(name);
      }
    }
  }
  for (const absl::string_view name : others) figures.push_back(OtherFigure(name));
  return figures;
}

Json DataOf(const std::vector<RunCurves>& runs) {
  const std::vector<Figure> told = FiguresOf(runs);
  Json all = Json::array(), figures = Json::array();
  for (const RunCurves& run : runs) {
    Json kinds = Json::object();
    for (const auto& [kind, curves] : run.kinds) {
      for (const Figure& figure : told) {
        const auto found = curves.find(std::string(figure.name));
        if (found == curves.end()) continue;
        const std::vector<double>& values = found->second;
        const bool any = std::any_of(values.begin(), values.end(),
                                     [](double value) { return !std::isnan(value); });
        // Lines of tests have fewer figures. A loss that was never finite is worth a note.
        if (any || figure.name == "loss") kinds[kind][found->first] = Rounded(figure, values);
      }
    }
    all.push_back({{"name", run.name},
                   {"mode", run.mode},
                   {"kinds", std::move(kinds)},
                   {"seams", run.seams},
                   {"switches", run.switches}});
  }
  for (const Figure& figure : told) {
    if (figure.use == Figure::Use::kRecord) continue;
    figures.push_back({{"name", std::string(figure.name)},
                       {"title", std::string(figure.title)},
                       {"unit", std::string(UnitName(figure.unit))},
                       {"isAxis", figure.use == Figure::Use::kAxis}});
  }
  return {{"runs", std::move(all)}, {"figures", std::move(figures)}};
}

}  // namespace

std::string PlotPage(const std::vector<RunCurves>& runs) {
  return Document({"rubato plot", kPageStyle, kPageHtml, kPageScript}, DataOf(runs));
}

}  // namespace rubato
