// A page for a browser, in one file that loads nothing else: data, the script that draws them, and
// Chart.js with its licence.
#ifndef RUBATO_TOOLS_PLOT_DOCUMENT_H_
#define RUBATO_TOOLS_PLOT_DOCUMENT_H_

#include <string>
#include <string_view>

#include "common/base/json.h"

namespace rubato {

// What a page has of its own. Its script finds the data, and what pages share (shared.js), in
// `shared`.
struct DocumentParts {
  std::string_view maker;  // the command that makes it
  std::string_view style, body, script;
};

// No text in `data` ends the element that holds it.
std::string Document(const DocumentParts& parts, const nlohmann::ordered_json& data);

// Seven digits of a number are more than can be seen, and half the page. NaN becomes null in JSON.
double RoundedToSee(double value);

}  // namespace rubato

#endif  // RUBATO_TOOLS_PLOT_DOCUMENT_H_
