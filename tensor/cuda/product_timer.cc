#include "tensor/cuda/product_timer.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "tensor/cuda/cublas.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/product_contract.h"
#include "tensor/half_float.h"

namespace rubato {
namespace {

// Calls between two events, as many as take some 2 ms but at least two, and pairs of events.
constexpr double kSeconds = 2e-3;
constexpr int kRounds = 11;
constexpr int kMaxCalls = 100;
// Values that matrices repeat, and of the results that are compared.
constexpr int64_t kPattern = 1 << 20;

// cuBLAS's first interface, which chooses algorithms by itself.
struct Gemm {
  decltype(&cublasCreate_v2) Create = nullptr;
  decltype(&cublasDestroy_v2) Destroy = nullptr;
  decltype(&cublasSetStream_v2) SetStream = nullptr;
  decltype(&cublasSetWorkspace_v2) SetWorkspace = nullptr;
  decltype(&cublasGemmEx_64) GemmEx = nullptr;
  decltype(&cublasGemmStridedBatchedEx_64) GemmStridedBatchedEx = nullptr;
};

absl::Status BlasStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " failed: status ", status, " (cuBLAS alone)"));
}

// Memory of the GPU's, until it goes out of scope.
class GpuMemory {
 public:
  ~GpuMemory() { cudaFree(address_); }

  // Room for `bytes` behind an address aligned as `like` is, up to 256.
  absl::Status Allocate(int64_t bytes, const void* like) {
    const int64_t offset = reinterpret_cast<uintptr_t>(like) % 256;
    RUBATO_RETURN_IF_ERROR(
        CudaStatus(cudaMalloc(&address_, bytes + offset), "taking the GPU's memory"));
    values_ = static_cast<char*>(address_) + offset;
    bytes_ = bytes;
    return CudaStatus(cudaMemset(values_, 0, bytes), "clearing the GPU's memory");
  }

  // `pattern` over and over.
  absl::Status Fill(const std::vector<char>& pattern) {
    for (int64_t at = 0; at < bytes_; at += static_cast<int64_t>(pattern.size())) {
      const int64_t part = std::min(bytes_ - at, static_cast<int64_t>(pattern.size()));
      RUBATO_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpy(values_ + at, pattern.data(), part, cudaMemcpyHostToDevice),
                     "a copy to the GPU"));
    }
    return absl::OkStatus();
  }

  char* values() const { return values_; }

 private:
  void* address_ = nullptr;
  char* values_ = nullptr;
  int64_t bytes_ = 0;
};

std::vector<char> RandomPattern(DType dtype) {
  RandomStream random(1);
  std::vector<char> pattern(kPattern * BytesOf(dtype));
  for (int64_t i = 0; i < kPattern; ++i) {
    const float value = random.Uniform(-1, 1);
    const BFloat16 bfloat16(value);
    const Float16 float16(value);
    const void* const bits = dtype == DType::kBFloat16  ? static_cast<const void*>(&bfloat16)
                             : dtype == DType::kFloat16 ? static_cast<const void*>(&float16)
                                                        : &value;
    std::memcpy(pattern.data() + i * BytesOf(dtype), bits, BytesOf(dtype));
  }
  return pattern;
}

