#include "common/pace/delays.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/pace/quantity.h"

namespace rubato {

namespace {

constexpr char kCompute[] = "RUBATO_COMPUTE", kSpeeds[] = "RUBATO_SPEEDS";

}  // namespace

std::vector<std::string> DelayFlags::Variables() const {
  return {absl::StrCat(kCompute, "=", compute), absl::StrCat(kSpeeds, "=", speeds)};
}

void DelayFlags::AddVariables(const std::function<const char*(const char*)>& getenv) {
  for (const auto& [name, value] : {std::pair(kCompute, &compute), {kSpeeds, &speeds}}) {
    const char* const found = getenv(name);
    if (value->empty() && found != nullptr) *value = found;
  }
}

absl::StatusOr<std::optional<Delays>> Delays::Of(const DelayFlags& flags, const proto::Job& job) {
  if (flags.compute.empty()) {
    if (flags.speeds.empty()) return std::nullopt;
    return absl::InvalidArgumentError(
        "--speeds: expected --compute as well, the time that they are a factor of");
  }
  Delays delays;
  RUBATO_ASSIGN_OR_RETURN(const int64_t nanos, ParseTime("--compute", flags.compute));
  delays.micro_batch_seconds_ = static_cast<double>(nanos) * 1e-9;
  delays.micro_batch_samples_ = static_cast<double>(job.train().batch_size()) /
                                static_cast<double>(job.train().micro_batches());
  RUBATO_ASSIGN_OR_RETURN(delays.speeds_,
                          Speeds::Parse(flags.speeds.empty() ? "fixed" : flags.speeds, job.seed()));
  RUBATO_RETURN_IF_ERROR(delays.speeds_.CheckWorkers(job.cluster().workers().max()));
  return delays;
}

absl::Duration Delays::Next(int rank, int64_t n, int64_t samples) const {
  return absl::Seconds(speeds_.Seconds(rank, n, micro_batch_seconds_) *
                       static_cast<double>(samples) / micro_batch_samples_);
}

}  // namespace rubato
