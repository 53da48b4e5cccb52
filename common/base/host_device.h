#ifndef RUBATO_COMMON_BASE_HOST_DEVICE_H_
#define RUBATO_COMMON_BASE_HOST_DEVICE_H_

// Marks a function that nvcc also compiles for GPUs. The same function runs on the CPU, where it is
// tested.
#ifdef __CUDACC__
#define RUBATO_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define RUBATO_HOST_DEVICE inline
#endif

// Marks a loop with a constant trip count that the compiler for GPUs is to unroll.
#ifdef __CUDA_ARCH__
#define RUBATO_UNROLL _Pragma("unroll")
#else
#define RUBATO_UNROLL
#endif

#endif  // RUBATO_COMMON_BASE_HOST_DEVICE_H_
