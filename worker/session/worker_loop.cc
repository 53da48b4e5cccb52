#include "worker/session/worker_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace rubato {

void WorkerLoop::OnView(const proto::View& view, Actions* actions) {
  RUBATO_CHECK(state_ != State::kBeginning);
  const bool new_lineage = policy_ == nullptr || view.lineage() != ledger_.view.lineage();
  if (new_lineage) {
    const bool leaving = ledger_.leaving;
    ledger_ = {};
    ledger_.leaving = leaving;
    schedule_.emplace(ScheduleOf(job_, view.mode(), view.samples_per_epoch(), view.origin_unit(),
                                 view.origin_samples()));
    evaluate_every_.emplace(job_.evaluation().every(), job_, view.samples_per_epoch());
    evaluated_ = -1;
    stale_ = state_ == State::kComputing;
    is_kept_ = false;
  }
  announced_ = 0;  // whoever reads ahead begins anew
  ledger_.view = view;
  for (proto::Assignment& assignment : *ledger_.view.mutable_assignments()) {
    auto* const grants = assignment.mutable_grants();
    grants->erase(
        std::remove_if(grants->begin(), grants->end(),
                       [&](const proto::Grant& grant) { return grant.rank() != view.your_rank(); }),
        grants->end());
  }
  policy_ = policies_(ledger_.view);
  for (me_ = 0; me_ < view.members_size() && view.members(me_).rank() != view.your_rank();) ++me_;
  RUBATO_CHECK(me_ < view.members_size());
  if (me().has_start_clock()) {
    ledger_.clock = ledger_.applied = std::max(ledger_.applied, me().start_clock());
  }
  if (left_ || state_ == State::kComputing) return;
  // What it has pulled or said counts in the view before.
  state_ = State::kWaiting;
  if (new_lineage) {
    for (int64_t ahead = 0; ahead < prefetch_; ++ahead) {
      const int64_t unit = view.origin_unit() + ahead;
      for (const Range& leaves : policy_->Expected(ledger_, unit)) Announce(unit, leaves, actions);
    }
  }
  AnnounceGiven(actions);
  Advance(actions);
}

void WorkerLoop::Announce(int64_t unit, Range leaves, Actions* actions) {
  if (prefetch_ == 0 || unit >= view().until_step()) return;
  actions->push_back(ReadAhead{unit, leaves});
}

void WorkerLoop::AnnounceGiven(Actions* actions) {
  const int64_t most = std::min(prefetch_, static_cast<int64_t>(ledger_.given.size()));
  for (; announced_ < most; ++announced_) {
    Announce(ledger_.given[announced_].contribution(), {0, view().leaves()}, actions);
  }
}

void WorkerLoop::Advance(Actions* actions) {
  if (left_ || state_ == State::kBeginning || state_ == State::kComputing) return;
  if (final_ && !ledger_.leaving) return;
  waits_for_test_ = false;
  MaybeAskForWork(actions);
  const WorkerTask task = policy_->NextOf(ledger_);
  switch (task.kind) {
    case WorkerTask::Kind::kWait:
      break;
    case WorkerTask::Kind::kPull:
      if (state_ == State::kPulling && task.clock == ledger_.clock &&
          task.retires == ledger_.retired) {
        break;  // it is under way
      }
      if (ahead_ == task.clock && !task.retires) {
        AwaitPull(task.clock, /*retires=*/false);
        break;
      }
      StartPull(task.clock, task.retires, actions);
      break;
    case WorkerTask::Kind::kCompute:
      waits_for_test_ = testing_ && Tests(task);
      if (waits_for_test_) break;
      ledger_.clock = task.clock;
      if (Tests(task)) {
        evaluated_ = task.unit;
        testing_ = true;
        actions->push_back(Test{task.unit});
      }
      task_ = task;
      OnBegun(actions);
      actions->push_back(ComputationOf(task, /*early=*/false));
      break;
    case WorkerTask::Kind::kIdle:
      if (std::exchange(state_, State::kIdle) == State::kIdle) break;
      actions->push_back(SayIdle{ledger_.applied});
      break;
    case WorkerTask::Kind::kLeave:
      LeaveAtOnce(actions);
  }
}

void WorkerLoop::StartPull(int64_t clock, bool retires, Actions* actions) {
  AwaitPull(clock, retires);
  actions->push_back(Pull{++pull_, clock, retires});
}

void WorkerLoop::AwaitPull(int64_t clock, bool retires) {
  ledger_.clock = clock;
  ledger_.have = -1;
  ledger_.retired = retires;
  state_ = State::kPulling;
  waits_for_test_ = false;
}

void WorkerLoop::MaybeAskForWork(Actions* actions) {
  const int64_t count = policy_->WorkToAskFor(ledger_);
  if (count == 0) return;
  ledger_.has_asked = true;
  actions->push_back(RequestWork{ledger_.applied, count});
}

bool WorkerLoop::Tests(const WorkerTask& task) const {
  return !tests_have_ended_ && task.may_test && task.unit != evaluated_ &&
         evaluate_every_->IsDue(*schedule_, view().mode(), task.unit, view().tests_origin());
}

