#include "tools/simulator/small_job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/job/completion.h"
#include "google/protobuf/text_format.h"
#include "tools/simulator/symbol.h"

namespace rubato {

proto::Point PointOf(const SmallJob& small, const SmallJob::Every& every) {
  proto::Point point;
  switch (every.said) {
    case SmallJob::Every::Said::kSteps:
      point.set_steps(every.steps);
      break;
    case SmallJob::Every::Said::kSamples:  // now and then a step more
      point.set_samples(every.steps * small.micro_batches * small.micro_batch + 1);
      break;
    case SmallJob::Every::Said::kEpochs:
      point.set_epochs(static_cast<double>(every.steps * small.epochs) /
                       static_cast<double>(small.steps));
      break;
  }
  return point;
}

SimulationSetting MakeSetting(const SmallJob& small) {
  SimulationSetting setting;
  proto::Job& job = setting.job;
  RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(
      "version: 1 name: 'small' model { layers { flatten {} } }", &job));
  job.set_seed(small.seed);
  job.mutable_cluster()->set_servers(small.servers);
  job.mutable_cluster()->mutable_workers()->set_start(small.workers);
  job.mutable_cluster()->mutable_workers()->set_max(std::max(small.workers, small.max_workers));
  job.mutable_cluster()->mutable_workers()->set_min(small.min_workers);
  job.mutable_cluster()->set_max_restarts(small.max_restarts);
  job.mutable_cluster()->set_dedicated_coordinator(small.dedicated_coordinator);
  if (small.schedule.empty()) *job.mutable_consistency()->mutable_mode() = small.mode;
  for (const SmallJob::Stage& stage : small.schedule) {
    proto::Stage* out = job.mutable_consistency()->add_schedule();
    *out->mutable_mode() = stage.mode;
    if (&stage != &small.schedule.back()) out->mutable_until()->set_samples(stage.until_samples);
  }
  if (small.leaves_out) job.mutable_train()->set_on_non_finite(proto::Train::ON_NON_FINITE_SKIP);
  if (!small.learning_rate_parity) job.mutable_optimizer()->set_learning_rate_parity(false);
  if (small.clip_grad_norm > 0) {
    job.mutable_optimizer()->set_clip_grad_norm(small.clip_grad_norm);
  }
  if (small.checkpoint_every.steps > 0) {
    *job.mutable_checkpoint()->mutable_every() = PointOf(small, small.checkpoint_every);
  }
  if (small.checkpoint_seconds > 0) {
    job.mutable_checkpoint()->mutable_every()->set_time(small.checkpoint_seconds);
  }
  if (small.keep_last > 0) job.mutable_checkpoint()->set_keep_last(small.keep_last);
  if (small.keep_best.has_value()) {
    job.mutable_checkpoint()->mutable_keep_best()->set_metric("eval/accuracy");
    job.mutable_checkpoint()->mutable_keep_best()->set_mode(*small.keep_best);
  }
  if (small.evaluate_every.steps > 0) {
    *job.mutable_evaluation()->mutable_every() = PointOf(small, small.evaluate_every);
  }
  if (small.top_k) job.mutable_wire()->mutable_push()->set_codec(proto::Push::CODEC_TOPK);
  job.mutable_wire()->set_chunk(kBlockBytes);
  job.mutable_train()->set_batch_size(small.micro_batches * small.micro_batch);
  job.mutable_train()->set_micro_batches(small.micro_batches);
  job.mutable_train()->mutable_until()->set_steps(small.steps);
  if (small.seconds > 0) job.mutable_train()->mutable_until()->set_time(small.seconds);
  if (small.target > 0) {
    job.mutable_train()->mutable_stop_when()->set_metric("eval/loss");
    job.mutable_train()->mutable_stop_when()->set_at_most(TestLoss(small.target));
  }
  Report report;
  Complete(&job, &report);
  if (small.is_script) {
    job.mutable_model()->Clear();
    job.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
    *setting.layout.mutable_optimizer() = job.optimizer();
    setting.layout.set_gives_values(small.gives_values);
    proto::Constant* constant = setting.layout.add_constants();
    constant->set_name("embedding");
    constant->set_digest("of the script");
  }
  proto::Parameter* parameter = setting.layout.add_parameters();
  parameter->set_name("0.weight");
  parameter->add_shape(small.blocks * kBlockBytes / static_cast<int64_t>(sizeof(float)));
  const int64_t values = parameter->shape(0);
  setting.values_of_piece = (values - 1) / small.pieces + 1;
  setting.train_samples = small.steps / small.epochs * job.train().batch_size() - small.short_by;
  setting.test_samples = 1;
  setting.seed = small.seed;
  setting.micro_batch_time = kSecond;
  setting.symbols_are_judged = true;
  setting.non_finite_in = small.leaves_out ? kLeftOutOf : small.diverges_in;
  return setting;
}

}  // namespace rubato
