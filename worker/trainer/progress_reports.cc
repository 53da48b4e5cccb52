#include "worker/trainer/progress_reports.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace rubato {
namespace {

using Json = nlohmann::ordered_json;

// Values are texts.
Json Metric(const std::string& name, double value) {
  return {{"name", name}, {"value", absl::StrFormat("%.6g", value)}};
}

}  // namespace

void ProgressReports::OnFigures(const TrainingFigures& figures, absl::Time now) {
  figures_ = figures;
  has_news_ = true;
  // A job may go back to a checkpoint: its pace is measured anew.
  if (figures.done.has_value() && (!begun_done_.has_value() || *figures.done < *begun_done_)) {
    begun_done_ = figures.done;
    begun_ = now;
  }
}

std::optional<absl::Duration> ProgressReports::Remaining(absl::Time now) const {
  if (is_done_) return absl::ZeroDuration();
  if (!figures_.done.has_value() || *figures_.done <= *begun_done_) return std::nullopt;
  return (now - begun_) * ((1 - *figures_.done) / (*figures_.done - *begun_done_));
}

std::optional<std::string> ProgressReports::Next(absl::Time now, absl::Time date) {
  if (now < due()) return std::nullopt;
  has_news_ = false;
  next_ = now + kInterval;
  Json status = Json::object();
  if (is_done_) {
    status["progressPercentage"] = 100;
  } else if (figures_.done.has_value()) {
    // 100 stands for what is over.
    status["progressPercentage"] = std::clamp(static_cast<int>(*figures_.done * 100), 0, 99);
  }
  if (const std::optional<absl::Duration> remaining = Remaining(now)) {
    constexpr double kMost = 2147483647;  // the field has 32 bits
    status["estimatedRemainingSeconds"] =
        static_cast<int64_t>(std::min(std::ceil(absl::ToDoubleSeconds(*remaining)), kMost));
  }
  Json metrics = Json::array({Metric("epoch", figures_.epoch),
                              Metric("step", static_cast<double>(figures_.step)),
                              Metric("workers", figures_.workers)});
  if (figures_.loss.has_value() && std::isfinite(*figures_.loss)) {
    metrics.push_back(Metric("loss", *figures_.loss));
  }
  status["metrics"] = metrics;
  status["lastUpdatedTime"] = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", date, absl::UTCTimeZone());
  return Json({{"trainerStatus", status}}).dump();
}

}  // namespace rubato
