#include "worker/process/worker_loop.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/space/reduction_tree.h"

namespace rubato {

void WorkerLoop::OnView(const proto::View& view, WorkerActions* actions) {
  RUBATO_CHECK(state_ != State::kBeginning);
  const bool new_lineage = !schedule_.has_value() || view.lineage() != view_.lineage();
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
    schedule_.emplace(ScheduleOf(job_, mode(), view.samples_per_epoch(), view.origin_unit(),
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
        for (const Range& leaves : ToDo(step)) ReadAhead(step, leaves, actions);
      }
    }
    NextStep(actions);
  } else if (state_ == State::kIdle) {
    no_more_ = false;
    RequestWork(actions);
    Pull(clock_, /*retire=*/false, actions);
  } else if (state_ == State::kPulling) {
    Pull(clock_, no_more_ || leaving_, actions);
  }
}

void WorkerLoop::ReadAhead(int64_t unit, Range leaves, WorkerActions* actions) {
  if (prefetch_ == 0 || unit >= view_.until_step()) return;
  WorkerAction read{WorkerAction::Kind::kReadAhead};
  read.unit = unit;
  read.leaves = leaves;
  actions->push_back(read);
}

void WorkerLoop::Pull(int64_t clock, bool retire, WorkerActions* actions) {
  clock_ = clock;
  state_ = State::kPulling;
  have_ = -1;
  WorkerAction pull{WorkerAction::Kind::kPull};
  pull.clock = clock;
  pull.retire = retire;
  pull.pull = ++pull_;
  actions->push_back(pull);
}

void WorkerLoop::RequestWork(WorkerActions* actions) {
  if (request_is_out_) return;
  request_is_out_ = true;
  WorkerAction request{WorkerAction::Kind::kRequestWork};
  request.applied = applied_;
  actions->push_back(request);
}

void WorkerLoop::OnSomeParameters(uint64_t pull, WorkerActions* actions) {
  if (pull != pull_ || state_ != State::kPulling || left_ || leaving_ || final_) return;
  // What is to be tested is copied first, whole.
  if (sync()) {
    const std::vector<Range> leaves = ToDo(clock_);
    if (leaves.empty() || EvaluatesBefore(leaves)) return;
    computing_ = leaves[0];
    actions->push_back(ComputationOf(computing_));
  } else {
    if (no_more_ || !work_.has_value() || work_->evaluate()) return;
    actions->push_back(ComputationOf(*work_));
  }
  actions->back().early = true;
  state_ = State::kBeginning;
}

void WorkerLoop::OnInterrupted() {
  RUBATO_CHECK(state_ == State::kBeginning);
  state_ = State::kPulling;
}

