#include "server/coordinator/view_change.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/consistency/block_units.h"
#include "common/consistency/unit_set.h"

namespace rubato {
namespace {

constexpr size_t kMaxReasons = 1000;  // characters

}  // namespace

void ViewChange::AddReason(const std::string& reason) {
  if (reasons_.size() < kMaxReasons && !absl::EndsWith(reasons_, reason))
    absl::StrAppend(&reasons_, reasons_.empty() ? "" : "; ", reason);
}

std::string ViewChange::TakeReasons() { return std::exchange(reasons_, ""); }

proto::CoordinatorMessage ViewChange::Close(uint32_t view, const std::vector<ShardId>& shards) {
  state_ = State::kClosing;
  view_ = view;
  call_.Ask(shards);
  closed_.clear();
  proto::CoordinatorMessage message;
  message.mutable_close()->set_view(view);
  return message;
}

bool ViewChange::OnClosed(const ShardId& shard, const proto::ShardClosed& closed) {
  if (state_ != State::kClosing || closed.view() != view_ || !call_.OnAnswer(shard)) return false;
  closed_[shard] = closed;
  return call_.complete();
}

int64_t ViewChange::lowest() const {
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (const auto& [shard, closed] : closed_) {
    if (closed.has_lowest_version()) lowest = std::min(lowest, closed.lowest_version());
  }
  return lowest;
}

int64_t ViewChange::highest() const {
  int64_t highest = 0;
  for (const auto& [shard, closed] : closed_) {
    if (closed.has_lowest_version()) highest = std::max(highest, closed.highest_version());
  }
  return highest;
}

int64_t ViewChange::Clock(int rank) const {
  std::optional<int64_t> lowest;
  for (const auto& [shard, closed] : closed_) {
    for (const proto::ShardClosed::Clock& clock : closed.clocks()) {
      if (clock.rank() == rank)
        lowest = std::min(lowest.value_or(clock.applied()), clock.applied());
    }
  }
  return lowest.value_or(0);
}

void ViewChange::Settle(WorkLedger* ledger) const {
  std::vector<UnitSet> whole;
  std::set<int64_t> partial;
  for (const auto& [shard, closed] : closed_) {
    if (!closed.has_lowest_version()) continue;  // it has no blocks
    whole.push_back(UnitsOf(closed));
    partial.insert(closed.units_partial().begin(), closed.units_partial().end());
  }
  for (const WorkerId& worker : lost_) ledger->OnLost(worker, whole, partial);
}

}  // namespace rubato
