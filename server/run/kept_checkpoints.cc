#include "server/run/kept_checkpoints.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

namespace rubato {

void KeptCheckpoints::Add(Entry entry) {
  if (!entries_.empty() && entries_.back().path == entry.path) entries_.pop_back();
  entries_.push_back(std::move(entry));
}

void KeptCheckpoints::OnEvaluation(int64_t step, double metric) {
  evaluated_[step] = metric;
  if (evaluated_.size() > 2 * kMostEvaluations) ForgetEvaluations();
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

std::optional<KeptCheckpoints::Best> KeptCheckpoints::best(const proto::KeepBest& settings) const {
  const bool greater = settings.mode() == proto::KeepBest::MODE_MAX;
  std::optional<Best> best;
  for (const Entry& entry : entries_) {
    if (entry.due > last_evaluated()) continue;
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
    if (const std::optional<Best> found = best(settings.keep_best()); found.has_value()) {
      candidates.insert(found->path);
    }
    int64_t last_due = 0;
    std::vector<std::string> pending;
    for (const Entry& entry : entries_) {
      if (entry.due <= last_evaluated()) continue;
      // The first after an evaluation is nearest to what it is of.
      if (entry.due > last_due) pending.push_back(entry.path);
      last_due = entry.due;
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
