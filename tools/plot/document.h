// A page for a browser, in one file that loads nothing else: data, the script that draws them, and
// Chart.js with its licence.
#ifndef RUBATO_TOOLS_PLOT_DOCUMENT_H_
#define RUBATO_TOOLS_PLOT_DOCUMENT_H_

#include <string>
#include <string_view>

#include "common/base/json.h"

namespace rubato {

// The parts that are specific to a page. Its script finds the data and the shared code (shared.js)
// in `shared`.
struct DocumentParts {
  std::string_view maker;  // the command that makes it
  std::string_view style, body, script;
};

// Escapes `data`, so that no text in it closes the element that contains it.
std::string Document(const DocumentParts& parts, const nlohmann::ordered_json& data);

// Rounds to a few digits: seven are more than a chart can show, and take half of the page. NaN
// becomes null in JSON.
double RoundedToSee(double value);

}  // namespace rubato

#endif  // RUBATO_TOOLS_PLOT_DOCUMENT_H_
