#include "server/shard/waiting_pulls.h"

#include <algorithm>
#include <utility>

namespace rubato {
namespace {

template <typename T, typename Predicate>
void EraseIf(std::vector<T>* list, Predicate predicate) {
  list->erase(std::remove_if(list->begin(), list->end(), predicate), list->end());
}

}  // namespace

bool WaitingPulls::Add(int64_t block, const Pull& pull) {
  std::vector<Pull>& pulls = by_block_[block - first_];
  EraseIf(&pulls, [&pull](const Pull& other) { return other.puller == pull.puller; });
  if (pulls.size() >= kMost) return false;
  pulls.push_back(pull);
  return true;
}

void WaitingPulls::Answer(int64_t block, absl::FunctionRef<bool(const Pull&)> may_answer,
                          absl::FunctionRef<void(const Pull&)> answer) {
  std::vector<Pull>& pulls = by_block_[block - first_];
  size_t kept = 0;
  for (const Pull& pull : pulls) {
    if (may_answer(pull)) {
      answer(pull);
    } else {
      pulls[kept++] = pull;
    }
  }
  pulls.resize(kept);
}

void WaitingPulls::ForgetBefore(int64_t block, uint32_t view) {
  EraseIf(&by_block_[block - first_],
          [view](const Pull& pull) { return pull.worker != kObserver && pull.view < view; });
}

void WaitingPulls::ForgetPuller(uint64_t puller) {
  for (std::vector<Pull>& pulls : by_block_) {
    EraseIf(&pulls, [puller](const Pull& pull) { return pull.puller == puller; });
  }
  EraseIf(&early_, [puller](const Early& early) { return early.pull.puller == puller; });
}

std::vector<WaitingPulls::Early> WaitingPulls::TakeEarly() { return std::exchange(early_, {}); }

}  // namespace rubato
