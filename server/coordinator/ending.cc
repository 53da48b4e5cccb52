#include "server/coordinator/ending.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "common/job/is_script.h"

namespace rubato {

using coordinator::Outcomes;
using coordinator::Send;
using coordinator::Warn;

namespace {

// Of bytes and updates of blocks: as many as can be said, where there are more.
int64_t Sum(int64_t a, int64_t b) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return a > kMost - b ? kMost : a + b;
}

}  // namespace

void Ending::Stop(const absl::Status& end) {
  stopping_ = true;
  // What ends several processes at once ends the job, not a server of it.
  if (stop_end_.ok() || absl::IsCancelled(end)) stop_end_ = end;
}

bool Ending::Diverge(PeerId peer, const std::string& reason) {
  if (!diverged_.empty()) return false;
  diverged_ = reason;
  culprit_ = peer;
  return true;
}

void Ending::EndUnbegun(Outcomes* out) {
  state_ = State::kCollecting;
  out->emplace_back(coordinator::Collect{version_});
}

void Ending::Begin(int64_t unit, bool blocks_in_step) {
  state_ = State::kSaving;
  unit_ = unit;
  version_ = blocks_in_step ? unit : 0;
}

void Ending::Test(Evaluations* evaluations, Registry* registry, absl::Time now, Outcomes* out) {
  state_ = State::kTesting;
  tester_ = kOwnShard;
  std::map<int64_t, WorkerId>& tests = evaluations->under_way();
  for (; !tests.empty(); tests.erase(tests.begin())) {
    Peer* const worker = registry->FindWorker(tests.begin()->second, &tester_);
    if (worker == nullptr) continue;
    worker->last_progress = now;
    awaited_ = {tester_};
    return;
  }
  const bool is_first = !std::exchange(is_final_, true);
  if (is_first) awaited_.clear();
  for (Peer* worker : registry->Workers()) {
    if (!worker->is_member) continue;
    const bool tests = tester_ == kOwnShard;
    if (!tests && !(is_first && IsScript(job_))) break;
    PeerId id;
    registry->FindWorker(worker->worker, &id);
    worker->last_progress = now;
    if (tests) tester_ = id;
    awaited_.insert(id);
    proto::CoordinatorMessage message;
    message.mutable_evaluation_request()->set_step(version_);
    message.mutable_evaluation_request()->set_unit(unit_);
    if (!tests) message.mutable_evaluation_request()->set_tests(false);
    out->push_back(Send{id, std::move(message)});
  }
  if (tester_ != kOwnShard) return;
  out->push_back(Warn{"no worker is left to test the final parameters"});
  AskForReports(*registry, out);
}

void Ending::OnFinalTest(const proto::EvaluationResult& evaluation, const MetricsLine& line,
                         const Evaluations& evaluations, const Registry& registry, Summary* summary,
                         Outcomes* out) {
  if (state_ != State::kTesting || evaluation.unit() != unit_) return;
  if (evaluation.has_loss_sum()) summary->test_loss = line.loss;
  summary->test_accuracy = line.accuracy;
  summary->test_others = line.others;
  const std::optional<MetricsLine>& last = evaluations.last();
  if (last.has_value() && job_.evaluation().split() == proto::Evaluation::SPLIT_VALIDATION) {
    summary->validation_loss = last->loss;
    summary->validation_accuracy = last->accuracy;
  }
  OnAnswered(tester_, registry, out);
}

void Ending::OnAnswered(PeerId worker, const Registry& registry, Outcomes* out) {
  awaited_.erase(worker);
  if (awaited_.empty() && state_ == State::kTesting) AskForReports(registry, out);
}

void Ending::OnLost(PeerId worker, Evaluations* evaluations, Registry* registry, absl::Time now,
                    Outcomes* out) {
  if (state_ != State::kTesting) return;
  if (worker == tester_) {
    awaited_.erase(worker);
    Test(evaluations, registry, now, out);
  } else {
    OnAnswered(worker, *registry, out);
  }
}

void Ending::AskForReports(const Registry& registry, Outcomes* out) {
  state_ = State::kReporting;
  reports_.Ask(registry.Shards());
  proto::CoordinatorMessage message;
  message.mutable_report_request();
  registry.SendToShards(message, out);
}

void Ending::OnReport(const ShardId& shard, const proto::ShardReport& report, Summary* summary,
                      Outcomes* out) {
  if (state_ != State::kReporting || !reports_.OnAnswer(shard)) return;
  summary->duplicates += report.duplicates();
  summary->pushed_bytes = Sum(summary->pushed_bytes, report.pushed_bytes());
  summary->pulled_bytes = Sum(summary->pulled_bytes, report.pulled_bytes());
  std::vector<int64_t>& counts = summary->staleness_counts;
  counts.resize(std::max<size_t>(counts.size(), report.staleness_counts_size()));
  for (int i = 0; i < report.staleness_counts_size(); ++i) {
    counts[i] = Sum(counts[i], report.staleness_counts(i));
  }
  summary->blocks.insert(summary->blocks.end(), report.blocks().begin(), report.blocks().end());
  if (!reports_.complete()) return;
  std::sort(summary->blocks.begin(), summary->blocks.end(),
            [](const auto& a, const auto& b) { return a.block() < b.block(); });
  state_ = State::kCollecting;
  out->push_back(coordinator::Collect{version_});
}

}  // namespace rubato
