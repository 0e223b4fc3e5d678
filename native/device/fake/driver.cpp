// Start, devices, contexts and the lookup of functions of the fake driver.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "fake.h"

namespace fake {
namespace {

struct Symbol {
  const char *symbol, *base;
  int version;
  const char* flavour;
};

const Symbol kSymbols[] = {
#define SYMBOL(symbol, base, version, flavour) {#symbol, #base, version, #flavour},
#include "symbols.inc"
#undef SYMBOL
};

// The newest of the functions of this name that a program of this version may have.
void* find(const char* name, int version, bool per_thread) {
  const Symbol* best = nullptr;
  for (const Symbol& one : kSymbols) {
    const bool plain = strcmp(one.flavour, "-") == 0;
    if (strcmp(one.base, name) != 0 || one.version > version || (!plain && !per_thread)) continue;
    const bool better = best == nullptr || (strcmp(best->flavour, "-") == 0) != plain
                            ? best == nullptr || !plain
                            : one.version > best->version;
    if (better) best = &one;
  }
  static void* self = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(&cuInit), &info) != 0 ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  }();
  return best != nullptr ? dlsym(self, best->symbol) : nullptr;
}

bool ready() { return state().initialised_by == getpid(); }

}  // namespace
}  // namespace fake

using namespace fake;

extern "C" {

CUresult cuInit(unsigned) {
  if (state().initialised_by != 0 && !ready()) return CUDA_ERROR_NOT_INITIALIZED;  // a child of a process that used it
  state().initialised_by = getpid();
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* status) {
  *out = find(name, version, (flags & kProcPerThreadStream) != 0);
  if (status != nullptr) *status = *out != nullptr ? 0 : 1;
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuGetProcAddress(const char* name, void** out, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, out, version, flags, nullptr);
}
CUresult cuGetErrorName(CUresult error, const char** out) {
  *out = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** out) { return cuGetErrorName(error, out); }

CUresult cuDeviceGetCount(int* count) {
  if (!ready()) return CUDA_ERROR_NOT_INITIALIZED;
  *count = device_count();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int index) {
  if (!ready()) return CUDA_ERROR_NOT_INITIALIZED;
  *device = index;
  return index >= 0 && index < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  strncpy(name, "Fake device", static_cast<size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(char* uuid, CUdevice device) {
  memset(uuid, 0xFA, 16);
  uuid[15] = static_cast<char>(0xFA + device);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(char* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
CUresult cuDeviceGetAttribute(int* out, int, CUdevice) {
  *out = 1;  // one multiprocessor; everything else can be done
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* out, CUdevice) {
  *out = memory_total();
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* out, unsigned, CUdevice device) {
  if (!ready()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard<std::mutex> held(state().lock);
  auto* context = new Context;
  context->device = device;
  context->legacy = new Stream;
  context->legacy->context = context;
  context->streams.insert(context->legacy);
  *out = reinterpret_cast<CUcontext>(context);
  return cuCtxPushCurrent_v2(*out);
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  if (current() == reinterpret_cast<Context*>(context)) {
    cuCtxSynchronize();
    cuCtxPopCurrent_v2(nullptr);
  }
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  if (state().primary[device] == nullptr) {
    CUcontext made;
    const CUresult result = cuCtxCreate_v2(&made, 0, device);
    if (result != CUDA_SUCCESS) return result;
    cuCtxPopCurrent_v2(nullptr);
    state().primary[device] = reinterpret_cast<Context*>(made);
    state().primary[device]->primary = true;
  }
  state().primary_references[device]++;
  *out = reinterpret_cast<CUcontext>(state().primary[device]);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  const std::lock_guard<std::mutex> held(state().lock);
  state().primary[device] = nullptr;
  state().used = 0;
  state().memory.clear();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return --state().primary_references[device] == 0 ? cuDevicePrimaryCtxReset_v2(device) : CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = state().primary[device] != nullptr;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = current() != nullptr ? current()->device : 0;
  return current() != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -1;
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  std::unique_lock<std::mutex> held(state().lock);
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::set<Stream*> streams = current()->streams;
  for (Stream* stream : streams) {
    if (current()->streams.count(stream) != 0) wait_for(stream, held);
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
