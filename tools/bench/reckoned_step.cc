#include "tools/bench/reckoned_step.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "tools/bench/kernel_facts.h"
#include "tools/bench/published.h"
#include "tools/bench/reckoning.h"
#include "worker/model/model.h"
#include "worker/model/pages.h"
#include "worker/step/micro_batches.h"

namespace rubato {
namespace {

std::string Note(const PublishedGpu& gpu) {
  return absl::StrCat(
      "reckoned, not measured: what a step would take at least at the figures "
      "published of an ",
      gpu.description, " (docs/gpu.md)");
}

struct Step {
  const BenchSubject& subject;
  int64_t accumulate;
  const PublishedGpu& gpu;
  const Reckoning& reckoning;

  double samples() const { return static_cast<double>(subject.batch * accumulate); }
};

std::string AsJson(const Step& step) {
  nlohmann::ordered_json object;
  object["reckoned"] = true;
  object["note"] = Note(step.gpu);
  object["gpu"] = {{"name", step.gpu.name},
                   {"memory_bytes_per_second", step.gpu.memory_bytes},
                   {"bus_bytes_per_second", step.gpu.bus_bytes},
                   {"half_flops", step.gpu.half},
                   {"tf32_flops", step.gpu.tf32},
                   {"float32_flops", step.gpu.float32},
                   {"launch_seconds", kLaunchSeconds},
                   {"load_seconds", kLoadSeconds}};
  object["model"] = step.subject.model;
  object["batch"] = step.subject.batch;
  object["accumulate"] = step.accumulate;
  object["precision"] = step.subject.precision;
  object["milliseconds"] = step.reckoning.seconds * 1e3;
  object["samples_per_second"] = step.samples() / step.reckoning.seconds;
  object["gpu_milliseconds"] = step.reckoning.seconds_on_gpu * 1e3;
  for (int part = 0; part < kParts; ++part) {
    object["parts"].push_back({{"part", PartName(static_cast<Part>(part))},
                               {"milliseconds", step.reckoning.seconds_of[part] * 1e3}});
  }
  for (const ReckonedRow& row : step.reckoning.rows) {
    nlohmann::ordered_json of = {{"name", row.name},       {"part", PartName(row.part)},
                                 {"times", row.count},     {"bytes", row.bytes},
                                 {"flop", row.operations}, {"milliseconds", row.seconds * 1e3}};
    if (row.threads > 0) {
      of["registers"] = row.facts.registers;
      of["loads_under_way"] = row.facts.loads;
      of["threads_of_a_processor"] = row.threads;
    }
    object["work"].push_back(std::move(of));
  }
  return JsonText(object) + "\n";
}

std::string AsText(const Step& step) {
  const Reckoning& r = step.reckoning;
  std::string text = absl::StrFormat(
      "%s\nmodel    %s, batch %d%s, %s\n"
      "step     %.3f ms, %.0f samples/s: parameters over, forward, backward, gradient back\n",
      Note(step.gpu), step.subject.model, step.subject.batch,
      step.accumulate > 1 ? absl::StrCat(", ", step.accumulate, " of them a step") : "",
      step.subject.precision, r.seconds * 1e3, step.samples() / r.seconds);
  absl::StrAppendFormat(&text, "on GPU   %.3f ms, of which\n", r.seconds_on_gpu * 1e3);
  for (int part = 0; part < kParts; ++part) {
    const bool is_beside = static_cast<Part>(part) == Part::kTransfers;
    absl::StrAppendFormat(
        &text, "  %-44s %10.3f ms %s\n", PartName(static_cast<Part>(part)),
        r.seconds_of[part] * 1e3,
        is_beside ? "in both directions, beside it"
                  : absl::StrFormat("%6.1f %%", r.seconds_of[part] / r.seconds_on_gpu * 100));
  }
  absl::StrAppendFormat(&text, "%-52s %6s %10s %10s %10s  %s\n", "work", "times", "MB", "GFLOP",
                        "ms", "registers, loads under way, threads of a processor");
  for (const ReckonedRow& row : r.rows) {
    absl::StrAppendFormat(&text, "%-52s %6d %10.1f %10.1f %10.4f", row.name, row.count,
                          row.bytes * 1e-6, row.operations * 1e-9, row.seconds * 1e3);
    if (row.threads > 0) {
      absl::StrAppendFormat(&text, "  %d, %d, %d", row.facts.registers, row.facts.loads,
                            row.threads);
    }
    text += '\n';
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<Work>> WorkOfStep(const BenchSetup& setup, int64_t batch,
                                             int64_t accumulate) {
  std::vector<Work> work;
  RUBATO_ASSIGN_OR_RETURN(
      const std::unique_ptr<Model> model,
      Model::Create(setup.model, setup.shape, setup.objective, batch, setup.numbers.dtype,
                    Purpose::kTraining,
                    MakeWorkList(&work, setup.numbers.attention, setup.numbers.convolution),
                    Keeping{WaitingSums(accumulate)}));
  const Pages parameters(model->parameter_count()), gradient(model->parameter_count());
  const auto pins = std::make_pair(model->Pin(parameters.memory(), parameters.bytes()),
                                   model->Pin(gradient.memory(), gradient.bytes()));
  model->OnNewParameters();
  for (const Summing& summing : SummingsOf(accumulate, {0, accumulate})) {
    model->GradientOnDevice(
        ConstTensorRef(parameters.values()), setup.features, {setup.labels, {}}, 0,
        TensorRef(gradient.values()), summing, [](int64_t) {}, AllHaveArrived);
  }
  return work;
}

absl::StatusOr<std::string> ReckonStep(BenchSubject subject, int64_t accumulate,
                                       const std::string& gpu, bool json) {
  RUBATO_ASSIGN_OR_RETURN(const PublishedGpu published, FindPublishedGpu(gpu));
  RUBATO_ASSIGN_OR_RETURN(const auto facts, KernelFactsOf(published.architecture));
  subject.opens_device = false;
  RUBATO_ASSIGN_OR_RETURN(const BenchSetup setup, MakeSetup(subject));
  RUBATO_ASSIGN_OR_RETURN(const std::vector<Work> work,
                          WorkOfStep(setup, subject.batch, accumulate));
  const Reckoning reckoning = Reckon(work, published, setup.numbers.products, facts);
  const Step step = {subject, accumulate, published, reckoning};
  return json ? AsJson(step) : AsText(step);
}

}  // namespace rubato
