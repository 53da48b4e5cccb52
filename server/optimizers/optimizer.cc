#include "server/optimizers/optimizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rubato {

Optimizer::Optimizer(Rule rule)
    : rule_(std::move(rule)),
      slots_(std::visit([](const auto& r) { return r.SlotNames(); }, rule_)) {}

absl::StatusOr<Optimizer> Optimizer::Create(const proto::Optimizer& settings) {
  const auto make = [](const auto& rule) -> absl::StatusOr<Optimizer> {
    if (!rule.ok()) return rule.status();
    return Optimizer(*rule);
  };
  switch (settings.name()) {
    case proto::Optimizer::NAME_SGD:
      return make(Sgd::Create(settings));
    case proto::Optimizer::NAME_ADAM:
    case proto::Optimizer::NAME_ADAMW:
      return make(Adam::Create(settings));
    case proto::Optimizer::NAME_ADAGRAD:
      return make(Adagrad::Create(settings));
    case proto::Optimizer::NAME_RMSPROP:
      return make(RmsProp::Create(settings));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.name: found number ", settings.name(), ", expected a known one"));
}

void Optimizer::Apply(const Update& update, const OptimizerSpans& spans) const {
  const size_t n = spans.parameters.size();
  RUBATO_CHECK(spans.gradient_sum.size() == n && spans.out.size() == n);
  RUBATO_CHECK(spans.slots.size() == slots_.size());
  RUBATO_CHECK(spans.slots_before.empty() || spans.slots_before.size() == slots_.size());
  for (const absl::Span<float>& slot : spans.slots) RUBATO_CHECK(slot.size() == n);
  std::visit([&](const auto& rule) { rule.Apply(update, spans); }, rule_);
}

proto::Optimizer ServerOptimizer(const proto::Job& job) {
  proto::Optimizer settings = job.optimizer();
  if (job.wire().push().codec() == proto::Push::CODEC_TOPK) {
    settings.set_momentum(0);
    settings.set_nesterov(false);
  }
  return settings;
}

}  // namespace rubato
