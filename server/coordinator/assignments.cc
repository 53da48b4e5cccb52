#include "server/coordinator/assignments.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/space/reduction_tree.h"

namespace rubato {

void Assignments::Change(int64_t lowest, int64_t from_step, const std::vector<WorkerId>& members) {
  RUBATO_CHECK(!members.empty());
  while (!spans_.empty() && spans_.back().from_step >= from_step) spans_.pop_back();
  while (spans_.size() > 1 && spans_[1].from_step <= lowest) spans_.pop_front();
  if (!spans_.empty() && lowest >= from_step) spans_.clear();
  for (Span& span : spans_) {
    span.from_step = std::max(span.from_step, lowest);
    HandOn(members, &span.grants);
  }
  Span span{from_step, {}};
  const int64_t count = static_cast<int64_t>(members.size());
  for (int64_t i = 0; i < count; ++i) {
    const Range leaves = LeavesOfMember(leaves_, i, count);
    if (!leaves.empty()) span.grants.push_back({members[i], leaves});
  }
  spans_.push_back(std::move(span));
}

void Assignments::HandOn(const std::vector<WorkerId>& members, std::vector<Grant>* grants) const {
  const auto is_member = [&members](const WorkerId& worker) {
    return std::find(members.begin(), members.end(), worker) != members.end();
  };
  // Those who take part in the step already; others would hold it up more.
  std::vector<WorkerId> heirs;
  for (const Grant& grant : *grants) {
    if (is_member(grant.worker) &&
        std::find(heirs.begin(), heirs.end(), grant.worker) == heirs.end()) {
      heirs.push_back(grant.worker);
    }
  }
  if (heirs.empty()) heirs = members;
  std::vector<Grant> after;
  size_t next = 0;
  for (const Grant& grant : *grants) {
    if (is_member(grant.worker)) {
      after.push_back(grant);
      continue;
    }
    const int64_t size = grant.leaves.size();
    const int64_t parts = std::min<int64_t>(size, static_cast<int64_t>(heirs.size()));
    for (int64_t i = 0; i < parts; ++i) {
      after.push_back(
          {heirs[next++ % heirs.size()],
           {grant.leaves.begin + i * size / parts, grant.leaves.begin + (i + 1) * size / parts}});
    }
  }
  *grants = std::move(after);
}

void Assignments::AddTo(proto::View* view) const {
  for (const Span& span : spans_) {
    proto::Assignment* assignment = view->add_assignments();
    assignment->set_from_step(span.from_step);
    for (const Grant& grant : span.grants) {
      proto::Grant* out = assignment->add_grants();
      out->set_rank(grant.worker.rank);
      out->set_first_leaf(grant.leaves.begin);
      out->set_end_leaf(grant.leaves.end);
    }
  }
}

bool Assignments::HasAny(const WorkerId& worker) const {
  for (const Span& span : spans_) {
    for (const Grant& grant : span.grants) {
      if (grant.worker == worker) return true;
    }
  }
  return false;
}

WorkerId Assignments::Owner(int64_t step, int64_t leaf) const {
  for (auto span = spans_.rbegin(); span != spans_.rend(); ++span) {
    if (span->from_step > step) continue;
    for (const Grant& grant : span->grants) {
      if (grant.leaves.Contains(leaf)) return grant.worker;
    }
  }
  return {-1, 0};
}

}  // namespace rubato
