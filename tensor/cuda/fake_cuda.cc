#include "tensor/cuda/fake_cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "common/base/check.h"

// What streams and their like are. One thread at a time uses them, as one uses a Device.
struct CUgraph_st {
  std::vector<rubato::FakeWork> work;  // in the order in which it was given, which is one of it
  std::vector<CUstream_st*> streams;   // that take part
  bool is_broken = false;
};
struct CUgraphExec_st {
  CUgraph_st graph;
  int device;
};
struct CUstream_st {
  int device;
  int64_t number;
  CUgraph_st* capture = nullptr;  // what it is recorded into
  bool is_origin = false;
  int64_t given = 0, joined = 0;  // pieces of work, and how many of them the origin comes after
};
struct CUevent_st {
  int device;
  CUstream_st* stream = nullptr;  // in which it was last recorded, behind so much
  int64_t given = 0;
  bool in_capture = false;
};

namespace rubato {
namespace {

struct Runtime {
  FakeCuda told;
  cudaError_t fault = cudaSuccess;
  std::map<char*, int64_t> memory;  // of the host's and of all GPUs', with lengths
  std::map<char*, int> of_gpus;     // and whose
  // Of the host's, what others own, and which GPU's alone it is; -1: all GPUs'.
  std::map<char*, int> registered;
  int64_t used = 0;
};

// Of each thread of the host (CUDA Runtime API, "Device Management" and "Error Handling").
struct Thread {
  int device = 0;
  cudaError_t last = cudaSuccess;
  dim3 grid, block;  // of the kernel that it starts
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};

Thread& ThisThread() {
  static thread_local Thread thread;
  return thread;
}

// Held in each call, for any thread may make one. Work of streams is done in calls, too, and may
// make others.
class Lock {
 public:
  Lock() : lock_(TheMutex()) {}

 private:
  static std::recursive_mutex& TheMutex() {
    static auto* const mutex = new std::recursive_mutex;
    return *mutex;
  }
  const std::lock_guard<std::recursive_mutex> lock_;
};

Runtime& TheRuntime() {
  static auto* const runtime = new Runtime;
  return *runtime;
}

// By the address of a kernel's function on the host. Filled before main().
std::map<const void*, std::string>& NamesOfKernels() {
  static auto* const names = new std::map<const void*, std::string>;
  return *names;
}

std::vector<const void*>& FatBinaries() {
  static auto* const binaries = new std::vector<const void*>;
  return *binaries;
}

cudaError_t Fail(cudaError_t error) { return ThisThread().last = error; }

// What every call begins with.
cudaError_t Enter(const char* name) {
  Runtime& r = TheRuntime();
  r.told.calls.push_back(name);
  if (r.fault != cudaSuccess) return Fail(r.fault);
  if (static_cast<int64_t>(r.told.calls.size()) - 1 != r.told.fails_at) return cudaSuccess;
  if (r.told.stays) r.fault = r.told.error;
  return Fail(r.told.error);
}

// Work of a stream. CUDA C++ Programming Guide, several GPUs: kernels want the stream's GPU to be
// the calling thread's; copies and waits do not.
cudaError_t EnterStream(const char* name, cudaStream_t stream, bool wants_device) {
  const cudaError_t error = Enter(name);
  if (error != cudaSuccess) return error;
  RUBATO_CHECK(stream != nullptr);
  if (wants_device && stream->device != ThisThread().device) {
    return Fail(cudaErrorInvalidResourceHandle);
  }
  ++stream->given;
  return cudaSuccess;
}

// CUDA Runtime API, stream capture: what waits for the GPU, or may, ends a recording that is made.
cudaError_t EnterWait(const char* name, cudaStream_t stream) {
  const cudaError_t error = Enter(name);
  if (error != cudaSuccess || stream->capture == nullptr) return error;
  stream->capture->is_broken = true;
  return Fail(cudaErrorStreamCaptureUnsupported);
}

// That both ends lie in memory that is there, for that GPU if it is one's alone.
bool IsThere(const void* address, size_t bytes, int gpu = -1) {
  const Runtime& r = TheRuntime();
  char* const begin = static_cast<char*>(const_cast<void*>(address));
  auto after = r.memory.upper_bound(begin);
  if (after == r.memory.begin()) return false;
  --after;
  const auto registered = r.registered.find(after->first);
  if (registered != r.registered.end() && registered->second >= 0 && registered->second != gpu) {
    return false;
  }
  return begin + bytes <= after->first + after->second;
}

cudaError_t Take(void** memory, size_t bytes, bool of_gpu) {
  Runtime& r = TheRuntime();
  if (of_gpu && r.used + static_cast<int64_t>(bytes) > r.told.memory_bytes) {
    return Fail(cudaErrorMemoryAllocation);
  }
  char* const taken = static_cast<char*>(std::aligned_alloc(256, (bytes / 256 + 1) * 256));
  std::memset(taken, 0xff, std::min<size_t>(bytes, 1 << 16));
  if (of_gpu) {
    r.of_gpus[taken] = ThisThread().device;
    r.used += bytes;
  }
  r.memory[taken] = bytes;
  ++r.told.live;
  *memory = taken;
  return cudaSuccess;
}

cudaError_t GiveBack(void* memory, bool of_gpu) {
  Runtime& r = TheRuntime();
  if (memory == nullptr) return cudaSuccess;
  const auto found = r.memory.find(static_cast<char*>(memory));
  if (found == r.memory.end() || r.of_gpus.count(found->first) != (of_gpu ? 1u : 0u) ||
      r.registered.count(found->first) > 0) {
    return Fail(cudaErrorInvalidValue);
  }
  if (of_gpu) {
    r.used -= found->second;
    r.of_gpus.erase(found->first);
  }
  r.memory.erase(found);
  --r.told.live;
  std::free(memory);
  return cudaSuccess;
}

void NoteWork(cudaStream_t stream, const FakeStreamWork& work) {
  const auto note = [work] {
    TheRuntime().told.work.push_back(work);
    return cudaSuccess;
  };
  if (stream->capture == nullptr) {
    note();
  } else {
    stream->capture->work.push_back(note);
  }
}

template <typename T>
cudaError_t Destroy(const char* name, T* thing) {
  const Lock lock;
  const cudaError_t error = Enter(name);
  if (error != cudaSuccess) return error;
  --TheRuntime().told.live;
  delete thing;
  return cudaSuccess;
}

template <typename T>
T* Count(T* thing) {
  ++TheRuntime().told.live;
  return thing;
}

}  // namespace

FakeCuda& TheFakeCuda() { return TheRuntime().told; }

cudaError_t GiveToFakeStream(cudaStream_t stream, FakeWork work) {
  const Lock lock;
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
    return cudaSuccess;
  }
  const cudaError_t error = work();
  return error == cudaSuccess ? error : Fail(TheRuntime().fault = error);
}

