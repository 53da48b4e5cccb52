#include "server/run/kept_checkpoints.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "common/space/modes.h"

namespace rubato {
namespace {

// The last unit up to the checkpoint's step after which its parameters are evaluated.
int64_t EvaluationBefore(const proto::Job& job, const proto::Manifest& manifest) {
  const int64_t n = manifest.samples_per_epoch();
  const proto::Mode mode = FromManifest(manifest.mode());
  return Recurrence(job.evaluation().every(), job, n)
      .Last(ScheduleOf(job, mode, n, manifest.origin_unit(), manifest.origin_samples()), mode,
            manifest.step());
}

}  // namespace

KeptCheckpoints::Entry KeptCheckpoints::EntryOf(const proto::Job& job, std::string path,
                                                const proto::Manifest& manifest) {
  return {std::move(path), manifest.step(), EvaluationBefore(job, manifest),
          /*is_flushed=*/false, /*is_of_end=*/manifest.ends_mode()};
}

void KeptCheckpoints::Add(Entry entry) {
  if (!entries_.empty() && entries_.back().path == entry.path) entries_.pop_back();
  entries_.push_back(std::move(entry));
}

void KeptCheckpoints::OnEvaluation(int64_t step, double metric) {
  evaluated_[step] = metric;
  if (evaluated_.size() > 2 * kMostEvaluations) ForgetEvaluations();
}

void KeptCheckpoints::GoBack(int64_t step) {
  evaluated_.erase(evaluated_.upper_bound(step), evaluated_.end());
}

void KeptCheckpoints::OnFlushed(const std::string& path) {
  for (Entry& entry : entries_) entry.is_flushed = entry.is_flushed || entry.path == path;
}

void KeptCheckpoints::ForgetEvaluations() {
  std::set<int64_t> needed;  // by checkpoints
  for (const Entry& entry : entries_) {
    const auto after = evaluated_.upper_bound(entry.step);
    if (after != evaluated_.begin()) needed.insert(std::prev(after)->first);
  }
  const auto newest = std::prev(evaluated_.end(), kMostEvaluations);
  for (auto old = evaluated_.begin(); old != newest;) {
    old = needed.count(old->first) == 0 ? evaluated_.erase(old) : std::next(old);
  }
}

std::optional<double> KeptCheckpoints::MetricAt(int64_t step) const {
  const auto after = evaluated_.upper_bound(step);
  if (after == evaluated_.begin()) return std::nullopt;
  return std::prev(after)->second;
}

bool KeptCheckpoints::IsPending(const Entry& entry) const {
  const int64_t due = entry.awaited();
  if (due == 0 || evaluated_.count(due) > 0) return false;
  const auto later = std::distance(evaluated_.upper_bound(due), evaluated_.end());
  return later < static_cast<ptrdiff_t>(kMostPending);
}

std::optional<KeptCheckpoints::Best> KeptCheckpoints::best(const proto::KeepBest& settings) const {
  return BestOf(settings, [this](const Entry& entry) { return entry.due <= last_evaluated(); });
}

std::optional<KeptCheckpoints::Best> KeptCheckpoints::BestOf(
    const proto::KeepBest& settings, absl::FunctionRef<bool(const Entry&)> counts) const {
  const bool greater = settings.mode() == proto::KeepBest::MODE_MAX;
  std::optional<Best> best;
  for (const Entry& entry : entries_) {
    if (!counts(entry)) continue;
    const std::optional<double> metric = MetricAt(entry.step);
    if (!metric.has_value() || std::isnan(*metric)) continue;
    if (!best.has_value() || (greater ? *metric > best->metric : *metric < best->metric)) {
      best = Best{entry.path, *metric};
    }
  }
  return best;
}

std::vector<std::string> KeptCheckpoints::Expire(const proto::Checkpoint& settings) {
  std::set<std::string> candidates;
  if (settings.has_keep_best()) {
    const std::optional<Best> best =
        BestOf(settings.keep_best(), [this](const Entry& entry) { return !IsPending(entry); });
    if (best.has_value()) candidates.insert(best->path);
    int64_t last_due = 0;
    std::vector<std::string> pending;
    for (const Entry& entry : entries_) {
      if (!IsPending(entry)) continue;
      const int64_t due = entry.awaited();
      // The first after an evaluation is nearest to what it is of.
      if (due > last_due) pending.push_back(entry.path);
      last_due = due;
    }
    const size_t late = pending.size() - std::min(pending.size(), kMostPending);
    candidates.insert(pending.begin() + static_cast<std::ptrdiff_t>(late), pending.end());
  }
  const auto flushed = std::find_if(entries_.rbegin(), entries_.rend(),
                                    [](const Entry& entry) { return entry.is_flushed; });
  if (flushed != entries_.rend()) candidates.insert(flushed->path);
  std::vector<std::string> expired;
  std::vector<Entry> kept;
  const size_t newest = settings.keep_last();
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_.size() - i <= newest || candidates.count(entries_[i].path) > 0) {
      kept.push_back(std::move(entries_[i]));
    } else {
      expired.push_back(std::move(entries_[i].path));
    }
  }
  entries_ = std::move(kept);
  return expired;
}

}  // namespace rubato
