#include "tools/bench/subject.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/job/completion.h"
#include "common/job/report.h"
#include "common/job/yaml_reader.h"

namespace rubato {

void AddSubjectFlags(Flags* flags, BenchSubject* subject, std::string* shape) {
  flags->Add("model", &subject->model, "MODEL", "a preset, or what a job has under `model:`");
  flags->Add("shape", shape, "N,N,N",
             "the shape of an example; default: the usual shape for the preset");
  flags->Add("classes", &subject->classes, "N",
             "classes in the data; 0: the usual number for the preset");
  flags->Add("batch", &subject->batch, "N", "samples that each worker computes at a time");
  flags->Add("device", &subject->device, "DEVICE",
             "cpu or cuda; on a GPU a step copies parameters there, goes forward and backward, and "
             "copies the gradient back");
  flags->Add("precision", &subject->precision, "P", "on a GPU: float32, tf32, bf16 or fp16");
  flags->Add("attention", &subject->attention, "A",
             "on a GPU: auto, or products (device.attention in a job)");
  flags->Add("convolution", &subject->convolution, "C",
             "on a GPU: auto, or products (device.convolution in a job)");
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& shape) {
  std::vector<int64_t> sizes;
  for (absl::string_view dim : absl::StrSplit(shape, ',', absl::SkipEmpty())) {
    int64_t size;
    if (!absl::SimpleAtoi(dim, &size) || size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("found --shape ", shape, ", expected numbers such as 3,32,32"));
    }
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<BenchSetup> MakeSetup(const BenchSubject& subject) {
  BenchSetup setup;
  proto::Job job;
  YamlReader reader(&job);
  RUBATO_RETURN_IF_ERROR(reader.ReadDocument(absl::StrCat("model: ", subject.model), "--model"));
  RUBATO_RETURN_IF_ERROR(reader.report().ToStatus());
  RUBATO_RETURN_IF_ERROR(reader.ReadDocument(
      absl::StrCat("device: {type: ", subject.device, ", precision: ", subject.precision,
                   ", attention: ", subject.attention, ", convolution: ", subject.convolution, "}"),
      "--device, --precision, --attention and --convolution"));
  RUBATO_RETURN_IF_ERROR(reader.report().ToStatus());
  Complete(job.mutable_model(), &reader.report());
  RUBATO_RETURN_IF_ERROR(reader.report().ToStatus());
  setup.model = job.model();
  setup.numbers = NumbersOf(job.device());
  if (subject.opens_device) {
    RUBATO_ASSIGN_OR_RETURN(setup.device, ComputeDevice::Choose(job.device()));
  }
  setup.shape = subject.shape;
  setup.objective.outputs = subject.classes;
  const bool is_text = setup.model.preset() == proto::Model::PRESET_CHAR_GPT;
  const bool is_resnet = setup.model.preset() == proto::Model::PRESET_RESNET20 ||
                         setup.model.preset() == proto::Model::PRESET_RESNET18;
  if (setup.shape.empty() && is_resnet) setup.shape = {3, 32, 32};
  if (setup.shape.empty())
    setup.shape = is_text ? std::vector<int64_t>{64} : std::vector<int64_t>{1, 28, 28};
  if (setup.objective.outputs == 0) setup.objective.outputs = is_text ? 65 : 10;
  if (is_text) setup.objective.places = setup.shape[0];
  RandomStream stream(1);
  setup.features.resize(subject.batch * SizeOf(setup.shape));
  for (float& value : setup.features) {
    value =
        is_text ? static_cast<float>(stream.Below(setup.objective.outputs)) : stream.Uniform(-1, 1);
  }
  setup.labels.resize(subject.batch * setup.objective.places);
  for (int32_t& label : setup.labels) label = stream.Below(setup.objective.outputs);
  return setup;
}

}  // namespace rubato
