#include "tools/simulator/link.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/pace/quantity.h"

namespace rubato {
namespace {

absl::StatusOr<int> ParseNumber(absl::string_view link, absl::string_view key,
                                absl::string_view text, int count) {
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 0 && number < count) return number;
  return absl::InvalidArgumentError(
      absl::StrFormat("--link %s: found %s=%s, expected a number from 0 to %d: the job has %d %ss",
                      link, key, text, count - 1, count, key));
}

}  // namespace

absl::StatusOr<LinkSetting> ParseLink(absl::string_view text, int workers, int shards) {
  LinkSetting link;
  std::set<absl::string_view> seen;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto& [key, value] = pair;
    if (!seen.insert(key).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--link %s: found %s twice, expected it once", text, key));
    }
    const std::string what = absl::StrFormat("--link %s: %s", text, key);
    if (key == "worker") {
      RUBATO_ASSIGN_OR_RETURN(link.worker, ParseNumber(text, key, value, workers));
    } else if (key == "shard") {
      RUBATO_ASSIGN_OR_RETURN(link.shard, ParseNumber(text, key, value, shards));
    } else if (key == "latency") {
      RUBATO_ASSIGN_OR_RETURN(link.latency, ParseTime(what, value));
    } else if (key == "bandwidth") {
      RUBATO_ASSIGN_OR_RETURN(link.bytes_per_second, ParseBandwidth(what, value));
    } else {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--link %s: found %s, expected worker=N, shard=N, latency=TIME or bandwidth=RATE with "
          "commas between them",
          text, part.empty() ? "nothing" : part));
    }
  }
  if (!link.worker.has_value() && !link.shard.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--link %s: found no machine, expected worker=N, shard=N or both", text));
  }
  if (!link.latency.has_value() && !link.bytes_per_second.has_value()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--link %s: found nothing to change, expected latency=TIME, bandwidth=RATE or both", text));
  }
  return link;
}

}  // namespace rubato
