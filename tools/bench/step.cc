#include "tools/bench/step.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/flags.h"
#include "common/base/isa.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/space/initialize.h"
#include "server/optimizers/parameter_groups.h"
#include "tools/bench/cluster_step.h"
#include "tools/bench/operations.h"
#include "tools/bench/reckoned_step.h"
#include "tools/bench/yardsticks.h"
#include "worker/model/model.h"
#include "worker/model/pages.h"
#include "worker/model/presets.h"
#include "worker/step/micro_batches.h"

namespace rubato {
namespace {

// What a local step is, said beside its time.
constexpr char kStep[] = "forward, backward, SGD with momentum";
constexpr char kStepOnGpu[] = "parameters over, forward, backward, gradient back";

struct LayerTime {
  std::string name;
  double forward, backward;  // seconds
};

// Each layer alone, its operands in memory of their own.
absl::StatusOr<std::vector<LayerTime>> TimeLayers(const BenchSetup& setup, int64_t n,
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
                       saved = make(layer.saved_size(CpuKernels(), DType::kFloat32, n)),
                       scratch = make(layer.scratch_size(CpuKernels(), DType::kFloat32, n, {})),
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

// The report of a GPU's step, against nothing: what the GPU could reach is not known here.
std::string OnGpu(const StepBench& bench, const BenchSetup& setup, double seconds,
                  const Model& model, bool json) {
  const double samples = static_cast<double>(bench.batch * bench.accumulate);
  const double operations = OperationsOf(model.graph()) * samples;
  const double rate = samples / seconds;
  if (json) {
    nlohmann::ordered_json object;
    object["model"] = bench.model;
    object["batch"] = bench.batch;
    object["accumulate"] = bench.accumulate;
    object["device"] = setup.device.numerics(model.fused_by());
    object["step"] = kStepOnGpu;
    object["samples_per_second"] = rate;
    object["milliseconds"] = seconds * 1e3;
    object["gflops"] = operations / seconds * 1e-9;
    object["flops_share_of_peak"] = nullptr;
    object["peak_gflops"] = nullptr;
    object["parameters"] = model.trainable_count();
    object["arena_bytes"] = model.memory_bytes();
    return JsonText(object) + "\n";
  }
  return absl::StrFormat(
      "model    %s, %d parameters, batch %d%s, %s\n"
      "step     %.3f ms, %.0f samples/s: %s\n"
      "speed    %.1f GFLOP/s\n"
      "memory   %.1f MB of the GPU's\n",
      bench.model, model.trainable_count(), bench.batch,
      bench.accumulate > 1 ? absl::StrCat(", ", bench.accumulate, " of them a step") : "",
      setup.device.numerics(model.fused_by()), seconds * 1e3, rate, kStepOnGpu,
      operations / seconds * 1e-9, static_cast<double>(model.memory_bytes()) * 1e-6);
}

// A step on a GPU as often as `bench.seconds` allow: parameters come from, and the gradient goes
// to, memory that is pinned, as a worker's is (worker/step/pin_memory.h). The median.
double SecondsOnGpu(const StepBench& bench, const BenchSetup& setup, Model* model,
                    const std::vector<float>& initial) {
  const Pages parameters(model->parameter_count()), gradient(model->parameter_count());
  std::copy(initial.begin(), initial.end(), parameters.values().begin());
  const auto pins = std::make_pair(model->Pin(parameters.memory(), parameters.bytes()),
                                   model->Pin(gradient.memory(), gradient.bytes()));
  const std::vector<Summing> summings = SummingsOf(bench.accumulate, {0, bench.accumulate});
  return MedianSeconds(bench.seconds, [&] {
    model->OnNewParameters();
    for (const Summing& summing : summings) {
      model->GradientOnDevice(
          ConstTensorRef(parameters.values()), setup.features, {setup.labels, {}}, 0,
          TensorRef(gradient.values()), summing, [](int64_t) {}, AllHaveArrived);
    }
  });
}

// A step as often as `bench.seconds` allow, from PyTorch's initial parameters. The median.
double SecondsOfStep(const StepBench& bench, const BenchSetup& setup, Model* model,
                     const ParameterGroups& groups, std::vector<float>* parameters) {
  parameters->resize(model->parameter_count());
  std::vector<float> gradient(parameters->size()), slot(parameters->size());
  int64_t begin = 0;
  for (const proto::Parameter& parameter : model->layout().parameters()) {
    const int64_t size = SizeOf(parameter.shape());
    InitializeRange(parameter, 1, begin, absl::MakeSpan(*parameters).subspan(begin, size));
    begin += size;
  }
  if (!setup.device.is_cpu()) return SecondsOnGpu(bench, setup, model, *parameters);
  const std::vector<absl::Span<float>> slots = {absl::MakeSpan(slot)};
  int64_t count = 0;
  return MedianSeconds(bench.seconds, [&] {
    model->Gradient(*parameters, setup.features, {setup.labels, {}}, 0, TensorRef(gradient),
                    [](int64_t) {});
    const auto rate_of = [](double rate) { return static_cast<float>(rate); };
    GroupUpdate update{rate_of};
    update.scale = update.mean_scale = 1.0f / static_cast<float>(bench.batch);
    update.count = count++;
    groups.Apply({0, model->parameter_count()}, update,
                 {*parameters, gradient, slots, absl::MakeSpan(*parameters)});
  });
}

// The report of a step on the CPU, whose products reach `peak` operations a second.
std::string OnCpu(const StepBench& bench, double seconds, double peak, const Model& model,
                  const std::vector<LayerTime>& layers, bool json) {
  const double speed = OperationsOf(model.graph()) * static_cast<double>(bench.batch) / seconds;
  const double rate = static_cast<double>(bench.batch) / seconds;
  if (json) {
    nlohmann::ordered_json object;
    object["model"] = bench.model;
    object["batch"] = bench.batch;
    object["threads"] = bench.threads;
    object["step"] = kStep;
    object["samples_per_second"] = rate;
    object["milliseconds"] = seconds * 1e3;
    object["gflops"] = speed * 1e-9;
    object["flops_share_of_peak"] = speed / peak;
    object["peak_gflops"] = peak * 1e-9;
    object["parameters"] = model.trainable_count();
    object["arena_bytes"] = model.memory_bytes();
    for (const LayerTime& layer : layers) {
      object["layers"].push_back({{"layer", layer.name},
                                  {"forward_milliseconds", layer.forward * 1e3},
                                  {"backward_milliseconds", layer.backward * 1e3}});
    }
    return JsonText(object) + "\n";
  }
  std::string text = absl::StrFormat(
      "model    %s, %d parameters, batch %d, %d thread%s\n"
      "step     %.3f ms, %.0f samples/s: %s\n"
      "speed    %.1f of %.1f GFLOP/s that products of matrices reach (%s)\n"
      "memory   %.1f MB of activations and gradients\n",
      bench.model, model.trainable_count(), bench.batch, bench.threads,
      bench.threads == 1 ? "" : "s", seconds * 1e3, rate, kStep, speed * 1e-9, peak * 1e-9,
      ShareOfPeak(speed, peak), static_cast<double>(model.memory_bytes()) * 1e-6);
  for (const LayerTime& layer : layers) {
    absl::StrAppendFormat(&text, "  %-34s %8.3f ms forward %8.3f ms backward\n", layer.name,
                          layer.forward * 1e3, layer.backward * 1e3);
  }
  return text;
}

// InvalidArgument for numbers and flags that do not go together.
absl::Status CheckFlags(const StepBench& bench, const ClusterStepBench& cluster, bool is_cluster,
                        bool openblas) {
  const std::tuple<const char*, int64_t, int64_t> least[] = {
      {"batch", bench.batch, 1},
      {"threads", bench.threads, 1},
      {"accumulate", bench.accumulate, 1},
      {"seconds", static_cast<int64_t>(bench.seconds), 0},
      {"workers", cluster.workers, 0},
      {"servers", cluster.servers, 0},
      {"server-threads", cluster.server_threads, 1}};
  for (const auto& [flag, found, expected] : least) {
    if (found >= expected) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": found ", found, ", expected ", expected, " or more"));
  }
  if (bench.threads > 1 && !is_cluster) {
    return absl::InvalidArgumentError(
        absl::StrCat("found --threads ", bench.threads,
                     ", expected 1: a thread computes a micro-batch, and a local step is one "
                     "(--workers 1 takes several)"));
  }
  if (is_cluster && (bench.layers || openblas)) {
    return absl::InvalidArgumentError(absl::StrCat("found --", bench.layers ? "layers" : "openblas",
                                                   " beside --workers, expected a local step"));
  }
  if (cluster.steps != 0 && (!is_cluster || cluster.steps < 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found --steps ", cluster.steps, ", expected 2 or more beside --servers"));
  }
  if (bench.device != "cpu" && (bench.layers || openblas)) {
    return absl::InvalidArgumentError(absl::StrCat("found --device ", bench.device, " beside --",
                                                   bench.layers ? "layers" : "openblas",
                                                   ", expected cpu"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RunBench(StepBench bench, ClusterStepBench cluster,
                                     const std::string& shape, const std::string& gpu,
                                     bool openblas, bool json) {
  const bool is_cluster = cluster.workers != 0 || cluster.servers != 0;
  RUBATO_RETURN_IF_ERROR(CheckFlags(bench, cluster, is_cluster, openblas));
  if (!gpu.empty() && (is_cluster || bench.layers || openblas)) {
    return absl::InvalidArgumentError(
        "found --model-of-device beside --workers, --layers or --openblas, expected a local step: "
        "what is reckoned is the work of one GPU");
  }
  RUBATO_ASSIGN_OR_RETURN(bench.shape, ParseShape(shape));
  if (!gpu.empty()) return ReckonStep(bench, bench.accumulate, gpu, json);
  if (!is_cluster) return BenchStep(bench, json);
  static_cast<BenchSubject&>(cluster) = bench;
  cluster.threads = bench.threads;
  cluster.accumulate = bench.accumulate;
  cluster.workers = std::max<int64_t>(cluster.workers, 1);
  cluster.servers = std::max<int64_t>(cluster.servers, 1);
  cluster.seconds = std::max(static_cast<int>(bench.seconds), 1);
  return BenchClusterStep(cluster, json);
}

}  // namespace

absl::StatusOr<std::string> BenchStep(const StepBench& bench, bool json) {
  RUBATO_ASSIGN_OR_RETURN(BenchSetup setup, MakeSetup(bench));
  if (setup.device.is_cpu() && bench.accumulate > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("found --accumulate ", bench.accumulate, " for a local step on a ",
                     bench.device, ", expected 1: only a GPU adds up gradients by itself"));
  }
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, setup.device.Open());
  RUBATO_ASSIGN_OR_RETURN(
      const std::unique_ptr<Model> model,
      Model::Create(setup.model, setup.shape, setup.objective, bench.batch, setup.device.dtype(),
                    Purpose::kTraining, std::move(device), Keeping{WaitingSums(bench.accumulate)}));
  proto::Optimizer settings;
  settings.set_learning_rate(1e-4);
  settings.set_momentum(0.9);
  RUBATO_ASSIGN_OR_RETURN(const ParameterGroups groups,
                          ParameterGroups::Create(settings, model->layout()));
  std::vector<float> parameters;
  const double seconds = SecondsOfStep(bench, setup, model.get(), groups, &parameters);
  if (!setup.device.is_cpu()) return OnGpu(bench, setup, seconds, *model, json);
  RUBATO_ASSIGN_OR_RETURN(const double peak, PeakOfAThread());
  std::vector<LayerTime> layers;
  if (bench.layers) {
    RUBATO_ASSIGN_OR_RETURN(layers, TimeLayers(setup, bench.batch, parameters));
  }
  return OnCpu(bench, seconds, peak, *model, layers, json);
}

int BenchStepMain(const std::vector<std::string>& arguments) {
  std::string shape, gpu;
  StepBench bench;
  ClusterStepBench cluster;
  int seconds = 3;
  cluster.servers = cluster.workers = 0;
  bool json = false, openblas = false;
  Flags flags(
      "rubato bench step",
      "Measures one local step of training (forward, backward, SGD with momentum) on random\n"
      "examples; with --servers or --workers a step through servers, in processes of their own.\n"
      "On a GPU a local step is what its worker does: parameters over, forward, backward, "
      "gradient\n"
      "back; the update, which is the servers', is not part of it. With --model-of-device it is\n"
      "reckoned, without a GPU, by what is published of one.",
      {"rubato bench step --model cnn --batch 64 --json",
       "rubato bench step --model '{preset: mlp, hidden: [1000]}' --layers",
       "rubato bench step --model cnn --servers 1 --workers 2",
       "rubato bench step --model-of-device h100 --model resnet18 --precision bf16 --batch 256"});
  AddSubjectFlags(&flags, &bench, &shape);
  flags.Add("accumulate", &bench.accumulate, "N",
            "batches in a worker's step, whose gradients are added");
  flags.Add("threads", &bench.threads, "N", "threads of each worker");
  flags.Add("workers", &cluster.workers, "N", "through servers: worker processes; 0: a local step");
  flags.Add("servers", &cluster.servers, "N", "through servers: server processes; 0: one");
  flags.Add("server-threads", &cluster.server_threads, "N",
            "through servers: threads with which each makes updates (cluster.server_threads)");
  flags.Add("mode", &cluster.mode, "MODE", "through servers: the mode, as in consistency.mode");
  flags.Add("seconds", &seconds, "N", "how long to measure");
  flags.Add("steps", &cluster.steps, "N",
            "through servers: how many steps to measure, 2 or more, in place of --seconds; 0: as "
            "--seconds says");
  flags.Add("model-of-device", &gpu, "GPU",
            "measure nothing, but reckon what a GPU's step would take: h100, h200 or a100");
  flags.Add("layers", &bench.layers, "", "also time each layer by itself");
  flags.Add("openblas", &openblas, "", "of a local step: use OpenBLAS where oneDNN would be used");
  flags.Add("json", &json, "", "print one JSON object");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  if (openblas) UseOpenBlasAlone();
  bench.seconds = seconds;
  return PrintResult(RunBench(std::move(bench), std::move(cluster), shape, gpu, openblas, json));
}

}  // namespace rubato
