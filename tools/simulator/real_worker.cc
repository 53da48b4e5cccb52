#include "tools/simulator/real_worker.h"

#include <utility>

#include "common/base/status.h"
#include "common/frames/received_values.h"

namespace rubato {
namespace {

// In the simulator's one thread and memory.
proto::Job Alone(proto::Job job) {
  job.mutable_device()->set_type(proto::Device::TYPE_CPU);
  job.mutable_device()->set_threads(1);
  job.mutable_data()->set_prefetch(0);
  job.mutable_wire()->set_shared_memory(proto::Wire::SHARED_MEMORY_OFF);
  return job;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RealWorker>> RealWorker::Create(const proto::Job& job,
                                                               const Data* data) {
  std::unique_ptr<RealWorker> worker(new RealWorker);
  const auto on_tested = [results = &worker->results_](const proto::EvaluationResult& result) {
    results->push_back(result);
  };
  RUBATO_ASSIGN_OR_RETURN(worker->values_,
                          WorkerValues::Create(Alone(job), data, /*local_rank=*/0, on_tested));
  worker->parameters_.resize(worker->values_->space().values());
  return worker;
}

void RealWorker::OnJoin() {
  values_->OnJoin().IgnoreError();  // it shares no memory
  values_->OnWorkers(/*workers=*/1, /*max_values=*/0);
}

void RealWorker::OnBlock(int64_t block, const Content& content) {
  ReceivedValues(content.floats)
      .CopyTo(absl::MakeSpan(parameters_)
                  .subspan(values_->space().BlockValues(block).begin, content.floats.size));
}

absl::Status RealWorker::Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                                 const Policy& policy, Push push, proto::Progress* progress) {
  return values_->contributions().Compute(
      schedule, unit, node, policy, parameters_,
      [&](int64_t block, const Payload& payload) {
        push(block, {0, payload});
      },
      progress);
}

std::vector<proto::EvaluationResult> RealWorker::Test(int64_t unit, bool is_final) {
  values_->tests().Start(unit, parameters_, is_final);
  values_->tests().Wait();
  return std::exchange(results_, {});
}

}  // namespace rubato
