#include "tensor/cuda/cudnn_graph.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace rubato {

CudnnDescriptors::~CudnnDescriptors() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) cudnn_.DestroyDescriptor(*made);
}

void CudnnDescriptors::Note(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) status_ = cudnn_.StatusOf(status, what);
}

cudnnBackendDescriptor_t CudnnDescriptors::Make(cudnnBackendDescriptorType_t type) {
  if (!status_.ok()) return nullptr;
  cudnnBackendDescriptor_t descriptor = nullptr;
  Note(cudnn_.CreateDescriptor(type, &descriptor), "a descriptor");
  if (status_.ok()) made_.push_back(descriptor);
  return descriptor;
}

void CudnnDescriptors::Set(cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                           int64_t count, const void* values) {
  if (!status_.ok()) return;
  Note(cudnn_.SetAttribute(descriptor, attribute, type, count, values), "an attribute");
}

int64_t CudnnDescriptors::Get(cudnnBackendDescriptor_t descriptor,
                              cudnnBackendAttributeName_t attribute,
                              cudnnBackendAttributeType_t type, int64_t most, void* values) {
  if (!status_.ok()) return 0;
  int64_t count = 0;
  Note(cudnn_.GetAttribute(descriptor, attribute, type, most, &count, values), "an attribute");
  return count;
}

void CudnnDescriptors::Finalize(cudnnBackendDescriptor_t descriptor, const char* what) {
  if (status_.ok()) Note(cudnn_.Finalize(descriptor), what);
}

CudnnGraph::Tensor CudnnGraph::Make(int64_t id, const Layout& layout, cudnnDataType_t type,
                                    cudnnBackendAttributeName_t kind, int64_t alignment) {
  const Tensor tensor = all_.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  all_.Set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  all_.Set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.dimensions.data());
  all_.Set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.strides.data());
  all_.Set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  all_.Set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  if (kind != CUDNN_ATTR_TENSOR_UNIQUE_ID) all_.Set(tensor, kind, CUDNN_TYPE_BOOLEAN, true);
  all_.Finalize(tensor, "a tensor");
  return tensor;
}

CudnnGraph::Tensor CudnnGraph::Operand(int64_t id, const Layout& layout, cudnnDataType_t type) {
  return Make(id, layout, type, CUDNN_ATTR_TENSOR_UNIQUE_ID, 16);
}

CudnnGraph::Tensor CudnnGraph::Scalar(int64_t id) {
  const Layout one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
  return Make(id, one, CUDNN_DATA_FLOAT, CUDNN_ATTR_TENSOR_IS_BY_VALUE, sizeof(float));
}

CudnnGraph::Tensor CudnnGraph::Inner(const Layout& layout, cudnnDataType_t type) {
  return Make(inner_++, layout, type, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 16);
}

