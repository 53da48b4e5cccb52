// Pictures of a page's parts, taken by a browser that the machine may have.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_PICTURES_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_PICTURES_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

// Chromium in one of the folders of `path`, which are separated by colons; "" if it is in none.
std::string FindBrowser(absl::string_view path);

// The address of a file, whatever its name holds.
std::string FileAddress(absl::string_view file);

// `folder`/NAME.png of what `folder`/report.html shows as #only=NAME, for each of `heights`, in
// pixels by name. A picture that the browser does not produce within a minute is left out.
void TakePictures(const std::string& browser, const std::string& folder,
                  const std::map<std::string, int>& heights);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_PICTURES_H_
