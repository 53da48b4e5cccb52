#include "server/kept_checkpoints.h"

#include <utility>

namespace rubato {

void KeptCheckpoints::Add(Entry entry) { entries_.push_back(std::move(entry)); }

std::vector<std::string> KeptCheckpoints::Expire(const proto::Checkpoint& settings) {
  const Entry* best = nullptr;
  if (settings.has_keep_best()) {
    const bool greater = settings.keep_best().mode() == proto::KeepBest::MODE_MAX;
    for (const Entry& entry : entries_) {
      if (!entry.metric.has_value()) continue;
      if (best == nullptr ||
          (greater ? *entry.metric > *best->metric : *entry.metric < *best->metric)) {
        best = &entry;
      }
    }
  }
  const std::string best_path = best == nullptr ? "" : best->path;
  std::vector<std::string> expired;
  std::vector<Entry> kept;
  const size_t newest = settings.keep_last();
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_.size() - i <= newest || entries_[i].path == best_path) {
      kept.push_back(std::move(entries_[i]));
    } else {
      expired.push_back(std::move(entries_[i].path));
    }
  }
  entries_ = std::move(kept);
  return expired;
}

}  // namespace rubato