const std::vector<const void*>& FakeFatBinaries() { return FatBinaries(); }

std::vector<std::pair<const char*, int64_t>> FakeGpuMemory() {
  std::vector<std::pair<const char*, int64_t>> memory;
  for (const auto& [begin, gpu] : TheRuntime().of_gpus) {
    memory.emplace_back(begin, TheRuntime().memory[begin]);
  }
  return memory;
}

int FakeGpuOf(cudaStream_t stream) { return stream->device; }

int FakeGpuOf(const void* memory, int64_t bytes) {
  const Lock lock;
  char* const begin = static_cast<char*>(const_cast<void*>(memory));
  auto after = TheRuntime().of_gpus.upper_bound(begin);
  if (after == TheRuntime().of_gpus.begin() || !IsThere(memory, bytes)) return -1;
  const auto& [taken, gpu] = *--after;
  return begin + bytes <= taken + TheRuntime().memory[taken] ? gpu : -1;
}

bool IsFakeRecorded(cudaStream_t stream) { return stream->capture != nullptr; }

}  // namespace rubato

using rubato::Count;
using rubato::Destroy;
using rubato::Enter;
using rubato::EnterStream;
using rubato::EnterWait;
using rubato::Fail;
using rubato::FakeStreamWork;
using rubato::GiveBack;
using rubato::GiveToFakeStream;
using rubato::IsThere;
using rubato::Lock;
using rubato::NamesOfKernels;
using rubato::NoteWork;
using rubato::Take;
using rubato::TheRuntime;
using rubato::ThisThread;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  static thread_local char name[32];
  std::snprintf(name, sizeof name, "cudaError%d", static_cast<int>(error));
  return name;
}
const char* cudaGetErrorString(cudaError_t) { return "a failure of the test's"; }

