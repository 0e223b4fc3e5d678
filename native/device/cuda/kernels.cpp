#include "kernels.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "trace.h"

namespace shoal::cuda {
namespace {

struct Origin {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;    // of a CUkernel,
  CUlibrary fetched = nullptr;    // or of the kernel that a CUfunction is the same as
  const void* image() const {
    return library != nullptr ? static_cast<const void*>(library) : fetched != nullptr ? static_cast<const void*>(fetched) : module;
  }
};

struct State {
  std::shared_mutex lock;
  std::unordered_map<CUfunction, std::shared_ptr<const Kernel>> kernels;
  std::unordered_map<const void*, Origin> origins;  // by handle
  std::unordered_map<const void*, uint64_t> images;
};

State* state = new State;
[[maybe_unused]] const bool watched = pthread_atfork(nullptr, nullptr, [] { state = new State; }) == 0;

// A kernel's handle, told apart: one of a module, or one of a library.
struct Handle {
  CUfunction function;
  CUlibrary library = nullptr;

  CUkernel kernel() const { return reinterpret_cast<CUkernel>(function); }
  std::string name() const {
    const char* text = nullptr;
    const CUresult result =
        library != nullptr ? forward(real.cuKernelGetName, &text, kernel()) : forward(real.cuFuncGetName, &text, function);
    return result == CUDA_SUCCESS && text != nullptr ? text : "";
  }
  CUmodule module() const {
    CUmodule found = nullptr;
    return forward(real.cuFuncGetModule, &found, function) == CUDA_SUCCESS ? found : nullptr;
  }
  Handle beside(const std::string& name) const {
    Handle found{nullptr, library};
    CUkernel other = nullptr;
    if (library != nullptr) {
      if (forward(real.cuLibraryGetKernel, &other, library, name.c_str()) == CUDA_SUCCESS) {
        found.function = reinterpret_cast<CUfunction>(other);
      }
    } else if (CUmodule of = module()) {
      if (forward(real.cuModuleGetFunction, &found.function, of, name.c_str()) != CUDA_SUCCESS) found.function = nullptr;
    }
    return found;
  }
  CUresult param(size_t index, size_t* offset, size_t* size) const {
    return library != nullptr ? forward(real.cuKernelGetParamInfo, kernel(), index, offset, size)
                              : forward(real.cuFuncGetParamInfo, function, index, offset, size);
  }
  int attribute(int which) const {
    int value = 0;
    const CUresult result = library != nullptr ? forward(real.cuKernelGetAttribute, &value, which, kernel(), device())
                                               : forward(real.cuFuncGetAttribute, &value, which, function);
    return result == CUDA_SUCCESS ? value : 0;
  }
  CUresult set(int which, int value) const {
    return library != nullptr ? forward(real.cuKernelSetAttribute, which, value, kernel(), device())
                              : forward(real.cuFuncSetAttribute, function, which, value);
  }
  static CUdevice device() {
    CUdevice current = 0;
    forward(real.cuCtxGetDevice, &current);
    return current;
  }
};

// A variant is used when it takes what the kernel takes and 32 bytes more.
CUfunction variant(const Handle& of, const std::string& name, const Kernel& kernel, size_t* extra_offset) {
  const Handle found = of.beside(name);
  if (found.function == nullptr) return nullptr;
  size_t offset = 0, size = 0;
  for (size_t i = 0; i < kernel.sizes.size(); i++) {
    if (found.param(i, &offset, &size) != CUDA_SUCCESS || size != kernel.sizes[i]) return nullptr;
  }
  if (found.param(kernel.sizes.size(), extra_offset, &size) != CUDA_SUCCESS || size != sizeof(Extra)) return nullptr;
  for (const int which : {kAttrMaxDynamicShared, kAttrCarveout}) {
    const int value = of.attribute(which);
    if (value != found.attribute(which) && found.set(which, value) != CUDA_SUCCESS) return nullptr;
  }
  return found.function;
}

// By its name, plain or mangled.
bool is_collective(const char* name) {
  if (strncmp(name, "_Z", 2) == 0) name += 2 + strspn(name + 2, "0123456789");
  return strncmp(name, "nccl", 4) == 0;
}

std::shared_ptr<const Kernel> look_at(CUfunction function) {
  Handle handle{function};
  auto kernel = std::make_shared<Kernel>();
  uint64_t image = 0;
  {
    const std::shared_lock<std::shared_mutex> held(state->lock);
    const auto origin = state->origins.find(function);
    if (origin == state->origins.end()) {
      device::trace("kernel", "of unknown origin");
      return kernel;
    }
    handle.library = origin->second.library;
    const auto found = state->images.find(origin->second.image());
    if (found != state->images.end()) image = found->second;
  }
  const std::string name = kernel->name = handle.name();
  kernel->collective = is_collective(name.c_str());
  struct {
    uint64_t image;
    int code[5];
  } what{image,
         {handle.attribute(kAttrRegisters), handle.attribute(kAttrSharedBytes), handle.attribute(kAttrLocalBytes),
          handle.attribute(kAttrConstBytes), handle.attribute(kAttrBinaryVersion)}};
  char bytes[sizeof what.image + sizeof what.code];
  memcpy(bytes, &what, sizeof bytes);
  kernel->hash = device::hash_bytes(name.data(), name.size(), device::hash_bytes(bytes, sizeof bytes, 0));
  size_t offset = 0, size = 0;
  for (size_t i = 0;; i++) {
    const CUresult result = handle.param(i, &offset, &size);
    kernel->has_sizes = result == CUDA_ERROR_INVALID_VALUE;  // that was all
    if (result != CUDA_SUCCESS) break;
    kernel->sizes.push_back(size);
  }
  const char* most = getenv("SHOAL_DEVICE_WAYS");
  const bool slices = most == nullptr || strcmp(most, "whole") != 0;
  const bool tickets = most == nullptr || strcmp(most, "ticket") == 0;
  const bool clusters = handle.attribute(kAttrClusterMustBeSet) != 0 || handle.attribute(kAttrClusterWidth) > 1;
  if (kernel->has_sizes && !name.empty() && !clusters && !kernel->collective) {
    if (slices) kernel->slice = variant(handle, name + "__shoal_slice", *kernel, &kernel->extra_offset);
    if (tickets) kernel->ticket = variant(handle, name + "__shoal_ticket", *kernel, &kernel->extra_offset);
  }
  device::trace("kernel", name, kernel->hash, kernel->ways());
  return kernel;
}

}  // namespace

uint32_t Kernel::wave_blocks(uint32_t threads, uint32_t shared) const {
  const uint64_t asked = uint64_t{threads} << 52 | uint64_t{shared & 0xfffff} << 32;
  const uint64_t last = last_wave_.load(std::memory_order_relaxed);
  if ((last & ~uint64_t{UINT32_MAX}) == asked && last != 0) return static_cast<uint32_t>(last);
  int of_one = 0, processors = 0;
  CUdevice device = 0;
  if (forward(real.cuOccupancyMaxActiveBlocksPerMultiprocessor, &of_one, slice, static_cast<int>(threads), size_t{shared}) !=
          CUDA_SUCCESS ||
      forward(real.cuCtxGetDevice, &device) != CUDA_SUCCESS ||
      forward(real.cuDeviceGetAttribute, &processors, kDeviceMultiprocessors, device) != CUDA_SUCCESS) {
    return 0;
  }
  const auto wave = static_cast<uint32_t>(of_one) * static_cast<uint32_t>(processors);
  last_wave_.store(asked | wave, std::memory_order_relaxed);
  return wave;
}

std::shared_ptr<const Kernel> kernel_of(CUfunction function, bool* is_new) {
  {
    const std::shared_lock<std::shared_mutex> held(state->lock);
    const auto found = state->kernels.find(function);
    if (found != state->kernels.end()) return found->second;
  }
  auto kernel = look_at(function);
  const std::unique_lock<std::shared_mutex> held(state->lock);
  const auto [place, made] = state->kernels.emplace(function, std::move(kernel));
  if (is_new != nullptr) *is_new = made;
  return place->second;
}

void forget_kernel(CUfunction function) {
  const std::unique_lock<std::shared_mutex> held(state->lock);
  state->kernels.erase(function);
}

void forget_image(const void* module_or_library) {
  const std::unique_lock<std::shared_mutex> held(state->lock);
  for (auto at = state->origins.begin(); at != state->origins.end();) {
    if (at->second.image() != module_or_library) {
      ++at;
      continue;
    }
    state->kernels.erase(static_cast<CUfunction>(const_cast<void*>(at->first)));
    at = state->origins.erase(at);
  }
  state->images.erase(module_or_library);
}

namespace {

void note(const void* handle, Origin origin) {
  const std::unique_lock<std::shared_mutex> held(state->lock);
  Origin& known = state->origins[handle];
  if (known.image() != origin.image()) state->kernels.erase(static_cast<CUfunction>(const_cast<void*>(handle)));
  known = origin;
}

}  // namespace

void note_kernel(CUkernel kernel, CUlibrary library) { note(kernel, {nullptr, library, nullptr}); }

void note_function(CUfunction function, CUmodule module) { note(function, {module, nullptr, nullptr}); }

void note_function_of(CUfunction function, CUkernel kernel) {
  if (static_cast<const void*>(function) == static_cast<const void*>(kernel)) return;
  CUlibrary library = nullptr;
  {
    const std::shared_lock<std::shared_mutex> held(state->lock);
    const auto found = state->origins.find(kernel);
    if (found == state->origins.end()) return;
    library = found->second.library;
  }
  note(function, {nullptr, nullptr, library});
}

void note_image(const void* module_or_library, uint64_t fingerprint) {
  const std::unique_lock<std::shared_mutex> held(state->lock);
  state->images[module_or_library] = fingerprint;
}

device::Profiles* profiles() {
  static device::Profiles* one = [] {
    if (const char* path = getenv("SHOAL_DEVICE_PROFILE")) {
      if (auto* opened = device::Profiles::open(path)) return opened;
    }
    // For this process alone: no other opens it, and it ends with the process.
    for (const std::string folder : {"/dev/shm", "/tmp"}) {
      const std::string path = folder + "/shoal-profiles-" + std::to_string(getpid());
      unlink(path.c_str());
      auto* opened = device::Profiles::open(path.c_str());
      unlink(path.c_str());
      if (opened != nullptr) return opened;
    }
    return static_cast<device::Profiles*>(nullptr);
  }();
  return one;
}

}  // namespace shoal::cuda
