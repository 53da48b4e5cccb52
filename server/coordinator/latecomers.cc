#include "server/coordinator/latecomers.h"

namespace rubato {

bool Latecomers::Add(PeerId id) {
  if (size() >= most_) return false;
  waiting_.insert(id);
  return true;
}

void Latecomers::Tell(const proto::Stop& stop, coordinator::Outcomes* out) {
  for (const PeerId id : waiting_) out->push_back(coordinator::SendStop(id, stop));
  waiting_.clear();
}

}  // namespace rubato