cudaError_t cudaGetLastError() {
  const Lock lock;
  const cudaError_t error = Enter("cudaGetLastError");
  if (error != cudaSuccess) return error;
  return std::exchange(ThisThread().last, TheRuntime().fault);
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Lock lock;
  *count = TheRuntime().told.devices;
  return Enter("cudaGetDeviceCount");
}
cudaError_t cudaDriverGetVersion(int* version) {
  const Lock lock;
  *version = CUDART_VERSION;
  return Enter("cudaDriverGetVersion");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  const Lock lock;
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "Fake");
  properties->major = 9;
  return Enter("cudaGetDeviceProperties");
}
cudaError_t cudaSetDevice(int device) {
  const Lock lock;
  const cudaError_t error = Enter("cudaSetDevice");
  if (error == cudaSuccess) ThisThread().device = device;
  return error;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock lock;
  *total = TheRuntime().told.memory_bytes;
  *free = *total - TheRuntime().used;
  return Enter("cudaMemGetInfo");
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const Lock lock;
  const cudaError_t error = Enter("cudaMalloc");
  return error != cudaSuccess ? error : Take(memory, bytes, /*of_gpu=*/true);
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  const Lock lock;
  const cudaError_t error = Enter("cudaMallocHost");
  return error != cudaSuccess ? error : Take(memory, bytes, /*of_gpu=*/false);
}
cudaError_t cudaFree(void* memory) {
  const Lock lock;
  const cudaError_t error = Enter("cudaFree");
  return error != cudaSuccess ? error : GiveBack(memory, /*of_gpu=*/true);
}
cudaError_t cudaFreeHost(void* memory) {
  const Lock lock;
  const cudaError_t error = Enter("cudaFreeHost");
  return error != cudaSuccess ? error : GiveBack(memory, /*of_gpu=*/false);
}
// Of pages that nothing else has registered (CUDA Runtime API, "Memory Management").
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  const Lock lock;
  const cudaError_t error = Enter("cudaHostRegister");
  if (error != cudaSuccess) return error;
  auto& r = TheRuntime();
  char* const begin = static_cast<char*>(memory);
  if (r.told.refuses_memory) return Fail(cudaErrorNotSupported);
  if (reinterpret_cast<uintptr_t>(begin) % 4096 != 0 || bytes % 4096 != 0 || bytes == 0) {
    return Fail(cudaErrorInvalidValue);  // CUDA takes it; here pages are nobody else's
  }
  const auto after = r.memory.lower_bound(begin);
  if ((after != r.memory.begin() && std::prev(after)->first + std::prev(after)->second > begin) ||
      (after != r.memory.end() && after->first < begin + bytes)) {
    return Fail(cudaErrorHostMemoryAlreadyRegistered);
  }
  r.memory[begin] = static_cast<int64_t>(bytes);
  r.registered[begin] = (flags & cudaHostRegisterPortable) != 0 ? -1 : ThisThread().device;
  ++r.told.live;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  const Lock lock;
  const cudaError_t error = Enter("cudaHostUnregister");
  if (error != cudaSuccess) return error;
  auto& r = TheRuntime();
  if (r.registered.erase(static_cast<char*>(memory)) == 0) {
    return Fail(cudaErrorHostMemoryNotRegistered);
  }
  r.memory.erase(static_cast<char*>(memory));
  --r.told.live;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock;
  const cudaError_t error = EnterStream("cudaMemcpyAsync", stream, false);
  if (error != cudaSuccess) return error;
  rubato::FakeCuda& told = TheRuntime().told;
  (kind == cudaMemcpyHostToDevice ? told.bytes_up : told.bytes_down) += bytes;
  const void* const of_gpu = kind == cudaMemcpyHostToDevice ? to : from;
  const void* const of_host = kind == cudaMemcpyHostToDevice ? from : to;
  const auto is_there = [=, any = told.copies_all_host, gpu = stream->device] {
    return IsThere(of_gpu, bytes) && (any || IsThere(of_host, bytes, gpu));
  };
  if (!is_there()) return Fail(cudaErrorInvalidValue);
  NoteWork(stream,
           {kind == cudaMemcpyHostToDevice ? FakeStreamWork::kUpload : FakeStreamWork::kDownload,
            stream->number, -1, static_cast<int64_t>(bytes)});
  return GiveToFakeStream(stream, [=] {
    if (!is_there()) return cudaErrorIllegalAddress;  // in a recording that is older than that
    std::memcpy(to, from, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock;
  const cudaError_t error = Enter("cudaStreamCreateWithFlags");
  if (error != cudaSuccess) return error;
  *stream = Count(new CUstream_st{ThisThread().device, TheRuntime().told.streams++});
  return error;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Destroy("cudaStreamDestroy", stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock;
  RUBATO_CHECK(!TheRuntime().told.hangs);
  return EnterWait("cudaStreamSynchronize", stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock;
  const cudaError_t error = EnterWait("cudaStreamQuery", stream);
  if (error != cudaSuccess) return error;
  return TheRuntime().told.hangs ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  const Lock lock;
  const cudaError_t error = EnterStream("cudaLaunchHostFunc", stream, false);
  if (error != cudaSuccess) return error;
  NoteWork(stream, {FakeStreamWork::kSignal, stream->number});
  return GiveToFakeStream(stream, [=] {
    if (!TheRuntime().told.hangs) function(argument);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const Lock lock;
  const cudaError_t error = Enter("cudaEventCreateWithFlags");
  if (error == cudaSuccess) *event = Count(new CUevent_st{ThisThread().device});
  return error;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return Destroy("cudaEventDestroy", event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock;
  const cudaError_t error = Enter("cudaEventRecord");
  if (error != cudaSuccess) return error;
  if (event->device != stream->device) return Fail(cudaErrorInvalidResourceHandle);
  event->stream = stream;
  event->given = stream->given;
  event->in_capture = stream->capture != nullptr;
  return cudaSuccess;
}
// A stream that waits for one that is recorded is recorded from then on, too.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock;
  const cudaError_t error = Enter("cudaStreamWaitEvent");
  if (error != cudaSuccess || event->stream == nullptr) return error;
  CUgraph_st* const capture = event->stream->capture;
  if (event->in_capture != (capture != nullptr)) return Fail(cudaErrorStreamCaptureUnmatched);
  if (stream->capture != capture) {
    if (stream->capture != nullptr) return Fail(cudaErrorStreamCaptureIsolation);
    stream->capture = capture;
    stream->joined = stream->given - 1;  // the wait itself is work
    capture->streams.push_back(stream);
  } else if (capture != nullptr && stream->is_origin) {
    event->stream->joined = event->given;
  }
  const bool is_all = event->given == event->stream->given;
  NoteWork(stream, {FakeStreamWork::kOrder, stream->number, is_all ? event->stream->number : -1});
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock;
  const cudaError_t error = Enter("cudaStreamBeginCapture");
  if (error != cudaSuccess) return error;
  if (stream->capture != nullptr) return Fail(cudaErrorIllegalState);
  stream->capture = Count(new CUgraph_st);
  stream->capture->streams = {stream};
  stream->is_origin = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock;
  const cudaError_t error = Enter("cudaStreamEndCapture");
  if (error != cudaSuccess) return error;
  if (stream->capture == nullptr || !stream->is_origin)
    return Fail(cudaErrorStreamCaptureUnmatched);
  *graph = stream->capture;
  bool joined = true;
  for (CUstream_st* each : (*graph)->streams) {
    joined = joined && (each->is_origin || each->joined == each->given);
    each->capture = nullptr;
    each->is_origin = false;
  }
  if ((*graph)->is_broken) return Fail(cudaErrorStreamCaptureInvalidated);
  return joined ? cudaSuccess : Fail(cudaErrorStreamCaptureUnjoined);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return Destroy("cudaGraphDestroy", graph); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const Lock lock;
  const cudaError_t error = Enter("cudaGraphInstantiate");
  if (error == cudaSuccess) *exec = Count(new CUgraphExec_st{*graph, ThisThread().device});
  return error;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Lock lock;
  return Destroy("cudaGraphExecDestroy", exec);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Lock lock;
  const cudaError_t error = EnterStream("cudaGraphLaunch", stream, false);
  if (error != cudaSuccess) return error;
  if (exec->device != stream->device) return Fail(cudaErrorInvalidResourceHandle);
  NoteWork(stream, {FakeStreamWork::kReplay, stream->number});
  for (const rubato::FakeWork& work : exec->graph.work) {
    const cudaError_t status = GiveToFakeStream(stream, work);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

// What nvcc makes of a kernel's start.
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  ThisThread().grid = grid;
  ThisThread().block = block;
  ThisThread().shared = shared;
  ThisThread().stream = stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = ThisThread().grid;
  *block = ThisThread().block;
  *shared = ThisThread().shared;
  *static_cast<cudaStream_t*>(stream) = ThisThread().stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
// Limits of every GPU since compute capability 3.0 (CUDA C++ Programming Guide, compute
// capabilities), and the shared memory of a block that nobody asked to be more.
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  const Lock lock;
  const cudaError_t error = EnterStream("cudaLaunchKernel", stream, true);
  if (error != cudaSuccess) return error;
  if (grid.x < 1 || grid.x > 0x7fffffff || block.x < 1 || block.x > 1024 || shared > 48 << 10) {
    return Fail(cudaErrorInvalidConfiguration);
  }
  rubato::FakeCuda& told = TheRuntime().told;
  const std::string name = NamesOfKernels()[kernel];
  ++told.launches;
  told.kernels.push_back(name);
  NoteWork(stream, {FakeStreamWork::kKernel, stream->number});
  if (!told.prepares) return cudaSuccess;
  return GiveToFakeStream(stream, told.prepares({name, grid, block, shared, arguments}));
}
void** __cudaRegisterFatBinary(void* binary) {
  static void* any = nullptr;
  rubato::FatBinaries().push_back(binary);
  return &any;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  NamesOfKernels()[function] = name;
}

}  // extern "C"
