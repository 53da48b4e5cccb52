#include "tools/bench/step.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/flags.h"
#include "common/initialize.h"
#include "common/isa.h"
#include "common/job/completion.h"
#include "common/job/report.h"
#include "common/job/yaml_reader.h"
#include "common/log.h"
#include "common/process_exit.h"
#include "common/random.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "server/parameter_groups.h"
#include "tensor/kernels.h"
#include "tools/bench/cluster_step.h"
#include "worker/compute_device.h"
#include "worker/model.h"
#include "worker/presets.h"

namespace rubato {
namespace {

// A model with random examples for it.
struct Setup {
  proto::Model model;
  std::vector<int64_t> shape;
  ComputeDevice device;
  Objective objective;
  std::vector<float> features;
  std::vector<int32_t> labels;
};

absl::StatusOr<Setup> MakeSetup(const StepBench& bench) {
  Setup setup;
  proto::Job job;
  YamlReader reader(&job);
  RUBATO_RETURN_IF_ERROR(reader.ReadDocument(absl::StrCat("model: ", bench.model), "--model"));
  RUBATO_RETURN_IF_ERROR(reader.ReadDocument(
      absl::StrCat("device: {type: ", bench.device, ", precision: ", bench.precision, "}"),
      "--device and --precision"));
  Complete(job.mutable_model(), &reader.report());
  RUBATO_RETURN_IF_ERROR(reader.report().ToStatus());
  setup.model = job.model();
  RUBATO_ASSIGN_OR_RETURN(setup.device, ComputeDevice::Choose(job.device(), /*local_rank=*/0));
  setup.shape = bench.shape;
  setup.objective.outputs = bench.classes;
  const bool is_text = setup.model.preset() == proto::Model::PRESET_CHAR_GPT;
  const bool is_resnet = setup.model.preset() == proto::Model::PRESET_RESNET20 ||
                         setup.model.preset() == proto::Model::PRESET_RESNET18;
  if (setup.shape.empty() && is_resnet) setup.shape = {3, 32, 32};
  if (setup.shape.empty())
    setup.shape = is_text ? std::vector<int64_t>{64} : std::vector<int64_t>{1, 28, 28};
  if (setup.objective.outputs == 0) setup.objective.outputs = is_text ? 65 : 10;
  if (is_text) setup.objective.places = setup.shape[0];
  RandomStream stream(1);
  setup.features.resize(bench.batch * SizeOf(setup.shape));
  for (float& value : setup.features) {
    value =
        is_text ? static_cast<float>(stream.Below(setup.objective.outputs)) : stream.Uniform(-1, 1);
  }
  setup.labels.resize(bench.batch * setup.objective.places);
  for (int32_t& label : setup.labels) label = stream.Below(setup.objective.outputs);
  return setup;
}

// Seconds that `call` takes: the median of as many calls as go into `seconds`, after three.
double MedianSeconds(double seconds, absl::FunctionRef<void()> call) {
  for (int i = 0; i < 3; ++i) call();
  std::vector<double> times;
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  while (times.size() < 5 || absl::Now() < end) {
    const int64_t begin = absl::GetCurrentTimeNanos();
    call();
    times.push_back(static_cast<double>(absl::GetCurrentTimeNanos() - begin) * 1e-9);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// What products of matrices reach on one thread, in operations a second.
absl::StatusOr<double> Peak() {
  constexpr int64_t kSize = 768;
  RUBATO_ASSIGN_OR_RETURN(Tensor a, Tensor::Zeros({kSize, kSize}, DType::kFloat32));
  RUBATO_ASSIGN_OR_RETURN(Tensor b, Tensor::Zeros({kSize, kSize}, DType::kFloat32));
  RUBATO_ASSIGN_OR_RETURN(Tensor c, Tensor::Zeros({kSize, kSize}, DType::kFloat32));
  const double seconds = MedianSeconds(
      0.3, [&] { MatMul(a.ref(), Transpose::kNo, b.ref(), Transpose::kNo, c.ref()); });
  return 2.0 * kSize * kSize * kSize / seconds;
}

// Of one example: forward, and backward by parameters and, but for the first layer, by the input.
double OperationsOf(const Graph& graph) {
  double operations = 0;
  bool is_first = true;
  for (const Graph::Node& node : graph.nodes) {
    if (node.layer == nullptr) continue;
    const double forward = 2.0 * static_cast<double>(node.layer->multiplications());
    operations += forward * (is_first ? 2 : 3);
    if (node.parameters > 0) is_first = false;
  }
  return operations;
}

struct LayerTime {
  std::string name;
  double forward, backward;  // seconds
};

// Each layer alone, its operands in memory of their own.
absl::StatusOr<std::vector<LayerTime>> TimeLayers(const Setup& setup, int64_t n,
                                                  const std::vector<float>& parameters) {
  RUBATO_ASSIGN_OR_RETURN(const proto::Model model,
                          ExpandPreset(setup.model, setup.shape, setup.objective.outputs));
  RUBATO_ASSIGN_OR_RETURN(const Graph graph,
                          BuildGraph(model, setup.shape, setup.objective.outputs));
  std::vector<LayerTime> times;
  RandomStream stream(2);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Graph::Node& node = graph.nodes[i];
    if (node.layer == nullptr || node.layer->OutputIsInput()) continue;
    Layer& layer = *node.layer;
    const Shape in = BatchOf(n, graph.shapes[node.input]), out = BatchOf(n, graph.shapes[i + 1]);
    const auto make = [&](int64_t size) {
      std::vector<float> values(size);
      for (float& value : values) value = stream.Uniform(-1, 1);
      return values;
    };
    std::vector<float> x = node.input == 0 ? setup.features : make(SizeOf(in)),
                       y = make(SizeOf(out)), dy = make(SizeOf(out)), dx = make(SizeOf(in)),
                       saved = make(layer.saved_size(n)),
                       scratch = make(layer.scratch_size(CpuKernels(), n)),
                       gradient(node.parameters);
    const uint64_t key = 0;
    LayerContext context;
    context.training = true;
    context.key = &key;
    context.saved = saved;
    context.scratch = scratch;
    const ConstTensorRef values = ConstTensorRef(parameters).Slice(node.begin, {node.parameters});
    const ConstTensorRef xs = ConstTensorRef(x).Reshaped(in);
    const TensorRef ys = TensorRef(y).Reshaped(out), dys = TensorRef(dy).Reshaped(out);
    const TensorRef dxs = node.input == 0 ? TensorRef() : TensorRef(dx).Reshaped(in);
    const double forward = MedianSeconds(0.1, [&] { layer.Forward(context, values, xs, ys); });
    const double backward =
        MedianSeconds(0.1, [&] { layer.Backward(context, values, xs, ys, dys, dxs, gradient); });
    times.push_back(
        {absl::StrCat(layer.kind(), " ", ShapeText(graph.shapes[i + 1])), forward, backward});
  }
  return times;
}

// The report of a GPU's step, against nothing: its peak is not known here.
std::string OnGpu(const StepBench& bench, const Setup& setup, double seconds, const Model& model,
                  bool json) {
  const double operations = OperationsOf(model.graph()) * static_cast<double>(bench.batch);
  const double rate = static_cast<double>(bench.batch) / seconds;
  if (json) {
    nlohmann::ordered_json object;
    object["model"] = bench.model;
    object["batch"] = bench.batch;
    object["device"] = setup.device.numerics();
    object["samples_per_second"] = rate;
    object["milliseconds"] = seconds * 1e3;
    object["gflops"] = operations / seconds * 1e-9;
    object["parameters"] = model.trainable_count();
    object["arena_bytes"] = model.memory_bytes();
    return object.dump() + "\n";
  }
  return absl::StrFormat(
      "model    %s, %d parameters, batch %d, %s\n"
      "step     %.3f ms, %.0f samples/s\n"
      "speed    %.1f GFLOP/s\n"
      "memory   %.1f MB of the GPU's\n",
      bench.model, model.trainable_count(), bench.batch, setup.device.numerics(), seconds * 1e3,
      rate, operations / seconds * 1e-9, static_cast<double>(model.memory_bytes()) * 1e-6);
}

}  // namespace

absl::StatusOr<std::string> BenchStep(const StepBench& bench, bool json) {
  RUBATO_ASSIGN_OR_RETURN(Setup setup, MakeSetup(bench));
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, setup.device.Open());
  RUBATO_ASSIGN_OR_RETURN(
      const std::unique_ptr<Model> model,
      Model::Create(setup.model, setup.shape, setup.objective, bench.batch, setup.device.dtype(),
                    Purpose::kTraining, std::move(device)));
  proto::Optimizer settings;
  settings.set_learning_rate(1e-4);
  settings.set_momentum(0.9);
  RUBATO_ASSIGN_OR_RETURN(const ParameterGroups groups,
                          ParameterGroups::Create(settings, model->layout()));
  std::vector<float> parameters(model->parameter_count()), gradient(parameters.size()),
      slot(parameters.size());
  int64_t begin = 0;
  for (const proto::Parameter& parameter : model->layout().parameters()) {
    const int64_t size = SizeOf(parameter.shape());
    InitializeRange(parameter, 1, begin, absl::MakeSpan(parameters).subspan(begin, size));
    begin += size;
  }
  const std::vector<absl::Span<float>> slots = {absl::MakeSpan(slot)};
  int64_t count = 0;
  const double seconds = MedianSeconds(bench.seconds, [&] {
    model->Gradient(parameters, setup.features, {setup.labels, {}}, 0, TensorRef(gradient),
                    [](int64_t) {});
    if (!setup.device.is_cpu()) return;
    const auto rate_of = [](double rate) { return static_cast<float>(rate); };
    GroupUpdate update{rate_of};
    update.scale = update.mean_scale = 1.0f / static_cast<float>(bench.batch);
    update.count = count++;
    groups.Apply({0, model->parameter_count()}, update,
                 {parameters, gradient, slots, absl::MakeSpan(parameters)});
  });
  if (!setup.device.is_cpu()) return OnGpu(bench, setup, seconds, *model, json);
  RUBATO_ASSIGN_OR_RETURN(const double peak, Peak());
  const double operations = OperationsOf(model->graph()) * static_cast<double>(bench.batch);
  const double rate = static_cast<double>(bench.batch) / seconds;
  const double share = operations / seconds / peak;
  std::vector<LayerTime> layers;
  if (bench.layers && setup.device.is_cpu()) {
    RUBATO_ASSIGN_OR_RETURN(layers, TimeLayers(setup, bench.batch, parameters));
  }
  if (json) {
    nlohmann::ordered_json object;
    object["model"] = bench.model;
    object["batch"] = bench.batch;
    object["threads"] = bench.threads;
    object["samples_per_second"] = rate;
    object["milliseconds"] = seconds * 1e3;
    object["gflops"] = operations / seconds * 1e-9;
    object["flops_share_of_peak"] = share;
    object["peak_gflops"] = peak * 1e-9;
    object["parameters"] = model->trainable_count();
    object["arena_bytes"] = model->memory_bytes();
    for (const LayerTime& layer : layers) {
      object["layers"].push_back({{"layer", layer.name},
                                  {"forward_milliseconds", layer.forward * 1e3},
                                  {"backward_milliseconds", layer.backward * 1e3}});
    }
    return object.dump() + "\n";
  }
  std::string text = absl::StrFormat(
      "model    %s, %d parameters, batch %d, %d thread%s\n"
      "step     %.3f ms, %.0f samples/s\n"
      "speed    %.1f of %.1f GFLOP/s that products of matrices reach (%.0f %%)\n"
      "memory   %.1f MB of activations and gradients\n",
      bench.model, model->trainable_count(), bench.batch, bench.threads,
      bench.threads == 1 ? "" : "s", seconds * 1e3, rate, operations / seconds * 1e-9, peak * 1e-9,
      share * 100, static_cast<double>(model->memory_bytes()) * 1e-6);
  for (const LayerTime& layer : layers) {
    absl::StrAppendFormat(&text, "  %-34s %8.3f ms forward %8.3f ms backward\n", layer.name,
                          layer.forward * 1e3, layer.backward * 1e3);
  }
  return text;
}

int BenchStepMain(const std::vector<std::string>& arguments) {
  std::string shape;
  StepBench bench;
  ClusterStepBench cluster;
  int seconds = 3;
  int64_t servers = 0, workers = 0;
  bool json = false;
  Flags flags(
      "rubato bench step",
      "Measures one local step of training (forward, backward, SGD with momentum) on random\n"
      "examples; with --workers a step through servers, in processes of their own, on images of\n"
      "28 by 28.",
      {"rubato bench step --model cnn --batch 64 --json",
       "rubato bench step --model '{preset: mlp, hidden: [1000]}' --layers",
       "rubato bench step --model cnn --servers 1 --workers 2"});
  flags.Add("model", &bench.model, "MODEL", "a preset, or what stands behind `model:` in a job");
  flags.Add("shape", &shape, "N,N,N", "of an example, if it is not the preset's usual one");
  flags.Add("classes", &bench.classes, "N", "of the data; 0: the preset's usual number");
  flags.Add("batch", &bench.batch, "N", "samples of a step, of each worker");
  flags.Add("device", &bench.device, "DEVICE",
            "cpu or cuda; a GPU's step is parameters over, forward, backward, gradient back");
  flags.Add("precision", &bench.precision, "P", "of a GPU: float32, tf32, bf16 or fp16");
  flags.Add("threads", &bench.threads, "N", "to compute with; of each worker");
  flags.Add("workers", &workers, "N", "through servers: worker processes; 0: a local step");
  flags.Add("servers", &servers, "N", "through servers: server processes; 0: one");
  flags.Add("mode", &cluster.mode, "MODE", "through servers: the mode, as consistency.mode");
  flags.Add("seconds", &seconds, "N", "to measure for");
  flags.Add("layers", &bench.layers, "", "also time each layer by itself");
  flags.Add("json", &json, "", "print one JSON object");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  bench.seconds = seconds;
  absl::Status status;
  const bool is_cluster = workers != 0 || servers != 0;
  if (bench.batch < 1 || bench.threads < 1 || seconds < 0 || workers < 0 || servers < 0) {
    status = absl::InvalidArgumentError(
        "found a number below 1, expected a batch and threads of 1 or more");
  } else if (bench.threads > 1 && !is_cluster) {
    status = absl::InvalidArgumentError(
        absl::StrCat("found --threads ", bench.threads,
                     ", expected 1: a thread computes a micro-batch, and a local step is one "
                     "(--workers 1 takes several)"));
  } else if (is_cluster && (bench.layers || !shape.empty() || bench.classes != 0)) {
    status = absl::InvalidArgumentError(
        "found --layers, --shape or --classes, expected none of them beside --workers");
  } else if (bench.device != "cpu" && bench.layers) {
    status = absl::InvalidArgumentError(
        absl::StrCat("found --device ", bench.device, " beside --layers, expected cpu"));
  }
  for (absl::string_view dim : absl::StrSplit(shape, ',', absl::SkipEmpty())) {
    int64_t size;
    if (!absl::SimpleAtoi(dim, &size) || size < 1) {
      status = absl::InvalidArgumentError(
          absl::StrCat("found --shape ", shape, ", expected numbers such as 3,32,32"));
    }
    bench.shape.push_back(size);
  }
  cluster.model = bench.model;
  cluster.batch = bench.batch;
  cluster.threads = bench.threads;
  cluster.device = bench.device;
  cluster.precision = bench.precision;
  cluster.workers = std::max<int64_t>(workers, 1);
  cluster.servers = std::max<int64_t>(servers, 1);
  cluster.seconds = std::max(seconds, 1);
  const absl::StatusOr<std::string> text = !status.ok() ? absl::StatusOr<std::string>(status)
                                           : is_cluster ? BenchClusterStep(cluster, json)
                                                        : BenchStep(bench, json);
  if (!text.ok()) {
    PrintError(text.status());
    return ExitCode(text.status());
  }
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace rubato
