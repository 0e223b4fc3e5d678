// Modules, launches, copies and memory of the fake driver.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "fake.h"

namespace fake {
namespace {

Kernel* kernel_of(CUfunction function) { return reinterpret_cast<Kernel*>(function); }

CUresult launch(CUfunction function, Dim grid, Dim block, CUstream stream, bool per_thread, void** params, void** extra,
                bool cooperative = false) {
  Kernel* kernel = kernel_of(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (grid.count() == 0 || block.count() == 0 || block.count() > 1024) return CUDA_ERROR_INVALID_VALUE;
  auto node = std::make_shared<Node>();
  node->type = kNodeKernel;
  node->cooperative = cooperative;
  node->launch = {kernel, grid, block, std::vector<char>(kernel->params_size), current() != nullptr ? current()->device : 0};
  if (params != nullptr) {
    for (size_t i = 0; i < kernel->params.size(); i++) {
      memcpy(node->launch.params.data() + kernel->params[i].offset, params[i], kernel->params[i].size);
    }
  } else if (extra != nullptr) {
    const void* from = nullptr;
    size_t size = 0;
    for (; *extra != kParamEnd; extra += 2) {
      if (*extra == kParamBufferPointer) from = extra[1];
      if (*extra == kParamBufferSize) size = *static_cast<size_t*>(extra[1]);
    }
    if (size < kernel->params_size) return CUDA_ERROR_INVALID_VALUE;
    memcpy(node->launch.params.data(), from, kernel->params_size);
  } else if (!kernel->params.empty()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return put(stream, per_thread, node);
}

CUresult launch(const CUlaunchConfig* with, CUfunction function, bool per_thread, void** params, void** extra) {
  bool cooperative = false;
  for (unsigned i = 0; i < with->numAttrs; i++) {
    cooperative |= with->attrs[i].id == kLaunchCooperative && with->attrs[i].value.number != 0;
  }
  return launch(function, {with->gridDimX, with->gridDimY, with->gridDimZ}, {with->blockDimX, with->blockDimY, with->blockDimZ},
                with->hStream, per_thread, params, extra, cooperative);
}

CUresult set(CUdeviceptr target, size_t pitch, unsigned value, unsigned element, size_t width, size_t height, CUstream stream,
             bool per_thread) {
  auto node = std::make_shared<Node>();
  node->type = kNodeMemset;
  node->memset = {target, pitch, value, element, width, height};
  return put(stream, per_thread, node);
}

CUresult move(uintptr_t target, uintptr_t source, size_t size, CUstream stream, bool per_thread) {
  auto node = std::make_shared<Node>();
  node->type = kNodeMemcpy;
  node->copy.srcMemoryType = node->copy.dstMemoryType = 2;
  node->copy.srcDevice = source;
  node->copy.dstDevice = target;
  node->copy.WidthInBytes = size;
  node->copy.Height = node->copy.Depth = 1;
  return put(stream, per_thread, node);
}

// The default stream of the flavour, until all is done.
CUresult and_wait(CUresult result, bool per_thread) {
  return result != CUDA_SUCCESS ? result : (per_thread ? cuStreamSynchronize_ptsz : cuStreamSynchronize)(nullptr);
}

CUresult allocate(CUdeviceptr* out, size_t size) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  State& all = state();
  const std::lock_guard<std::mutex> held(all.lock);
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (all.used + size > memory_total()) return CUDA_ERROR_OUT_OF_MEMORY;
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<uintptr_t>(at);
  all.memory[*out] = size;
  all.used += size;
  return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr at) {
  State& all = state();
  const std::lock_guard<std::mutex> held(all.lock);
  const auto found = all.memory.find(at);
  if (found == all.memory.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(reinterpret_cast<void*>(at), found->second);
  all.used -= found->second;
  all.memory.erase(found);
  return CUDA_SUCCESS;
}

CUresult allocate_async(CUdeviceptr* out, size_t size, CUstream stream, bool per_thread) {
  if (stream_of(stream, per_thread) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return allocate(out, size);
}

CUresult free_async(CUdeviceptr at, CUstream stream, bool per_thread) {
  auto node = std::make_shared<Node>();
  node->type = kNodeHost;
  node->host = [at] { release(at); };
  return put(stream, per_thread, node);
}

CUresult host_function(CUstream stream, bool per_thread, CUhostFn function, void* data) {
  auto node = std::make_shared<Node>();
  node->type = kNodeHost;
  node->host = [function, data] { function(data); };
  return put(stream, per_thread, node);
}

CUresult write_value(CUstream stream, bool per_thread, CUdeviceptr address, uint32_t value) {
  if (without("cuStreamWriteValue32")) return CUDA_ERROR_NOT_SUPPORTED;
  static const int written = getenv("SHOAL_FAKE_WRITES") == nullptr
                                 ? -1
                                 : open(getenv("SHOAL_FAKE_WRITES"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (written >= 0 && ::write(written, ".", 1) != 1) abort();
  auto node = std::make_shared<Node>();
  node->type = kNodeWrite;
  node->host = [address, value] { reinterpret_cast<std::atomic<uint32_t>*>(address)->store(value); };
  return put(stream, per_thread, node);
}

CUresult load(CUmodule* out, const std::string& text) {
  auto module = parse(text);
  if (module == nullptr) return CUDA_ERROR_INVALID_PTX;
  *out = reinterpret_cast<CUmodule>(module.release());
  return CUDA_SUCCESS;
}

// Of PTX; of a fat binary, or the runtime's wrapper of one, here the text behind the header.
std::string text_of(const void* image) {
  struct Wrapper {
    uint32_t magic, version;
    const char* binary;
  } wrapper;
  memcpy(&wrapper, image, sizeof wrapper);
  if (wrapper.magic == 0x466243b1) return wrapper.binary + 16;
  return static_cast<const char*>(image);
}

// The driver does not check which kind a handle is of; asked for the other kind, it reads what is not there.
Kernel* checked(const void* handle, bool of_library) {
  auto* kernel = static_cast<Kernel*>(const_cast<void*>(handle));
  if (kernel->of_library != of_library) abort();
  return kernel;
}
Kernel* checked(CUfunction function) { return checked(function, false); }
Kernel* checked(CUkernel kernel) { return checked(kernel, true); }

CUresult get(Kernel** out, const void* module, const char* name) {
  const auto& kernels = static_cast<const Module*>(module)->kernels;
  const auto found = kernels.find(name);
  if (found == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *out = found->second.get();
  return CUDA_SUCCESS;
}

CUresult param_info(const Kernel* kernel, size_t index, size_t* offset, size_t* size) {
  if (without("cuFuncGetParamInfo")) return CUDA_ERROR_NOT_SUPPORTED;
  if (index >= kernel->params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel->params[index].offset;
  if (size != nullptr) *size = kernel->params[index].size;
  return CUDA_SUCCESS;
}

}  // namespace

bool without(const char* function) {
  const char* list = getenv("SHOAL_FAKE_WITHOUT");
  return list != nullptr && strstr(list, function) != nullptr;
}

}  // namespace fake

using namespace fake;

extern "C" {

CUresult cuModuleLoadData(CUmodule* out, const void* image) { return load(out, text_of(image)); }
CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, int*, void**) { return cuModuleLoadData(out, image); }
CUresult cuModuleLoad(CUmodule* out, const char* path) {
  std::ifstream file(path);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::stringstream text;
  text << file.rdbuf();
  return load(out, text.str());
}
CUresult cuModuleUnload(CUmodule module) {
  delete reinterpret_cast<Module*>(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return get(reinterpret_cast<Kernel**>(out), module, name);
}
CUresult cuLibraryLoadData(CUlibrary* out, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  const CUresult result = cuModuleLoadData(reinterpret_cast<CUmodule*>(out), code);
  if (result == CUDA_SUCCESS) {
    for (const auto& named : reinterpret_cast<Module*>(*out)->kernels) named.second->of_library = true;
  }
  return result;
}
CUresult cuLibraryUnload(CUlibrary library) { return cuModuleUnload(reinterpret_cast<CUmodule>(library)); }
CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  return get(reinterpret_cast<Kernel**>(out), library, name);
}
CUresult cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary library) {
  for (const auto& named : reinterpret_cast<Module*>(library)->kernels) {
    if (count-- == 0) break;
    *out++ = reinterpret_cast<CUkernel>(named.second.get());
  }
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  *out = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetName(const char** out, CUkernel kernel) {
  *out = checked(kernel)->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel kernel) {
  *out = reinterpret_cast<CUlibrary>(reinterpret_cast<Kernel*>(kernel)->module);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetModule(CUmodule* out, CUfunction function) {
  *out = reinterpret_cast<CUmodule>(checked(function)->module);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char** out, CUfunction function) {
  *out = checked(function)->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* out, int attribute, CUfunction function) {
  *out = checked(function)->attributes[attribute];
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  checked(function)->attributes[attribute] = value;
  return CUDA_SUCCESS;
}
CUresult cuKernelGetAttribute(int* out, int attribute, CUkernel kernel, CUdevice) {
  *out = checked(kernel)->attributes[attribute];
  return CUDA_SUCCESS;
}
CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice) {
  checked(kernel)->attributes[attribute] = value;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction, int, size_t) {
  *out = 1;  // the fake device runs one block after the other
  return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  return param_info(checked(function), index, offset, size);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  return param_info(checked(kernel), index, offset, size);
}

#define FLAVOUR(suffix, pt)                                                                                                      \
  CUresult cuLaunchKernel##suffix(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,   \
                                  unsigned, CUstream s, void** params, void** extra) {                                          \
    return launch(f, {gx, gy, gz}, {bx, by, bz}, s, pt, params, extra);                                                         \
  }                                                                                                                              \
  CUresult cuLaunchCooperativeKernel##suffix(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,     \
                                             unsigned bz, unsigned, CUstream s, void** params) {                                \
    return launch(f, {gx, gy, gz}, {bx, by, bz}, s, pt, params, nullptr, true);                                                 \
  }                                                                                                                              \
  CUresult cuLaunchKernelEx##suffix(const CUlaunchConfig* with, CUfunction f, void** params, void** extra) {                    \
    return launch(with, f, pt, params, extra);                                                                                  \
  }                                                                                                                              \
  CUresult cuLaunchHostFunc##suffix(CUstream s, CUhostFn function, void* data) { return host_function(s, pt, function, data); } \
  CUresult cuStreamWriteValue32_v2##suffix(CUstream s, CUdeviceptr at, uint32_t value, unsigned) {                              \
    return write_value(s, pt, at, value);                                                                                       \
  }                                                                                                                              \
  CUresult cuMemAllocAsync##suffix(CUdeviceptr* out, size_t size, CUstream s) { return allocate_async(out, size, s, pt); }      \
  CUresult cuMemAllocFromPoolAsync##suffix(CUdeviceptr* out, size_t size, CUmemoryPool, CUstream s) {                           \
    return allocate_async(out, size, s, pt);                                                                                    \
  }                                                                                                                              \
  CUresult cuMemFreeAsync##suffix(CUdeviceptr at, CUstream s) { return free_async(at, s, pt); }                                 \
  CUresult cuMemcpyAsync##suffix(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) { return move(to, from, n, s, pt); }   \
  CUresult cuMemcpyHtoDAsync_v2##suffix(CUdeviceptr to, const void* from, size_t n, CUstream s) {                               \
    return move(to, reinterpret_cast<uintptr_t>(from), n, s, pt);                                                               \
  }                                                                                                                              \
  CUresult cuMemcpyDtoHAsync_v2##suffix(void* to, CUdeviceptr from, size_t n, CUstream s) {                                     \
    return move(reinterpret_cast<uintptr_t>(to), from, n, s, pt);                                                               \
  }                                                                                                                              \
  CUresult cuMemcpyDtoDAsync_v2##suffix(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {                               \
    return move(to, from, n, s, pt);                                                                                            \
  }                                                                                                                              \
  CUresult cuMemcpy3DAsync_v2##suffix(const CUDA_MEMCPY3D* what, CUstream s) {                                                  \
    auto node = std::make_shared<Node>();                                                                                       \
    node->type = kNodeMemcpy;                                                                                                   \
    node->copy = *what;                                                                                                         \
    return put(s, pt, node);                                                                                                    \
  }                                                                                                                              \
  CUresult cuMemsetD8Async##suffix(CUdeviceptr at, unsigned char v, size_t n, CUstream s) { return set(at, 0, v, 1, n, 1, s, pt); }   \
  CUresult cuMemsetD16Async##suffix(CUdeviceptr at, unsigned short v, size_t n, CUstream s) { return set(at, 0, v, 2, n, 1, s, pt); } \
  CUresult cuMemsetD32Async##suffix(CUdeviceptr at, unsigned v, size_t n, CUstream s) { return set(at, 0, v, 4, n, 1, s, pt); }       \
  CUresult cuMemsetD2D8Async##suffix(CUdeviceptr at, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s) {           \
    return set(at, pitch, v, 1, w, h, s, pt);                                                                                   \
  }                                                                                                                              \
  CUresult cuMemsetD2D16Async##suffix(CUdeviceptr at, size_t pitch, unsigned short v, size_t w, size_t h, CUstream s) {         \
    return set(at, pitch, v, 2, w, h, s, pt);                                                                                   \
  }                                                                                                                              \
  CUresult cuMemsetD2D32Async##suffix(CUdeviceptr at, size_t pitch, unsigned v, size_t w, size_t h, CUstream s) {               \
    return set(at, pitch, v, 4, w, h, s, pt);                                                                                   \
  }
