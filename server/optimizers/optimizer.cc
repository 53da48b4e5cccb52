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

void Optimizer::Apply(const Update& update, absl::Span<const float> parameters,
                      absl::Span<const float> gradient_sum,
                      absl::Span<const absl::Span<float>> slots, absl::Span<float> out) const {
  const size_t n = parameters.size();
  RUBATO_CHECK(gradient_sum.size() == n && out.size() == n);
  RUBATO_CHECK(slots.size() == slots_.size());
  for (const absl::Span<float>& slot : slots) RUBATO_CHECK(slot.size() == n);
  const OptimizerSpans spans = {parameters, gradient_sum, slots, out};
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