void WorkerLoop::OnParameters(uint64_t pull, bool passed, WorkerActions* actions) {
  if (state_ == State::kBeginning) {
    RUBATO_CHECK(pull == pull_ && !passed);
    state_ = State::kComputing;
    if (sync()) {
      have_ = clock_;
      done_below_ = std::max(done_below_, clock_);
      computed_.erase(computed_.begin(), computed_.lower_bound(done_below_));
      ReadAhead(clock_ + prefetch_, computing_, actions);
    } else {
      applied_ = clock_;
      work_.reset();
      RequestWork(actions);
    }
    return;
  }
  if (pull != pull_ || state_ != State::kPulling || left_) return;
  if (final_) {
    WorkerAction evaluate{WorkerAction::Kind::kEvaluate};
    evaluate.unit = final_unit_;
    evaluate.is_final = true;
    actions->push_back(evaluate);
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
      Idle(actions);
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

void WorkerLoop::NextStep(WorkerActions* actions) {
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
    Pull(next, /*retire=*/false, actions);
  } else if (next == view_.until_step()) {
    Idle(actions);
  } else {
    ComputeStep(actions);
  }
}

void WorkerLoop::ComputeStep(WorkerActions* actions) {
  const std::vector<Range> leaves = ToDo(clock_);
  if (EvaluatesBefore(leaves)) {
    evaluated_ = clock_;
    WorkerAction evaluate{WorkerAction::Kind::kEvaluate};
    evaluate.unit = clock_;
    actions->push_back(evaluate);
  }
  state_ = State::kComputing;
  computing_ = leaves[0];
  ReadAhead(clock_ + prefetch_, computing_, actions);
  actions->push_back(ComputationOf(computing_));
}

// The owner of the first micro-batch tests the parameters.
bool WorkerLoop::EvaluatesBefore(const std::vector<Range>& leaves) const {
  return leaves[0].begin == 0 && clock_ != evaluated_ &&
         evaluate_every_->IsDue(*schedule_, mode(), clock_);
}

WorkerAction WorkerLoop::ComputationOf(Range leaves) const {
  WorkerAction compute{WorkerAction::Kind::kCompute};
  compute.clock = compute.unit = clock_;
  compute.leaves = leaves;
  compute.nodes = ReductionTree(view_.leaves()).MaximalNodes(leaves);
  return compute;
}

void WorkerLoop::OnWork(const proto::Work& work, WorkerActions* actions) {
  request_is_out_ = false;
  if (left_) return;  // it will be given to others
  if (!work.has_contribution()) {
    no_more_ = true;
    if (state_ == State::kPulling || state_ == State::kWaiting) {
      Pull(clock_, /*retire=*/true, actions);
    } else if (state_ == State::kIdle) {
      Idle(actions);
    }
    return;
  }
  work_ = work;
  ReadAhead(work.contribution(), {0, view_.leaves()}, actions);
  if (state_ == State::kIdle) {
    no_more_ = false;
    Pull(clock_, /*retire=*/false, actions);
  } else {
    MaybeCompute(actions);
  }
}

void WorkerLoop::MaybeCompute(WorkerActions* actions) {
  if (state_ != State::kWaiting || !work_.has_value()) return;
  const int64_t unit = work_->contribution();
  if (work_->evaluate()) {
    WorkerAction evaluate{WorkerAction::Kind::kEvaluate};
    evaluate.unit = unit;
    actions->push_back(evaluate);
  }
  const WorkerAction compute = ComputationOf(*work_);
  work_.reset();
  RequestWork(actions);  // the answer comes while this one computes
  state_ = State::kComputing;
  actions->push_back(compute);
}

WorkerAction WorkerLoop::ComputationOf(const proto::Work& work) const {
  WorkerAction compute{WorkerAction::Kind::kCompute};
  compute.clock = clock_;
  compute.unit = work.contribution();
  compute.leaves = {0, view_.leaves()};
  compute.nodes = {compute.leaves};
  return compute;
}

void WorkerLoop::OnComputed(WorkerActions* actions) {
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
    Pull(clock_ + 1, no_more_ || leaving_, actions);
  }
}

void WorkerLoop::OnLeftOut(WorkerActions* actions) {
  RUBATO_CHECK(state_ == State::kComputing);
  state_ = State::kWaiting;
  if (leaving_) {
    OnLeave(actions);
  } else if (no_more_) {
    Pull(clock_, /*retire=*/true, actions);
  } else {
    MaybeCompute(actions);
  }
}

void WorkerLoop::OnLeave(WorkerActions* actions) {
  leaving_ = true;
  if (left_ || state_ == State::kComputing) return;
  if (!sync() && schedule_.has_value() && applied_ < clock_) {
    if (state_ == State::kPulling) Pull(clock_, /*retire=*/true, actions);
    return;
  }
  left_ = true;
  WorkerAction leave{WorkerAction::Kind::kLeave};
  leave.applied = applied_;
  actions->push_back(leave);
}

void WorkerLoop::Idle(WorkerActions* actions) {
  state_ = State::kIdle;
  WorkerAction idle{WorkerAction::Kind::kIdle};
  idle.applied = applied_;
  actions->push_back(idle);
}

void WorkerLoop::OnEvaluationRequest(const proto::EvaluationRequest& request,
                                     WorkerActions* actions) {
  RUBATO_CHECK(schedule_.has_value());
  final_ = true;
  final_unit_ = request.unit();
  Pull(request.step(), /*retire=*/false, actions);
  actions->back().observer = true;
}

}  // namespace rubato
