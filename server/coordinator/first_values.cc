#include "server/coordinator/first_values.h"

#include <algorithm>

#include "common/space/flat_space.h"
#include "server/coordinator/layout_difference.h"

namespace rubato {

bool FirstValues::Fetch(const Registry& registry, coordinator::Outcomes* out) {
  if (saves_) return false;
  if (is_complete_ && LayoutDifference(layout_, registry.model().layout()).empty()) return true;
  is_complete_ = false;
  if (worker_.has_value() && registry.peers().count(*worker_) > 0) return false;
  worker_.reset();
  const auto found = std::find_if(registry.peers().begin(), registry.peers().end(),
                                  [](const auto& peer) { return peer.second.is_worker; });
  if (found == registry.peers().end()) return false;
  worker_ = found->first;
  layout_ = registry.model().layout();
  values_ = ValueCount(layout_);
  begin_ = 0;
  Ask(out);
  return false;
}

void FirstValues::Ask(coordinator::Outcomes* out) {
  proto::CoordinatorMessage message;
  message.mutable_values_request()->set_begin(begin_);
  message.mutable_values_request()->set_end(end());
  out->push_back(coordinator::Send{*worker_, std::move(message)});
}

void FirstValues::OnPiece(PeerId worker, const proto::InitialValues& piece,
                          coordinator::Outcomes* out) {
  const auto bytes = static_cast<int64_t>((end() - begin_) * sizeof(float));
  if (saves_ || is_complete_ || worker_ != worker || piece.begin() != begin_ ||
      static_cast<int64_t>(piece.values().size()) != bytes) {
    return;
  }
  saves_ = true;
  out->push_back(coordinator::SaveValues{begin_, piece.values(), end() == values_,
                                         begin_ == 0 ? layout_ : proto::Layout()});
}

void FirstValues::OnSaved(coordinator::Outcomes* out) {
  if (!saves_) return;
  saves_ = false;
  begin_ = end();
  is_complete_ = begin_ == values_;
  // Whoever has gone is replaced by Fetch.
  if (!is_complete_) Ask(out);
}

}  // namespace rubato
