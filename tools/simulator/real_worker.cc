#include "tools/simulator/real_worker.h"

#include <utility>

#include "common/base/status.h"
#include "common/frames/received_values.h"
#include "common/space/job_codec.h"

namespace rubato {

proto::Job Alone(proto::Job job) {
  job.mutable_device()->set_type(proto::Device::TYPE_CPU);
  job.mutable_device()->set_threads(1);
  job.mutable_data()->set_prefetch(0);
  job.mutable_wire()->set_shared_memory(proto::Wire::SHARED_MEMORY_OFF);
  return job;
}

absl::StatusOr<std::unique_ptr<RealWorker>> RealWorker::Create(const proto::Job& job,
                                                               const Data* data,
                                                               std::shared_ptr<Floats>* shared) {
  std::shared_ptr<Floats> floats = *shared;
  if (floats == nullptr) {
    floats = std::make_shared<Floats>();
    const auto on_tested = [results = &floats->results](const proto::EvaluationResult& result) {
      results->push_back(result);
    };
    RUBATO_ASSIGN_OR_RETURN(floats->values,
                            ModelValues::Create(Alone(job), data, GpuShare(), on_tested));
    if (PushCodec(job) != Codec::kTopK) *shared = floats;
  }
  return std::unique_ptr<RealWorker>(new RealWorker(std::move(floats)));
}

int64_t RealWorker::Memory(const proto::Job& job, int64_t values, int64_t shared_bytes) {
  const int64_t workers = job.cluster().workers().start();
  const int64_t vector = values * static_cast<int64_t>(sizeof(float));
  if (PushCodec(job) != Codec::kTopK) return workers * 2 * vector + shared_bytes;
  return workers * (4 * vector + shared_bytes);
}

void RealWorker::OnJoin() {
  floats_->values->OnJoin().IgnoreError();  // it shares no memory
  floats_->values->OnView(proto::View(), /*max_values=*/0);
}

void RealWorker::OnBlock(int64_t block, const Content& content) {
  const Payload& floats = *content.floats;
  ReceivedValues(floats).CopyTo(
      absl::MakeSpan(parameters_)
          .subspan(floats_->values->space().BlockValues(block).begin, floats.size));
}

absl::Status RealWorker::Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                                 const Policy& policy, Push push, proto::Progress* progress) {
  return floats_->values->contributions().Compute(
      schedule, unit, node, policy, parameters_,
      [&](int64_t block, const Payload& payload) {
        push(block, {0, std::make_shared<const Payload>(payload)});
      },
      progress);
}

std::vector<proto::EvaluationResult> RealWorker::Test(int64_t unit, bool is_final) {
  floats_->values->StartTest(unit, parameters_, is_final);
  floats_->values->AwaitTests();
  return std::exchange(floats_->results, {});
}

}  // namespace rubato