class CudaProductTimer final : public ProductTimer {
 public:
  explicit CudaProductTimer(ProductPrecision precision) : precision_(precision) {}
  ~CudaProductTimer() override {
    cublas_.reset();
    if (handle_ != nullptr) gemm_.Destroy(handle_);
    for (cudaEvent_t event : {begin_, end_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Open(int gpu);
  absl::StatusOr<ProductTime> Time(const Product& product) override;

 private:
  absl::Status Alone(const Product& product);
  // Of one of `calls` calls.
  absl::StatusOr<double> SecondsOf(int calls, absl::FunctionRef<absl::Status()> call);
  absl::StatusOr<std::vector<float>> Download(const Matrix& matrix, int64_t extent) const;

  const ProductPrecision precision_;
  Gemm gemm_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  GpuMemory workspace_, alone_workspace_;
  std::unique_ptr<CublasHandle> cublas_;
  cublasHandle_t handle_ = nullptr;
};

absl::Status CudaProductTimer::Open(int gpu) {
  RUBATO_ASSIGN_OR_RETURN(CublasLibrary library, CublasLibrary::Open("cublas"));
  library.Find(&gemm_.Create, "cublasCreate_v2");
  library.Find(&gemm_.Destroy, "cublasDestroy_v2");
  library.Find(&gemm_.SetStream, "cublasSetStream_v2");
  library.Find(&gemm_.SetWorkspace, "cublasSetWorkspace_v2");
  library.Find(&gemm_.GemmEx, "cublasGemmEx_64");
  library.Find(&gemm_.GemmStridedBatchedEx, "cublasGemmStridedBatchedEx_64");
  RUBATO_RETURN_IF_ERROR(library.status());
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(gpu), "the choice of a GPU"));
  RUBATO_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&begin_), "an event"));
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&end_), "an event"));
  for (GpuMemory* memory : {&workspace_, &alone_workspace_}) {
    RUBATO_RETURN_IF_ERROR(memory->Allocate(CublasHandle::kWorkspaceBytes, nullptr));
  }
  RUBATO_ASSIGN_OR_RETURN(cublas_, CublasHandle::Create(precision_, workspace_.values()));
  RUBATO_RETURN_IF_ERROR(BlasStatus(gemm_.Create(&handle_), "its start"));
  RUBATO_RETURN_IF_ERROR(BlasStatus(gemm_.SetStream(handle_, stream_), "its stream"));
  return BlasStatus(gemm_.SetWorkspace(handle_, alone_workspace_.values(),
                                       static_cast<size_t>(CublasHandle::kWorkspaceBytes)),
                    "its workspace");
}

// By columns, as cuBLAS reads matrices: c^T = b^T a^T.
absl::Status CudaProductTimer::Alone(const Product& p) {
  const cublasOperation_t op_a = p.transpose_b == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = p.transpose_a == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const int64_t m = p.n, n = p.m, k = p.k, lda = p.b.pitch, ldb = p.a.pitch, ldc = p.c.pitch;
  const bool tf32 = precision_ == ProductPrecision::kTf32 && p.a.dtype == DType::kFloat32;
  const cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const cudaDataType_t a = CudaTypeOf(p.b.dtype), b = CudaTypeOf(p.a.dtype),
                       c = CudaTypeOf(p.c.dtype);
  void* const to = const_cast<void*>(p.c.values);
  if (p.count == 1) {
    return BlasStatus(
        gemm_.GemmEx(handle_, op_a, op_b, m, n, k, &alpha, p.b.values, a, lda, p.a.values, b, ldb,
                     &beta, to, c, ldc, compute, CUBLAS_GEMM_DEFAULT),
        "a product");
  }
  return BlasStatus(
      gemm_.GemmStridedBatchedEx(handle_, op_a, op_b, m, n, k, &alpha, p.b.values, a, lda,
                                 p.b.distance, p.a.values, b, ldb, p.a.distance, &beta, to, c, ldc,
                                 p.c.distance, p.count, compute, CUBLAS_GEMM_DEFAULT),
      "a product");
}

absl::StatusOr<double> CudaProductTimer::SecondsOf(int calls,
                                                   absl::FunctionRef<absl::Status()> call) {
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin_, stream_), "an event"));
  for (int i = 0; i < calls; ++i) RUBATO_RETURN_IF_ERROR(call());
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end_, stream_), "an event"));
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end_), "a product"));
  float milliseconds = 0;
  RUBATO_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, begin_, end_), "the time of a product"));
  return milliseconds * 1e-3 / calls;
}

