// The choice of engines for graphs of operations, and plans of them.
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tensor/cuda/cudnn_graph.h"

namespace rubato {
namespace {

// What engines say of themselves that must not be: other bits each time, or sums and factors less
// exact than float32's sums of what the operands are.
bool IsRefused(cudnnBackendNumericalNote_t note) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
      return true;
    default:
      return false;
  }
}

// A configuration of an engine, with its own descriptors: what fails with one leaves others whole.
struct Candidate {
  std::unique_ptr<CudnnDescriptors> descriptors;
  cudnnBackendDescriptor_t config = nullptr;
};

Candidate CandidateOf(const Cudnn& cudnn, const CudnnTarget& target, cudnnBackendDescriptor_t graph,
                      const CudnnEngine& engine) {
  Candidate candidate = {std::make_unique<CudnnDescriptors>(&cudnn)};
  CudnnDescriptors& all = *candidate.descriptors;
  const auto descriptor = all.Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  all.Set(descriptor, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph);
  all.Set(descriptor, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, engine.index);
  if (target.properties != nullptr) {
    all.Set(descriptor, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            target.properties);
  }
  all.Finalize(descriptor, "an engine");
  std::vector<cudnnBackendDescriptor_t> knobs;
  for (const auto& [type, value] : engine.knobs) {
    knobs.push_back(all.Make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    all.Set(knobs.back(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, type);
    all.Set(knobs.back(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value);
    all.Finalize(knobs.back(), "an engine's setting");
  }
  candidate.config = all.Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  all.Set(candidate.config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptor);
  all.Set(candidate.config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
          static_cast<int64_t>(knobs.size()), knobs.data());
  all.Finalize(candidate.config, "an engine's configuration");
  return candidate;
}

// The best first.
std::vector<cudnnBackendDescriptor_t> AskHeuristic(const CudnnTarget& target,
                                                   cudnnBackendDescriptor_t graph,
                                                   CudnnDescriptors* all) {
  const auto heuristic = all->Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  all->Set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph);
  all->Set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.properties != nullptr) {
    all->Set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             target.properties);
  }
  all->Finalize(heuristic, "the choice of an engine");
  const int64_t count =
      all->Get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<cudnnBackendDescriptor_t> configs;
  for (int64_t i = 0; i < count; ++i) {
    configs.push_back(all->Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  }
  configs.resize(all->Get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          count, configs.data()));
  return configs;
}

absl::Status CheckWorkspace(int64_t most, const CudnnPlan& made) {
  if (made.workspace <= most) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("engine ", made.engine, " wants ", made.workspace,
                                               " bytes of workspace, of ", most,
                                               " that there are (cuDNN)"));
}

// Whether a configuration's engine is one that is used. Its number becomes the plan's.
absl::Status CheckEngine(const Cudnn& cudnn, cudnnBackendDescriptor_t config, CudnnPlan* made) {
  CudnnDescriptors own(&cudnn);
  const auto engine = own.Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  own.Get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
          const_cast<cudnnBackendDescriptor_t*>(&engine));
  own.Get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &made->engine);
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const int64_t count = own.Get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
  RUBATO_RETURN_IF_ERROR(own.status());
  for (int64_t i = 0; i < count; ++i) {
    if (!IsRefused(notes[i])) continue;
    return absl::UnimplementedError(absl::StrCat(
        "engine ", made->engine, " is not deterministic, or less exact than float32 (cuDNN)"));
  }
  return absl::OkStatus();
}

// The same before it is compiled; how much workspace it says it wants becomes the plan's.
absl::Status CheckChoice(const Cudnn& cudnn, cudnnBackendDescriptor_t config, int64_t most,
                         CudnnPlan* made) {
  RUBATO_RETURN_IF_ERROR(CheckEngine(cudnn, config, made));
  CudnnDescriptors none(&cudnn);
  none.Get(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &made->workspace);
  RUBATO_RETURN_IF_ERROR(none.status());
  return CheckWorkspace(most, *made);
}

