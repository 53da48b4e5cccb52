#include "server/shard/waiting_pulls.h"

#include <algorithm>
#include <utility>

namespace rubato {

void WaitingPulls::Queue::EraseIf(absl::FunctionRef<bool(const Pull&)> predicate) {
  size_t kept = 0;
  for (const Pull& pull : pulls) {
    if (predicate(pull)) {
      pullers.erase(pull.puller);
    } else {
      pulls[kept++] = pull;
    }
  }
  pulls.resize(kept);
}

bool WaitingPulls::Add(int64_t block, const Pull& pull) {
  Queue& queue = by_block_[block - first_];
  if (!queue.pullers.insert(pull.puller).second) {
    queue.pulls.erase(
        std::find_if(queue.pulls.begin(), queue.pulls.end(),
                     [&pull](const Pull& other) { return other.puller == pull.puller; }));
  } else if (queue.pulls.size() >= kMost) {
    queue.pullers.erase(pull.puller);
    return false;
  }
  queue.pulls.push_back(pull);
  return true;
}

void WaitingPulls::Answer(int64_t block, absl::FunctionRef<bool(const Pull&)> may_answer,
                          absl::FunctionRef<void(const Pull&)> answer) {
  by_block_[block - first_].EraseIf([&](const Pull& pull) {
    if (!may_answer(pull)) return false;
    answer(pull);
    return true;
  });
}

void WaitingPulls::ForgetBefore(int64_t block, uint32_t view) {
  by_block_[block - first_].EraseIf(
      [view](const Pull& pull) { return pull.worker != kObserver && pull.view < view; });
}

void WaitingPulls::ForgetPuller(uint64_t puller) {
  for (Queue& queue : by_block_) {
    if (!queue.pullers.contains(puller)) continue;
    queue.EraseIf([puller](const Pull& pull) { return pull.puller == puller; });
  }
  early_.erase(std::remove_if(early_.begin(), early_.end(),
                              [puller](const Early& early) { return early.pull.puller == puller; }),
               early_.end());
}

std::vector<WaitingPulls::Early> WaitingPulls::TakeEarly() { return std::exchange(early_, {}); }

}  // namespace rubato
