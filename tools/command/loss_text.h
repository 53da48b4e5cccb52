// A loss as people read it.
#ifndef RUBATO_TOOLS_COMMAND_LOSS_TEXT_H_
#define RUBATO_TOOLS_COMMAND_LOSS_TEXT_H_

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace rubato {

// With four decimals, as most losses are told; with four digits where these would say little, as
// of a scaled target: "0.0535", "4.661e-06", "2.311e+22".
inline std::string LossText(double loss) {
  const double size = std::abs(loss);
  const bool is_common = size == 0 || (size >= 0.001 && size < 1e6) || !std::isfinite(loss);
  return is_common ? absl::StrFormat("%.4f", loss) : absl::StrFormat("%.4g", loss);
}

// That of a summary; "-" where it tells none, as where no target counts.
inline std::string LossAt(const nlohmann::json& summary, const char* key) {
  const auto found = summary.find(key);
  return found == summary.end() || !found->is_number() ? "-" : LossText(found->get<double>());
}

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_LOSS_TEXT_H_