absl::StatusOr<std::vector<float>> CudaProductTimer::Download(const Matrix& matrix,
                                                              int64_t extent) const {
  const int64_t count = std::min(extent, kPattern);
  std::vector<char> bytes(count * BytesOf(matrix.dtype));
  RUBATO_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(bytes.data(), matrix.values, bytes.size(), cudaMemcpyDeviceToHost, stream_),
      "a copy from the GPU"));
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), "a product"));
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const char* const at = bytes.data() + i * BytesOf(matrix.dtype);
    BFloat16 bfloat16;
    Float16 float16;
    if (matrix.dtype == DType::kBFloat16) {
      std::memcpy(&bfloat16, at, sizeof bfloat16);
      values[i] = static_cast<float>(bfloat16);
    } else if (matrix.dtype == DType::kFloat16) {
      std::memcpy(&float16, at, sizeof float16);
      values[i] = static_cast<float>(float16);
    } else {
      std::memcpy(&values[i], at, sizeof(float));
    }
  }
  return values;
}

absl::StatusOr<ProductTime> CudaProductTimer::Time(const Product& product) {
  Product p = product;
  GpuMemory a, b, c, bias;
  const auto place = [](GpuMemory* memory, Matrix* matrix, int64_t extent) {
    const absl::Status status = memory->Allocate(extent * BytesOf(matrix->dtype), matrix->values);
    matrix->values = memory->values();
    return status;
  };
  RUBATO_RETURN_IF_ERROR(place(&a, &p.a, ExtentOfA(p)));
  RUBATO_RETURN_IF_ERROR(place(&b, &p.b, ExtentOfB(p)));
  RUBATO_RETURN_IF_ERROR(place(&c, &p.c, ExtentOfC(p)));
  const std::vector<char> pattern = RandomPattern(p.a.dtype);
  RUBATO_RETURN_IF_ERROR(a.Fill(pattern));
  RUBATO_RETURN_IF_ERROR(b.Fill(pattern));
  if (p.bias != nullptr) {  // of zeros, so that results can be compared
    RUBATO_RETURN_IF_ERROR(bias.Allocate(p.n * BytesOf(p.c.dtype), p.bias));
    p.bias = bias.values();
  }
  if (!MayEndInBias(p)) p.bias = nullptr;  // which layers do not ask the library for either
  const auto ours = [&] {
    return cublas_->Multiply(p, stream_)  // ends the process if it fails
               ? absl::OkStatus()
               : absl::UnimplementedError("cuBLAS has no algorithm for a product");
  };
  const auto alone = [&] { return Alone(p); };

  ProductTime time = {};
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), "a copy to the GPU"));
  RUBATO_RETURN_IF_ERROR(ours());
  RUBATO_ASSIGN_OR_RETURN(const std::vector<float> by_us, Download(p.c, ExtentOfC(p)));
  RUBATO_RETURN_IF_ERROR(
      CudaStatus(cudaMemset(c.values(), 0, ExtentOfC(p) * BytesOf(p.c.dtype)), "clearing"));
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), "clearing"));
  RUBATO_RETURN_IF_ERROR(alone());
  RUBATO_ASSIGN_OR_RETURN(const std::vector<float> by_it, Download(p.c, ExtentOfC(p)));
  double most = 0;
  for (size_t i = 0; i < by_us.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(by_it[i])));
    const double off = std::fabs(static_cast<double>(by_us[i]) - by_it[i]);
    if (!(off <= time.difference)) time.difference = off;  // also what is no number
  }
  time.difference = most > 0 ? time.difference / most : time.difference;

  // In turn, so that both see the same clocks and temperatures.
  RUBATO_ASSIGN_OR_RETURN(const double once, SecondsOf(2, ours));
  const int calls = std::clamp(static_cast<int>(kSeconds / once), 2, kMaxCalls);
  std::vector<double> seconds, alone_seconds;
  for (int i = 0; i < kRounds; ++i) {
    RUBATO_ASSIGN_OR_RETURN(seconds.emplace_back(), SecondsOf(calls, ours));
    RUBATO_ASSIGN_OR_RETURN(alone_seconds.emplace_back(), SecondsOf(calls, alone));
  }
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  time.seconds = median(seconds);
  time.alone_seconds = median(alone_seconds);
  return time;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProductTimer>> OpenProductTimer(int gpu,
                                                               ProductPrecision precision) {
  auto timer = std::make_unique<CudaProductTimer>(precision);
  RUBATO_RETURN_IF_ERROR(timer->Open(gpu));
  return timer;
}

}  // namespace rubato
