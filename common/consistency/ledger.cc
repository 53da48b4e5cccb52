#include "common/consistency/ledger.h"

namespace rubato {

void BlockLedger::MoveClock(uint32_t worker) {
  Clock& clock = clocks[worker];
  const bool was_slowest = clock.waited_for && clock.applied == slowest;
  ++clock.applied;
  if (was_slowest && --at_slowest == 0) FindSlowest();
}

void BlockLedger::FindSlowest() {
  slowest = kNobody;
  at_slowest = 0;
  for (const Clock& clock : clocks) {
    if (!clock.waited_for || clock.applied > slowest) continue;
    at_slowest = clock.applied < slowest ? 1 : at_slowest + 1;
    slowest = clock.applied;
  }
}

}  // namespace rubato