cudnnBackendDescriptor_t CudnnGraph::MakePointwise(cudnnPointwiseMode_t mode,
                                                   cudnnDataType_t precision, int64_t axis) {
  const cudnnBackendDescriptor_t pointwise = all_.Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  all_.Set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  all_.Set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
  if (axis >= 0) all_.Set(pointwise, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  all_.Finalize(pointwise, "a function of single values");
  return pointwise;
}

void CudnnGraph::AddOperation(cudnnBackendDescriptorType_t type, const char* what,
                              std::initializer_list<Part> parts,
                              std::initializer_list<Number> numbers) {
  const auto operation = all_.Make(type);
  for (const auto& [attribute, descriptor] : parts) {
    if (descriptor == nullptr) continue;
    all_.Set(operation, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptor);
  }
  for (const auto& [attribute, number] : numbers) {
    all_.Set(operation, attribute, CUDNN_TYPE_FLOAT, number);
  }
  all_.Finalize(operation, what);
  operations_.push_back(operation);
}

CudnnGraph::Tensor CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y, Tensor b,
                                         Tensor t, cudnnDataType_t precision) {
  AddOperation(
      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an operation on single values",
      {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, MakePointwise(mode, precision, /*axis=*/-1)},
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
       {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t},
       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  return y;
}

CudnnGraph::Tensor CudnnGraph::Indices(int64_t axis, Tensor x, Tensor y) {
  AddOperation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "indices",
               {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                 MakePointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis)},
                {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  return y;
}

CudnnGraph::Tensor CudnnGraph::Multiply(Tensor a, Tensor b, Tensor c) {
  const auto product = all_.Make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  all_.Set(product, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  all_.Finalize(product, "a product");
  AddOperation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product",
               {{CUDNN_ATTR_OPERATION_MATMUL_DESC, product},
                {CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c}});
  return c;
}

CudnnGraph::Tensor CudnnGraph::Reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y) {
  const auto reduction = all_.Make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  all_.Set(reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  all_.Set(reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  all_.Finalize(reduction, "a reduction");
  AddOperation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction",
               {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction},
                {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x},
                {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
  return y;
}

CudnnGraph::Tensor CudnnGraph::Reshape(Tensor x, Tensor y) {
  AddOperation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "another shape",
               {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
  return y;
}

void CudnnGraph::Convolve(cudnnBackendDescriptorType_t pass, int64_t stride, int64_t padding,
                          Tensor x, Tensor w, Tensor y) {
  const auto convolution = all_.Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  all_.Set(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  all_.Set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
           CUDNN_CROSS_CORRELATION);
  all_.Set(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2});
  const std::pair<cudnnBackendAttributeName_t, int64_t> of_sides[] = {
      {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding},
      {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding},
      {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride},
      {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1}};
  for (const auto& [attribute, value] : of_sides) {
    const int64_t both[] = {value, value};
    all_.Set(convolution, attribute, CUDNN_TYPE_INT64, 2, both);
  }
  all_.Finalize(convolution, "a convolution");
  struct Names {
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
  };
  const Names names = pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                          ? Names{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA}
                      : pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                          ? Names{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}
                          : Names{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  AddOperation(pass, "a convolution",
               {{names.convolution, convolution}, {names.x, x}, {names.w, w}, {names.y, y}},
               {{names.alpha, 1.0f}, {names.beta, 0.0f}});
}

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

// Of a configuration, with descriptors of its own.
absl::Status TryPlan(const Cudnn& cudnn, const CudnnTarget& target, cudnnBackendDescriptor_t config,
                     int64_t most, CudnnPlan* made) {
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
  if (made->workspace > most) {
    return absl::UnimplementedError(absl::StrCat("engine ", made->engine, " wants ",
                                                 made->workspace, " bytes of workspace, of ", most,
                                                 " that there are (cuDNN)"));
  }
  made->plan = descriptor;
  made->own.push_back(std::move(plan));
  return absl::OkStatus();
}

}  // namespace

absl::Status MakePlan(const Cudnn& cudnn, const CudnnTarget& target,
                      const std::vector<cudnnBackendDescriptor_t>& operations,
                      const std::vector<CudnnEngine>& preferred, int64_t most, CudnnPlan* plan) {
  CudnnDescriptors& all = plan->descriptors;
  const auto graph = all.Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  all.Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
          static_cast<int64_t>(operations.size()), operations.data());
  if (target.properties == nullptr) {
    all.Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  }
  all.Finalize(graph, "a graph of operations");
  RUBATO_RETURN_IF_ERROR(all.status());
  absl::Status why = absl::UnimplementedError("no engine takes it (cuDNN)");
  for (const CudnnEngine& engine : preferred) {
    Candidate candidate = CandidateOf(cudnn, target, graph, engine);
    why = candidate.descriptors->status();
    plan->own.push_back(std::move(candidate.descriptors));
    if (why.ok()) why = TryPlan(cudnn, target, candidate.config, most, plan);
    if (why.ok()) return why;
  }
  const auto configs = AskHeuristic(target, graph, &all);
  RUBATO_RETURN_IF_ERROR(all.status());
  for (const cudnnBackendDescriptor_t config : configs) {
    why = TryPlan(cudnn, target, config, most, plan);
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