WorkerLoop::Compute WorkerLoop::ComputationOf(const WorkerTask& task, bool early) {
  return {task.clock, task.unit, task.leaves, task.nodes, early};
}

void WorkerLoop::OnBegun(Actions* actions) {
  state_ = State::kComputing;
  if (!ledger_.given.empty()) {
    ledger_.given.pop_front();
    announced_ = std::max<int64_t>(0, announced_ - 1);
  }
  MaybeAskForWork(actions);  // the answer comes while this one computes
  AnnounceGiven(actions);
  const int64_t ahead = task_.unit + prefetch_;
  for (const Range& leaves : policy_->Expected(ledger_, ahead)) {
    if (leaves == task_.leaves) Announce(ahead, leaves, actions);
  }
}

void WorkerLoop::OnSomeParameters(uint64_t pull, Actions* actions) {
  if (pull != pull_ || state_ != State::kPulling || left_ || ledger_.leaving || final_) return;
  ledger_.have = ledger_.clock;
  const WorkerTask task = policy_->NextOf(ledger_);
  ledger_.have = -1;
  // What is to be tested is copied first, whole.
  if (task.kind != WorkerTask::Kind::kCompute || Tests(task)) return;
  task_ = task;
  actions->push_back(ComputationOf(task, /*early=*/true));
  state_ = State::kBeginning;
}

void WorkerLoop::OnInterrupted() {
  RUBATO_CHECK(state_ == State::kBeginning);
  state_ = State::kPulling;
}

void WorkerLoop::OnParameters(uint64_t pull, bool passed, Actions* actions) {
  const bool has_begun = state_ == State::kBeginning;
  RUBATO_CHECK(!has_begun || (pull == pull_ && !passed));
  if (pull != pull_ || !(has_begun || state_ == State::kPulling) || left_) return;
  if (final_) {
    TestFinal(actions);
    return;
  }
  ledger_.have = passed ? -1 : ledger_.clock;
  ledger_.applied = std::max(ledger_.applied, ledger_.clock + (passed ? 1 : 0));
  ledger_.computed.erase(ledger_.computed.begin(), ledger_.computed.lower_bound(ledger_.applied));
  if (has_begun) {
    OnBegun(actions);
  } else {
    state_ = State::kWaiting;
    Advance(actions);
  }
}

void WorkerLoop::TestFinal(Actions* actions) {
  const bool tests = final_request_.tests();
  waits_for_test_ = testing_ && tests;
  if (waits_for_test_) return;
  testing_ = testing_ || tests;
  actions->push_back(Test{final_request_.unit(), /*is_final=*/true, !tests});
  state_ = State::kIdle;
}

void WorkerLoop::OnTested(Actions* actions) {
  testing_ = false;
  if (!std::exchange(waits_for_test_, false)) return;
  if (final_ && !ledger_.leaving) {
    TestFinal(actions);
  } else {
    Advance(actions);
  }
}

void WorkerLoop::OnEndTests(Actions* actions) {
  tests_have_ended_ = true;
  if (waits_for_test_ && !final_) Advance(actions);
}

void WorkerLoop::OnWork(const proto::Work& work, Actions* actions) {
  ledger_.has_asked = false;
  if (left_) return;  // it will be given to others
  const auto take = [this](const proto::Work& one) {
    ledger_.no_more = !one.has_contribution();
    if (one.has_contribution()) ledger_.given.push_back(one);
  };
  take(work);
  for (const proto::Work& next : work.then()) take(next);
  AnnounceGiven(actions);
  Advance(actions);
}

void WorkerLoop::OnSending(Actions* actions) {
  RUBATO_CHECK(state_ == State::kComputing);
  if (!policy_->blocks_in_step() || stale_ || left_ || final_) return;
  policy_->Keep(task_, &ledger_);
  is_kept_ = true;
  const WorkerTask next = policy_->NextOf(ledger_);
  if (next.kind != WorkerTask::Kind::kPull) return;
  ahead_ = next.clock;
  actions->push_back(Pull{++pull_, next.clock});
}

void WorkerLoop::OnComputed(Actions* actions) {
  if (!stale_ && !is_kept_) policy_->Keep(task_, &ledger_);
  OnLeftOut(actions);
}

void WorkerLoop::OnLeftOut(Actions* actions) {
  RUBATO_CHECK(state_ == State::kComputing);
  state_ = State::kWaiting;
  stale_ = is_kept_ = false;
  Advance(actions);
  ahead_.reset();  // it is awaited, or not wanted any more
}

void WorkerLoop::OnLeave(Actions* actions) {
  ledger_.leaving = true;
  if (policy_ != nullptr) {
    Advance(actions);
  } else {
    LeaveAtOnce(actions);
  }
}

void WorkerLoop::LeaveAtOnce(Actions* actions) {
  if (!std::exchange(left_, true)) actions->push_back(Leave{ledger_.applied});
}

void WorkerLoop::OnEvaluationRequest(const proto::EvaluationRequest& request, Actions* actions) {
  RUBATO_CHECK(schedule_.has_value());
  final_ = true;
  final_request_ = request;
  ledger_.computed.clear();  // all steps are done
  StartPull(request.step(), /*retires=*/false, actions);
  std::get<Pull>(actions->back()).observer = true;
}

}  // namespace rubato
