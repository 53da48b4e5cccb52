// How nvcc compiles kernels. See block.h.
#ifndef RUBATO_TENSOR_CUDA_CUDA_LAUNCH_H_
#define RUBATO_TENSOR_CUDA_CUDA_LAUNCH_H_

#include "tensor/cuda/block.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_queue.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {

// What one thread sees of its block.
class CudaBlock {
 public:
  __device__ CudaBlock(char* shared) : shared_(shared) {}

  __device__ int64_t index() const { return blockIdx.x; }
  __device__ int threads() const { return blockDim.x; }

  template <typename F>
  __device__ void ForEach(F f) {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }

  template <typename A, typename F, typename Op>
  __device__ A Reduce(A identity, F f, Op op) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int warps = blockDim.x / kWarp;
    A* const totals = Shared<A>();
    A value = Halve(f(static_cast<int>(threadIdx.x)), op);
    __syncthreads();  // whoever still reads what was shared before
    if (lane == 0) totals[warp] = value;
    __syncthreads();
    if (warp == 0) {
      value = Halve(lane < warps ? totals[lane] : identity, op);
      if (lane == 0) totals[0] = value;
    }
    __syncthreads();
    const A total = totals[0];
    __syncthreads();  // before somebody writes what is shared
    return total;
  }

  template <typename A, typename F>
  __device__ A Sum(A identity, F f) {
    return Reduce(identity, f, Plus());
  }

  template <typename A>
  __device__ A* Shared() {
    static_assert(sizeof(A) <= kSharedBytes, "");
    return reinterpret_cast<A*>(shared_);
  }

 private:
  // Lane 0 receives what HostBlock::Halve gives.
  template <typename A, typename Op>
  __device__ static A Halve(A value, Op op) {
    for (int half = kWarp / 2; half > 0; half /= 2) value = op(value, Down(value, half));
    return value;
  }

  template <typename A>
  __device__ static A Down(A value, int lanes) {
    return __shfl_down_sync(~0u, value, lanes);
  }
  template <typename A>
  __device__ static Pair<A> Down(Pair<A> value, int lanes) {
    return {Down(value.first, lanes), Down(value.second, lanes)};
  }

  char* const shared_;
};

// With bounds, so that a block of the most threads always has the registers that it needs.
template <typename Kernel>
__global__ void __launch_bounds__(MostThreadsOf<Kernel>::kValue, 1) RunBlock(const Kernel kernel) {
  extern __shared__ double shared[];
  CudaBlock block(reinterpret_cast<char*>(shared));
  kernel(block);
}

template <typename Kernel>
void CudaQueue::Launch(int64_t blocks, int threads, const Kernel& kernel) {
  RUBATO_CHECK(blocks > 0 && blocks < (int64_t{1} << 31) &&
               threads <= MostThreadsOf<Kernel>::kValue);
  // A stream takes kernels only from threads whose GPU is its own (CUDA C++ Programming Guide,
  // "Stream and Event Behavior" on several GPUs).
  UseGpu(index_);
  RunBlock<<<static_cast<unsigned>(blocks), threads, threads * SharedBytesOf<Kernel>::kValue,
             stream_>>>(kernel);
  CheckCuda(cudaGetLastError(), "the start of a kernel");
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDA_LAUNCH_H_
