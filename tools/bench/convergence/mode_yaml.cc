#include "tools/bench/convergence/mode_yaml.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rubato {
namespace {

// "bounded,staleness=3" as "mode: bounded, staleness: 3". What it says is the job's to check.
std::string ModeYaml(absl::string_view mode) {
  std::string yaml;
  for (const absl::string_view part : absl::StrSplit(mode, ',')) {
    const std::pair<absl::string_view, absl::string_view> key_value =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    absl::StrAppend(&yaml, yaml.empty() ? "mode: " : ", ", key_value.first);
    if (absl::StrContains(part, '=')) absl::StrAppend(&yaml, ": ", key_value.second);
  }
  return yaml;
}

}  // namespace

std::string Slug(absl::string_view mode) {
  std::string slug;
  for (const char c : mode) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      slug.push_back(c);
    } else if (!slug.empty() && slug.back() != '-') {
      slug.push_back('-');
    }
  }
  return slug;
}

std::string PointAt(const proto::Point& until, double share) {
  const auto whole = [share](int64_t count) {
    return std::max<int64_t>(1, std::llround(share * static_cast<double>(count)));
  };
  switch (until.at_case()) {
    case proto::Point::kEpochs:
      return absl::StrFormat("{epochs: %.17g}", share * until.epochs());
    case proto::Point::kSteps:
      return absl::StrCat("{steps: ", whole(until.steps()), "}");
    case proto::Point::kSamples:
      return absl::StrCat("{samples: ", whole(until.samples()), "}");
    default:
      return "";
  }
}

absl::StatusOr<std::string> ConsistencyYaml(absl::string_view mode, const proto::Point& until) {
  const std::vector<absl::string_view> stages = absl::StrSplit(mode, '+');
  if (stages.size() == 1 && !absl::StrContains(mode, '@')) {
    return absl::StrCat("{", ModeYaml(mode), "}");
  }
  std::vector<std::string> yaml;
  double end = 0;
  for (const absl::string_view stage : stages) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(stage, absl::MaxSplits('@', 1));
    const bool is_last = stage.data() == stages.back().data();
    if (is_last != !absl::StrContains(stage, '@')) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--mode ", mode,
          ": expected MODE@SHARE% for each stage but the last, such as sync@12%+async"));
    }
    if (is_last) {
      yaml.push_back(absl::StrCat("{", ModeYaml(stage), "}"));
      continue;
    }
    double percent = 0;
    absl::string_view share = parts.second;
    if (!absl::EndsWith(share, "%") ||
        !absl::SimpleAtod(share.substr(0, share.size() - 1), &percent) || !(percent > 0) ||
        !(end + percent < 100)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--mode ", mode, ": found the share ", share,
                       ", expected a part of the training above 0% and, all together, below 100%"));
    }
    end += percent;
    yaml.push_back(
        absl::StrCat("{", ModeYaml(parts.first), ", until: ", PointAt(until, end / 100), "}"));
  }
  return absl::StrCat("{schedule: [", absl::StrJoin(yaml, ", "), "]}");
}

}  // namespace rubato