FLAVOUR(, false)
FLAVOUR(_ptsz, true)

#define SYNC_FLAVOUR(suffix, pt)                                                                                                 \
  CUresult cuMemcpy##suffix(CUdeviceptr to, CUdeviceptr from, size_t n) { return and_wait(move(to, from, n, nullptr, pt), pt); } \
  CUresult cuMemcpyHtoD_v2##suffix(CUdeviceptr to, const void* from, size_t n) {                                                 \
    return and_wait(move(to, reinterpret_cast<uintptr_t>(from), n, nullptr, pt), pt);                                            \
  }                                                                                                                              \
  CUresult cuMemcpyDtoH_v2##suffix(void* to, CUdeviceptr from, size_t n) {                                                       \
    return and_wait(move(reinterpret_cast<uintptr_t>(to), from, n, nullptr, pt), pt);                                            \
  }                                                                                                                              \
  CUresult cuMemcpyDtoD_v2##suffix(CUdeviceptr to, CUdeviceptr from, size_t n) {                                                 \
    return and_wait(move(to, from, n, nullptr, pt), pt);                                                                         \
  }                                                                                                                              \
  CUresult cuMemsetD8_v2##suffix(CUdeviceptr at, unsigned char v, size_t n) {                                                    \
    return and_wait(set(at, 0, v, 1, n, 1, nullptr, pt), pt);                                                                    \
  }                                                                                                                              \
  CUresult cuMemsetD16_v2##suffix(CUdeviceptr at, unsigned short v, size_t n) {                                                  \
    return and_wait(set(at, 0, v, 2, n, 1, nullptr, pt), pt);                                                                    \
  }                                                                                                                              \
  CUresult cuMemsetD32_v2##suffix(CUdeviceptr at, unsigned v, size_t n) {                                                        \
    return and_wait(set(at, 0, v, 4, n, 1, nullptr, pt), pt);                                                                    \
  }
