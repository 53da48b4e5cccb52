#include "worker/worker_loop.h"

#include <algorithm>

#include "common/check.h"

namespace rubato {

void WorkerLoop::OnView(const proto::View& view, WorkerActions* actions) {
  view_ = view;
  schedule_.emplace(view.samples_per_epoch(), micro_batch_ * view.leaves(), view.leaves());
  if (!sync()) {
    actions->push_back({WorkerAction::Kind::kRequestWork});
    Pull(me().start_clock(), actions);
  } else if (me().first_leaf() == me().end_leaf()) {
    Pull(view.until_step(), actions);  // a spare worker: only sees the end
  } else {
    // The first step too: it is read while its parameters are on their way.
    for (int64_t step = view.from_step(); step < view.from_step() + prefetch_; ++step) {
      ReadAhead(step, {me().first_leaf(), me().end_leaf()}, actions);
    }
    Pull(view.from_step(), actions);
  }
}

void WorkerLoop::ReadAhead(int64_t unit, Range leaves, WorkerActions* actions) {
  if (prefetch_ == 0 || (sync() && unit >= view_.until_step())) return;
  WorkerAction read{WorkerAction::Kind::kReadAhead};
  read.unit = unit;
  read.leaves = leaves;
  actions->push_back(read);
}

void WorkerLoop::Pull(int64_t clock, WorkerActions* actions) {
  clock_ = clock;
  waiting_ = Waiting::kParameters;
  parameters_here_ = false;
  WorkerAction pull{WorkerAction::Kind::kPull};
  pull.clock = clock;
  actions->push_back(pull);
}

void WorkerLoop::OnParameters(WorkerActions* actions) {
  if (waiting_ == Waiting::kFinal) {
    WorkerAction evaluate{WorkerAction::Kind::kEvaluate};
    evaluate.unit = final_unit_;
    evaluate.is_final = true;
    actions->push_back(evaluate);
  } else if (sync()) {
    NextStep(actions);
  } else {
    parameters_here_ = true;
    MaybeCompute(actions);
  }
}

void WorkerLoop::NextStep(WorkerActions* actions) {
  if (clock_ >= view_.until_step()) {
    Finish(actions);
    return;
  }
  // The owner of the first micro-batch tests the parameters at the end of each epoch.
  if (clock_ > view_.from_step() && clock_ % view_.evaluate_every() == 0 &&
      me().first_leaf() == 0) {
    WorkerAction evaluate{WorkerAction::Kind::kEvaluate};
    evaluate.unit = clock_;
    actions->push_back(evaluate);
  }
  WorkerAction compute{WorkerAction::Kind::kCompute};
  compute.clock = compute.unit = clock_;
  compute.leaves = {me().first_leaf(), me().end_leaf()};
  ReadAhead(clock_ + prefetch_, compute.leaves, actions);
  compute.nodes = ReductionTree(view_.leaves()).MaximalNodes(compute.leaves);
  actions->push_back(compute);
}

void WorkerLoop::OnWork(const proto::Work& work, WorkerActions* actions) {
  work_ = work;
  if (work.has_contribution()) ReadAhead(work.contribution(), {0, view_.leaves()}, actions);
  MaybeCompute(actions);
}

void WorkerLoop::MaybeCompute(WorkerActions* actions) {
  if (!parameters_here_ || !work_.has_value()) return;
  if (!work_->has_contribution()) {
    // The parameters for this clock hold all of this worker's contributions.
    Finish(actions);
    return;
  }
  const int64_t unit = work_->contribution();
  if (work_->evaluate()) {
    WorkerAction evaluate{WorkerAction::Kind::kEvaluate};
    evaluate.unit = unit;
    actions->push_back(evaluate);
  }
  work_.reset();
  actions->push_back(
      {WorkerAction::Kind::kRequestWork});  // the answer comes while this one computes
  WorkerAction compute{WorkerAction::Kind::kCompute};
  compute.clock = clock_;
  compute.unit = unit;
  compute.leaves = {0, view_.leaves()};
  compute.nodes = {compute.leaves};
  actions->push_back(compute);
}

void WorkerLoop::OnComputed(WorkerActions* actions) { Pull(clock_ + 1, actions); }

void WorkerLoop::OnLeftOut(WorkerActions* actions) { MaybeCompute(actions); }

void WorkerLoop::OnEndAt(const proto::EndAt& end_at, WorkerActions* actions) {
  view_.set_until_step(std::min(view_.until_step(), end_at.step()));
  // What it waits for beyond the end will not come.
  if (waiting_ == Waiting::kParameters && clock_ > view_.until_step()) Finish(actions);
}

void WorkerLoop::Finish(WorkerActions* actions) {
  if (finished_) return;
  finished_ = true;
  actions->push_back({WorkerAction::Kind::kFinish});
}

void WorkerLoop::OnEvaluationRequest(const proto::EvaluationRequest& request,
                                     WorkerActions* actions) {
  RUBATO_CHECK(schedule_.has_value());
  waiting_ = Waiting::kFinal;
  final_unit_ = request.step();
  WorkerAction pull{WorkerAction::Kind::kPull};
  pull.clock = request.step();
  pull.observer = true;
  actions->push_back(pull);
}

}  // namespace rubato