// Of a configuration, with descriptors of its own.
absl::Status TryPlan(const Cudnn& cudnn, const CudnnTarget& target, cudnnBackendDescriptor_t config,
                     int64_t most, CudnnPlan* made) {
  RUBATO_RETURN_IF_ERROR(CheckEngine(cudnn, config, made));
  auto plan = std::make_unique<CudnnDescriptors>(&cudnn);
  const auto descriptor = plan->Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan->Set(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            config);
  if (target.properties != nullptr) {
    plan->Set(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              target.properties);
  } else {
    plan->Set(descriptor, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  }
  plan->Finalize(descriptor, "a plan");
  plan->Get(descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
            &made->workspace);
  RUBATO_RETURN_IF_ERROR(plan->status());
  RUBATO_RETURN_IF_ERROR(CheckWorkspace(most, *made));
  made->plan = descriptor;
  made->own.push_back(std::move(plan));
  return absl::OkStatus();
}

cudnnBackendDescriptor_t MakeGraph(const CudnnTarget& target,
                                   const std::vector<cudnnBackendDescriptor_t>& operations,
                                   CudnnDescriptors* all) {
  const auto graph = all->Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  all->Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           static_cast<int64_t>(operations.size()), operations.data());
  if (target.properties == nullptr) {
    all->Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  }
  all->Finalize(graph, "a graph of operations");
  return graph;
}

absl::Status NoEngine() { return absl::UnimplementedError("no engine takes it (cuDNN)"); }

}  // namespace

absl::Status MakePlan(const Cudnn& cudnn, const CudnnTarget& target,
                      const std::vector<cudnnBackendDescriptor_t>& operations,
                      const std::vector<CudnnEngine>& preferred, int64_t most, CudnnPlan* plan) {
  const auto graph = MakeGraph(target, operations, &plan->descriptors);
  RUBATO_RETURN_IF_ERROR(plan->descriptors.status());
  for (const CudnnEngine& engine : preferred) {
    Candidate candidate = CandidateOf(cudnn, target, graph, engine);
    absl::Status why = candidate.descriptors->status();
    plan->own.push_back(std::move(candidate.descriptors));
    if (why.ok()) why = TryPlan(cudnn, target, candidate.config, most, plan);
    if (why.ok()) return why;
  }
  plan->choices = AskHeuristic(target, graph, &plan->descriptors);
  RUBATO_RETURN_IF_ERROR(plan->descriptors.status());
  return FinishPlan(cudnn, target, most, plan);
}

absl::Status ChoosePlan(const Cudnn& cudnn, const CudnnTarget& target,
                        const std::vector<cudnnBackendDescriptor_t>& operations, int64_t most,
                        CudnnPlan* plan) {
  const auto graph = MakeGraph(target, operations, &plan->descriptors);
  std::vector<cudnnBackendDescriptor_t>& choices = plan->choices;
  choices = AskHeuristic(target, graph, &plan->descriptors);
  RUBATO_RETURN_IF_ERROR(plan->descriptors.status());
  absl::Status why = NoEngine();
  for (auto choice = choices.begin(); choice != choices.end(); ++choice) {
    why = CheckChoice(cudnn, *choice, most, plan);
    if (!why.ok()) continue;
    choices.erase(choices.begin(), choice);
    return why;
  }
  return why;
}

absl::Status FinishPlan(const Cudnn& cudnn, const CudnnTarget& target, int64_t most,
                        CudnnPlan* plan) {
  absl::Status why = NoEngine();
  for (const cudnnBackendDescriptor_t choice : plan->choices) {
    why = TryPlan(cudnn, target, choice, most, plan);
    if (why.ok()) return why;
  }
  return why;
}

absl::StatusOr<CudnnTarget> OpenTarget(const Cudnn& cudnn, int major, cudaStream_t stream) {
  CudnnTarget target;
  target.major = major;
  absl::Status status = cudnn.StatusOf(cudnn.Create(&target.handle), "the start of cuDNN");
  if (!status.ok()) return absl::FailedPreconditionError(status.message());
  status = cudnn.StatusOf(cudnn.SetStream(target.handle, stream), "cuDNN's stream");
  if (status.ok()) return target;
  cudnn.Destroy(target.handle);
  return absl::FailedPreconditionError(status.message());
}

absl::Status RunPlan(const Cudnn& cudnn, const CudnnTarget& target, const CudnnPlan& plan,
                     const std::map<int64_t, const void*>& operands, const void* workspace,
                     const char* what) {
  std::vector<int64_t> ids;
  std::vector<const void*> addresses;
  for (const auto& [id, address] : operands) {
    ids.push_back(id);
    addresses.push_back(address);
  }
  CudnnDescriptors run(&cudnn);
  const auto pack = run.Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const int64_t count = static_cast<int64_t>(ids.size());
  run.Set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  run.Set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
          addresses.data());
  run.Set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  run.Finalize(pack, "a run's operands");
  if (!run.status().ok()) {
    return absl::Status(run.status().code(), absl::StrCat(what, ": ", run.status().message()));
  }
  return cudnn.StatusOf(cudnn.Execute(target.handle, plan.plan, pack), what);
}

}  // namespace rubato
