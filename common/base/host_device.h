#ifndef RUBATO_COMMON_BASE_HOST_DEVICE_H_
#define RUBATO_COMMON_BASE_HOST_DEVICE_H_

// Before a function that is compiled for GPUs too, by nvcc. The same function runs on the CPU,
// where tests look at it.
#ifdef __CUDACC__
#define RUBATO_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define RUBATO_HOST_DEVICE inline
#endif

// Before a loop whose count is known, and which a GPU's compiler is to write out.
#ifdef __CUDA_ARCH__
#define RUBATO_UNROLL _Pragma("unroll")
#else
#define RUBATO_UNROLL
#endif

#endif  // RUBATO_COMMON_BASE_HOST_DEVICE_H_
