#include "tensor/cuda/fake_cublas.h"

#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "tensor/cuda/cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/half_float.h"

namespace rubato {
namespace {

template <typename T>
T& As(void* handle) {
  return *static_cast<T*>(handle);
}

void Violation(const std::string& what) { TheFakeCublas().violations.push_back(what); }

// Held in each call, for any thread may make one.
std::mutex& TheMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

// What every call begins with.
cublasStatus_t Enter(const char* name) {
  FakeCublas& fake = TheFakeCublas();
  fake.calls.push_back(name);
  return static_cast<int64_t>(fake.calls.size()) - 1 == fake.fails_at ? fake.error
                                                                      : CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Handle>
cublasStatus_t Make(const char* name, Handle* handle, const T& made) {
  const std::lock_guard<std::mutex> lock(TheMutex());
  const cublasStatus_t status = Enter(name);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *handle = reinterpret_cast<Handle>(new T(made));
  ++TheFakeCublas().live;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Handle>
cublasStatus_t GiveBack(const char* name, Handle handle) {
  const std::lock_guard<std::mutex> lock(TheMutex());
  const cublasStatus_t status = Enter(name);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  delete reinterpret_cast<T*>(handle);
  --TheFakeCublas().live;
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t AlignmentOf(const void* address) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(address) | 256;
  return bits & -bits;
}

template <typename T>
cublasStatus_t Set(T* to, const void* from, size_t size) {
  if (size != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  *to = *static_cast<const T*>(from);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t SetDescription(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                              const void* value, size_t size) {
  const std::lock_guard<std::mutex> lock(TheMutex());
  const cublasStatus_t entered = Enter("cublasLtMatmulDescSetAttribute");
  if (entered != CUBLAS_STATUS_SUCCESS) return entered;
  auto& d = As<FakeCublas::Description>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(&d.a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(&d.b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(&d.epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(&d.bias, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Set(&d.bias_type, value, size);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t SetLayout(cublasLtMatrixLayout_t handle, cublasLtMatrixLayoutAttribute_t attribute,
                         const void* value, size_t size) {
  const std::lock_guard<std::mutex> lock(TheMutex());
  const cublasStatus_t entered = Enter("cublasLtMatrixLayoutSetAttribute");
  if (entered != CUBLAS_STATUS_SUCCESS) return entered;
  auto& layout = As<FakeCublas::Layout>(handle);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Set(&layout.count, value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Set(&layout.offset, value, size);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t SetPreference(cublasLtMatmulPreference_t handle,
                             cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                             size_t size) {
  const std::lock_guard<std::mutex> lock(TheMutex());
  const cublasStatus_t entered = Enter("cublasLtMatmulPreferenceSetAttribute");
  if (entered != CUBLAS_STATUS_SUCCESS) return entered;
  auto& p = As<FakeCublas::Preference>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(&p.workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Set(&p.reductions, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Set(&p.alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                 size);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t GetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                            cublasLtMatmulPreference_t preference, int wanted,
                            cublasLtMatmulHeuristicResult_t results[], int* found) {
  const std::lock_guard<std::mutex> lock(TheMutex());
  FakeCublas& fake = TheFakeCublas();
  const cublasStatus_t entered = Enter("cublasLtMatmulAlgoGetHeuristic");
  if (entered != CUBLAS_STATUS_SUCCESS) return entered;
  const auto& d = As<FakeCublas::Description>(description);
  fake.questions.push_back({d, As<FakeCublas::Layout>(a), As<FakeCublas::Layout>(b),
                            As<FakeCublas::Layout>(c), As<FakeCublas::Preference>(preference),
                            wanted, AlignmentOf(d.bias)});
  *found = 0;
  if (fake.heuristic != CUBLAS_STATUS_SUCCESS) return fake.heuristic;
  for (size_t i = 0; i < fake.states.size() && *found < wanted; ++i) {
    results[i] = {};
    results[i].state = fake.states[i];
    results[i].algo.data[0] = i;
    results[i].algo.data[1] = fake.questions.size() - 1;
    ++*found;
  }
  return CUBLAS_STATUS_SUCCESS;
}

float Read(const void* values, cudaDataType_t type, int64_t i) {
  switch (type) {
    case CUDA_R_16F:
      return static_cast<float>(static_cast<const Float16*>(values)[i]);
    case CUDA_R_16BF:
      return static_cast<float>(static_cast<const BFloat16*>(values)[i]);
    default:
      return static_cast<const float*>(values)[i];
  }
}

void Write(void* values, cudaDataType_t type, int64_t i, float value) {
  if (type == CUDA_R_16F) {
    static_cast<Float16*>(values)[i] = Float16(value);
  } else if (type == CUDA_R_16BF) {
    static_cast<BFloat16*>(values)[i] = BFloat16(value);
  } else {
    static_cast<float*>(values)[i] = value;
  }
}

// By columns, as the library reads matrices.
cublasStatus_t Multiply(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                        const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                        cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                        cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t,
                        const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                        cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(TheMutex());
  FakeCublas& fake = TheFakeCublas();
  const cublasStatus_t entered = Enter("cublasLtMatmul");
  if (entered != CUBLAS_STATUS_SUCCESS) return entered;
  const auto& desc = As<FakeCublas::Description>(description);
  const auto& la = As<FakeCublas::Layout>(a_layout);
  const auto& lb = As<FakeCublas::Layout>(b_layout);
  const auto& lc = As<FakeCublas::Layout>(c_layout);
  const FakeCublas::Question& asked = fake.questions[algorithm->data[1]];
  fake.used.push_back(static_cast<int>(algorithm->data[0]));

  const bool ta = desc.a == CUBLAS_OP_T, tb = desc.b == CUBLAS_OP_T, adds = desc.bias != nullptr;
  const uint64_t m = lc.rows, n = lc.columns, k = ta ? la.rows : la.columns;
  if ((ta ? la.columns : la.rows) != m || (tb ? lb.rows : lb.columns) != n ||
      (tb ? lb.columns : lb.rows) != k) {
    Violation("sides do not fit");
  }
  for (const FakeCublas::Layout* layout : {&la, &lb, &lc}) {
    if (layout->leading < static_cast<int64_t>(layout->rows)) Violation("columns overlap");
    if (layout->count != lc.count) Violation("counts differ");
  }
  if (adds != (desc.epilogue == CUBLASLT_EPILOGUE_BIAS)) Violation("a bias without its epilogue");
  if (adds && desc.bias_type != lc.type) Violation("the bias is not of the output's type");
  if (asked.preference.workspace > bytes) Violation("less workspace than was promised");
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) Violation("the workspace is not aligned");
  const void* const addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (AlignmentOf(addresses[i]) < asked.preference.alignments[i]) {
      Violation(absl::StrCat("matrix ", i, " is less aligned than its algorithm was chosen for"));
    }
  }
  if (adds && AlignmentOf(desc.bias) < asked.bias_alignment) {
    Violation("the bias is less aligned than its algorithm was chosen for");
  }
  const cublasStatus_t status = fake.products[algorithm->data[0]];
  if (status != CUBLAS_STATUS_SUCCESS) return status;

  // Descriptions and layouts may change, or go, before a recording is replayed.
  const auto multiply = [=, desc = desc, la = la, lb = lb, lc = lc,
                         factor = *static_cast<const float*>(alpha),
                         kept = *static_cast<const float*>(beta)] {
    for (int64_t i = 0; i < lc.count; ++i) {
      for (uint64_t column = 0; column < n; ++column) {
        for (uint64_t row = 0; row < m; ++row) {
          double sum = 0;
          for (uint64_t j = 0; j < k; ++j) {
            const int64_t in_a = ta ? row * la.leading + j : j * la.leading + row;
            const int64_t in_b = tb ? j * lb.leading + column : column * lb.leading + j;
            sum += static_cast<double>(Read(a, la.type, i * la.offset + in_a)) *
                   Read(b, lb.type, i * lb.offset + in_b);
          }
          const int64_t at = i * lc.offset + column * lc.leading + row;
          sum *= factor;
          if (kept != 0) sum += kept * Read(c, lc.type, at);
          if (adds) sum += Read(desc.bias, lc.type, row);
          Write(d, lc.type, at, static_cast<float>(sum));
        }
      }
    }
    return cudaSuccess;
  };
  if (stream == nullptr) {
    multiply();
  } else {
    GiveToFakeStream(stream, multiply);
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeCublas& TheFakeCublas() {
  static auto* const fake = new FakeCublas;
  return *fake;
}

void ResetFakeCublas() { TheFakeCublas() = FakeCublas(); }

std::string Cublas::Version() const { return "0.0.0"; }

absl::StatusOr<std::shared_ptr<const Cublas>> Cublas::Open() {
  auto cublas = std::make_shared<Cublas>();
  cublas->Create = [](cublasLtHandle_t* handle) { return Make("cublasLtCreate", handle, 0); };
  cublas->Destroy = [](cublasLtHandle_t handle) {
    return GiveBack<int>("cublasLtDestroy", handle);
  };
  cublas->GetStatusString = [](cublasStatus_t status) {
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "it failed to run" : "another failure";
  };
  cublas->Matmul = Multiply;
  cublas->MatmulAlgoGetHeuristic = GetHeuristic;
  cublas->MatmulDescCreate = [](cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                cudaDataType_t scale) {
    FakeCublas::Description description;
    description.compute = compute;
    description.scale = scale;
    return Make("cublasLtMatmulDescCreate", handle, description);
  };
  cublas->MatmulDescDestroy = [](cublasLtMatmulDesc_t handle) {
    return GiveBack<FakeCublas::Description>("cublasLtMatmulDescDestroy", handle);
  };
  cublas->MatmulDescSetAttribute = SetDescription;
  cublas->MatmulPreferenceCreate = [](cublasLtMatmulPreference_t* handle) {
    return Make("cublasLtMatmulPreferenceCreate", handle, FakeCublas::Preference());
  };
  cublas->MatmulPreferenceDestroy = [](cublasLtMatmulPreference_t handle) {
    return GiveBack<FakeCublas::Preference>("cublasLtMatmulPreferenceDestroy", handle);
  };
  cublas->MatmulPreferenceSetAttribute = SetPreference;
  cublas->MatrixLayoutCreate = [](cublasLtMatrixLayout_t* handle, cudaDataType type, uint64_t rows,
                                  uint64_t columns, int64_t leading) {
    return Make("cublasLtMatrixLayoutCreate", handle,
                FakeCublas::Layout{type, rows, columns, leading});
  };
  cublas->MatrixLayoutDestroy = [](cublasLtMatrixLayout_t handle) {
    return GiveBack<FakeCublas::Layout>("cublasLtMatrixLayoutDestroy", handle);
  };
  cublas->MatrixLayoutSetAttribute = SetLayout;
  return std::shared_ptr<const Cublas>(std::move(cublas));
}

}  // namespace rubato
