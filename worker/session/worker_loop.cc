#include "worker/session/worker_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/space/reduction_tree.h"

namespace rubato {

void WorkerLoop::OnView(const proto::View& view, Actions* actions) {
  RUBATO_CHECK(state_ != State::kBeginning);
  const bool new_lineage = policy_ == nullptr || view.lineage() != view_.lineage();
  policy_ = policies_(view);
  view_ = view;
  for (proto::Assignment& assignment : *view_.mutable_assignments()) {
    auto* const grants = assignment.mutable_grants();
    grants->erase(
        std::remove_if(grants->begin(), grants->end(),
                       [&](const proto::Grant& grant) { return grant.rank() != view.your_rank(); }),
        grants->end());
  }
  for (me_ = 0; me_ < view.members_size() && view.members(me_).rank() != view.your_rank();) ++me_;
  RUBATO_CHECK(me_ < view.members_size());
  if (new_lineage) {
    schedule_.emplace(ScheduleOf(job_, view.mode(), view.samples_per_epoch(), view.origin_unit(),
                                 view.origin_samples()));
    evaluate_every_.emplace(job_.evaluation().every(), job_, view.samples_per_epoch());
    have_ = -1;
    done_below_ = view.origin_unit();
    computed_.clear();
    work_.reset();
    request_is_out_ = no_more_ = false;
    stale_ = state_ == State::kComputing;
    if (!stale_) state_ = State::kIdle;
  }
  if (me().has_start_clock() && !sync()) clock_ = applied_ = me().start_clock();
  if (left_ || state_ == State::kComputing) return;
  if (sync()) {
    if (new_lineage) {
      for (int64_t step = view.origin_unit(); step < view.origin_unit() + prefetch_; ++step) {
        for (const Range& leaves : ToDo(step)) Announce(step, leaves, actions);
      }
    }
    NextStep(actions);
  } else if (state_ == State::kIdle) {
    no_more_ = false;
    AskForWork(actions);
    StartPull(clock_, /*retire=*/false, actions);
  } else if (state_ == State::kPulling) {
    StartPull(clock_, no_more_ || leaving_, actions);
  }
}

void WorkerLoop::Announce(int64_t unit, Range leaves, Actions* actions) {
  if (prefetch_ == 0 || unit >= view_.until_step()) return;
  actions->push_back(ReadAhead{unit, leaves});
}

void WorkerLoop::StartPull(int64_t clock, bool retire, Actions* actions) {
  clock_ = clock;
  state_ = State::kPulling;
  have_ = -1;
  actions->push_back(Pull{++pull_, clock, retire});
}

void WorkerLoop::AskForWork(Actions* actions) {
  if (request_is_out_) return;
  request_is_out_ = true;
  actions->push_back(RequestWork{applied_});
}

void WorkerLoop::OnSomeParameters(uint64_t pull, Actions* actions) {
  if (pull != pull_ || state_ != State::kPulling || left_ || leaving_ || final_) return;
  // What is to be tested is copied first, whole.
  if (sync()) {
    const std::vector<Range> leaves = ToDo(clock_);
    if (leaves.empty() || EvaluatesBefore(leaves)) return;
    computing_ = leaves[0];
  } else if (no_more_ || !work_.has_value() || work_->evaluate()) {
    return;
  }
  Compute compute = sync() ? ComputationOf(computing_) : ComputationOf(*work_);
  compute.early = true;
  actions->push_back(std::move(compute));
  state_ = State::kBeginning;
}

void WorkerLoop::OnInterrupted() {
  RUBATO_CHECK(state_ == State::kBeginning);
  state_ = State::kPulling;
}

void WorkerLoop::OnParameters(uint64_t pull, bool passed, Actions* actions) {
  if (state_ == State::kBeginning) {
    RUBATO_CHECK(pull == pull_ && !passed);
    state_ = State::kComputing;
    if (sync()) {
      have_ = clock_;
      done_below_ = std::max(done_below_, clock_);
      computed_.erase(computed_.begin(), computed_.lower_bound(done_below_));
      Announce(clock_ + prefetch_, computing_, actions);
    } else {
      applied_ = clock_;
      work_.reset();
      AskForWork(actions);
    }
    return;
  }
  if (pull != pull_ || state_ != State::kPulling || left_) return;
  if (final_) {
    actions->push_back(Test{final_unit_, /*is_final=*/true});
    state_ = State::kIdle;
  } else if (sync()) {
    have_ = passed ? -1 : clock_;
    done_below_ = std::max(done_below_, passed ? clock_ + 1 : clock_);
    computed_.erase(computed_.begin(), computed_.lower_bound(done_below_));
    state_ = State::kWaiting;
    NextStep(actions);
  } else {
    applied_ = clock_;
    state_ = State::kWaiting;
    if (leaving_) {
      OnLeave(actions);
    } else if (no_more_) {
      BecomeIdle(actions);
    } else {
      MaybeCompute(actions);
    }
  }
}

std::vector<Range> WorkerLoop::ToDo(int64_t step) const {
  std::vector<Range> leaves;
  const proto::Assignment* assignment = nullptr;
  for (const proto::Assignment& candidate : view_.assignments()) {
    if (candidate.from_step() <= step) assignment = &candidate;
  }
  if (assignment == nullptr || step >= view_.until_step()) return leaves;
  const auto done = computed_.find(step);
  for (const proto::Grant& grant : assignment->grants()) {
    const Range range{grant.first_leaf(), grant.end_leaf()};
    if (done != computed_.end() &&
        std::find(done->second.begin(), done->second.end(), range) != done->second.end()) {
      continue;
    }
    leaves.push_back(range);
  }
  return leaves;
}

void WorkerLoop::NextStep(Actions* actions) {
  const int64_t first = std::max(done_below_, view_.assignments(0).from_step());
  int64_t next = view_.until_step();
  for (int i = 0; i < view_.assignments_size() && next == view_.until_step(); ++i) {
    // Within one division of steps it has something to do in each or in none, but for those that it
    // has computed.
    const int64_t begin = std::max(first, view_.assignments(i).from_step());
    const int64_t end = std::min(view_.until_step(), i + 1 < view_.assignments_size()
                                                         ? view_.assignments(i + 1).from_step()
                                                         : view_.until_step());
    const int64_t most = begin + static_cast<int64_t>(computed_.size());
    for (int64_t step = begin; step < end && step <= most; ++step) {
      if (ToDo(step).empty()) continue;
      next = step;
      break;
    }
  }
  clock_ = next;
  if (have_ != next) {
    StartPull(next, /*retire=*/false, actions);
  } else if (next == view_.until_step()) {
    BecomeIdle(actions);
  } else {
    ComputeStep(actions);
  }
}

void WorkerLoop::ComputeStep(Actions* actions) {
  const std::vector<Range> leaves = ToDo(clock_);
  if (EvaluatesBefore(leaves)) {
    evaluated_ = clock_;
    actions->push_back(Test{clock_});
  }
  state_ = State::kComputing;
  computing_ = leaves[0];
  Announce(clock_ + prefetch_, computing_, actions);
  actions->push_back(ComputationOf(computing_));
}

// The owner of the first micro-batch tests the parameters.
bool WorkerLoop::EvaluatesBefore(const std::vector<Range>& leaves) const {
  return leaves[0].begin == 0 && clock_ != evaluated_ &&
         evaluate_every_->IsDue(*schedule_, view_.mode(), clock_);
}

WorkerLoop::Compute WorkerLoop::ComputationOf(Range leaves) const {
  return {clock_, clock_, leaves, ReductionTree(view_.leaves()).MaximalNodes(leaves)};
}

void WorkerLoop::OnWork(const proto::Work& work, Actions* actions) {
  request_is_out_ = false;
  if (left_) return;  // it will be given to others
  if (!work.has_contribution()) {
    no_more_ = true;
    if (state_ == State::kPulling || state_ == State::kWaiting) {
      StartPull(clock_, /*retire=*/true, actions);
    } else if (state_ == State::kIdle) {
      BecomeIdle(actions);
    }
    return;
  }
  work_ = work;
  Announce(work.contribution(), {0, view_.leaves()}, actions);
  if (state_ == State::kIdle) {
    no_more_ = false;
    StartPull(clock_, /*retire=*/false, actions);
  } else {
    MaybeCompute(actions);
  }
}

void WorkerLoop::MaybeCompute(Actions* actions) {
  if (state_ != State::kWaiting || !work_.has_value()) return;
  if (work_->evaluate()) actions->push_back(Test{work_->contribution()});
  Compute compute = ComputationOf(*work_);
  work_.reset();
  AskForWork(actions);  // the answer comes while this one computes
  state_ = State::kComputing;
  actions->push_back(std::move(compute));
}

WorkerLoop::Compute WorkerLoop::ComputationOf(const proto::Work& work) const {
  const Range leaves{0, view_.leaves()};
  return {clock_, work.contribution(), leaves, {leaves}};
}

void WorkerLoop::OnComputed(Actions* actions) {
  RUBATO_CHECK(state_ == State::kComputing);
  state_ = State::kIdle;
  if (stale_) {
    stale_ = false;
    const proto::View view = view_;
    OnView(view, actions);
  } else if (sync()) {
    computed_[clock_].push_back(computing_);
    leaving_ ? OnLeave(actions) : NextStep(actions);
  } else {
    StartPull(clock_ + 1, no_more_ || leaving_, actions);
  }
}

void WorkerLoop::OnLeftOut(Actions* actions) {
  RUBATO_CHECK(state_ == State::kComputing);
  state_ = State::kWaiting;
  if (leaving_) {
    OnLeave(actions);
  } else if (no_more_) {
    StartPull(clock_, /*retire=*/true, actions);
  } else {
    MaybeCompute(actions);
  }
}

void WorkerLoop::OnLeave(Actions* actions) {
  leaving_ = true;
  if (left_ || state_ == State::kComputing) return;
  if (policy_ != nullptr && !sync() && applied_ < clock_) {
    if (state_ == State::kPulling) StartPull(clock_, /*retire=*/true, actions);
    return;
  }
  left_ = true;
  actions->push_back(Leave{applied_});
}

void WorkerLoop::BecomeIdle(Actions* actions) {
  state_ = State::kIdle;
  actions->push_back(SayIdle{applied_});
}

void WorkerLoop::OnEvaluationRequest(const proto::EvaluationRequest& request, Actions* actions) {
  RUBATO_CHECK(schedule_.has_value());
  final_ = true;
  final_unit_ = request.unit();
  StartPull(request.step(), /*retire=*/false, actions);
  std::get<Pull>(actions->back()).observer = true;
}

}  // namespace rubato