SYNC_FLAVOUR(, false)
SYNC_FLAVOUR(_ptds, true)

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const std::lock_guard<std::mutex> held(state().lock);
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *total = memory_total();
  *free = *total - state().used;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t size) {
  const CUresult broken = unsafe_while_capturing();
  return broken != CUDA_SUCCESS ? broken : allocate(out, size);
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned) {
  *pitch = (width + 511) / 512 * 512;
  return allocate(out, *pitch * height);
}
CUresult cuMemAllocManaged(CUdeviceptr* out, size_t size, unsigned) { return allocate(out, size); }
CUresult cuMemFree_v2(CUdeviceptr at) {
  if (at == 0) return CUDA_SUCCESS;
  const CUresult result = cuCtxSynchronize();
  return result != CUDA_SUCCESS ? result : release(at);
}
CUresult cuMemAllocHost_v2(void** out, size_t size) {
  *out = malloc(size);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* at) {
  free(at);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemHandle* out, size_t size, const void*, unsigned long long) {
  State& all = state();
  const std::lock_guard<std::mutex> held(all.lock);
  if (all.used + size > memory_total()) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = 0x100000 + all.next_number++;
  all.handles[*out] = size;
  all.used += size;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemHandle handle) {
  State& all = state();
  const std::lock_guard<std::mutex> held(all.lock);
  const auto found = all.handles.find(handle);
  if (found == all.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  all.used -= found->second;
  all.handles.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemHandle*, void*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t, CUdeviceptr, unsigned long long) {
  void* at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *out = reinterpret_cast<uintptr_t>(at);
  return at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr at, size_t size) {
  munmap(reinterpret_cast<void*>(at), size);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr at, size_t size, size_t, CUmemHandle, unsigned long long) {
  return mprotect(reinterpret_cast<void*>(at), size, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemUnmap(CUdeviceptr at, size_t size) {
  return mprotect(reinterpret_cast<void*>(at), size, PROT_NONE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemHostRegister_v2(void*, size_t, unsigned) {
  if (without("cuMemHostRegister")) return CUDA_ERROR_NOT_SUPPORTED;
  return unsafe_while_capturing();
}
CUresult cuPointerGetAttribute(void* out, int attribute, CUdeviceptr at) {
  const std::lock_guard<std::mutex> held(state().lock);
  auto block = state().memory.upper_bound(at);
  if (attribute != 2 || block == state().memory.begin() || at >= (--block)->first + block->second) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<unsigned*>(out) = 2;
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void*) { return CUDA_SUCCESS; }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* at, unsigned) {
  *out = reinterpret_cast<uintptr_t>(at);
  return CUDA_SUCCESS;
}

}  // extern "C"
