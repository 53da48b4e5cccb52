// A driver for tests, in the place of libcuda.so.1: there is no GPU, but code for one is taken as
// if it were loaded. So cuDNN makes its plans, compiled for a GPU that is only described.
#include <dlfcn.h>

namespace {

enum { kSuccess = 0, kNoDevice = 100, kNotFound = 500 };
char loaded[64];  // stands for all code

}  // namespace

extern "C" {

int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuGetErrorName(int, const char** name) {
  *name = "no device";
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "no device";
  return kSuccess;
}
int cuGetProcAddress_v2(const char* symbol, void** function, int, unsigned long, int* found) {
  *function = dlsym(RTLD_DEFAULT, symbol);
  if (found != nullptr) *found = *function == nullptr;
  return *function == nullptr ? kNotFound : kSuccess;
}
int cuLibraryLoadData(void** library, ...) {
  *library = loaded;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel, ...) {
  *kernel = loaded;
  return kSuccess;
}
int cuKernelSetAttribute(...) { return kSuccess; }
int cuLibraryUnload(...) { return kSuccess; }

#define NO_DEVICE(function) \
  int function(...) { return kNoDevice; }
NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetDevice)
NO_DEVICE(cuCtxGetLimit)
NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPushCurrent)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetAttribute)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuDevicePrimaryCtxRelease)
NO_DEVICE(cuDevicePrimaryCtxReset)
NO_DEVICE(cuDevicePrimaryCtxRetain)
NO_DEVICE(cuFuncGetAttribute)
NO_DEVICE(cuFuncSetAttribute)
NO_DEVICE(cuGetExportTable)
NO_DEVICE(cuKernelGetAttribute)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryLoadFromFile)
NO_DEVICE(cuLinkAddData)
NO_DEVICE(cuLinkAddData_v2)
NO_DEVICE(cuLinkAddFile_v2)
NO_DEVICE(cuLinkComplete)
NO_DEVICE(cuLinkCreate)
NO_DEVICE(cuLinkCreate_v2)
NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuMemcpyDtoH_v2)
NO_DEVICE(cuModuleGetFunction)
NO_DEVICE(cuModuleGetGlobal_v2)
NO_DEVICE(cuModuleLoadData)
NO_DEVICE(cuModuleLoadDataEx)
NO_DEVICE(cuModuleLoadFatBinary)
NO_DEVICE(cuModuleUnload)
NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
NO_DEVICE(cuStreamGetCtx)
NO_DEVICE(cuStreamSynchronize)
NO_DEVICE(cuTensorMapEncodeTiled)

}  // extern "C"
