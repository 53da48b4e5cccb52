#include "tools/plot/document.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "tools/plot/document_assets.h"

namespace rubato {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string Document(const DocumentParts& parts, const nlohmann::ordered_json& data) {
  // '<' is written as an escape of JSON.
  const std::string text = absl::StrReplaceAll(JsonText(data), {{"<", "\\u003c"}});
  // In one pass, so that what is put in is not searched again.
  return absl::StrReplaceAll(View(kDocumentHtml), {{"@MAKER@", View(parts.maker)},
                                                   {"@SHARED_STYLE@", View(kSharedStyle)},
                                                   {"@STYLE@", View(parts.style)},
                                                   {"@BODY@", View(parts.body)},
                                                   {"@DATA@", text},
                                                   {"@LICENCE@", View(kChartLicence)},
                                                   {"@LIBRARY@", View(kChartLibrary)},
                                                   {"@SHARED_SCRIPT@", View(kSharedScript)},
                                                   {"@SCRIPT@", View(parts.script)}});
}

double RoundedToSee(double value) {
  double near = value;
  if (std::isfinite(value)) (void)absl::SimpleAtod(absl::StrFormat("%.7g", value), &near);
  return near;
}

}  // namespace rubato
