// Allocations are counted before they are made: one over the quota gets the driver's own "out of memory", which programs know
// how to handle. What a program is told of the device's memory agrees with that. Not counted: arrays, textures, what the driver
// keeps for itself, and memory imported from another process (it counts there).
#include "memory.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "streams.h"

namespace shoal::cuda {
namespace {

struct Block {
  size_t size;
  CUcontext context;
  Gate* gate;  // of its device
};

// Physical memory of cuMemCreate lives until it is neither held nor mapped.
struct Physical {
  size_t size;
  Gate* gate;
  int held, mapped;
};

struct State {
  std::mutex lock;
  std::unordered_map<CUdeviceptr, Block> blocks;
  std::unordered_map<CUmemHandle, Physical> physical;
  std::map<CUdeviceptr, CUmemHandle> mappings;
};

State* state = new State;
[[maybe_unused]] const bool watched = pthread_atfork(nullptr, nullptr, [] { state = new State; }) == 0;

CUcontext current_context() {
  CUcontext context = nullptr;
  if (real.cuCtxGetCurrent != nullptr) real.cuCtxGetCurrent(&context);
  return context;
}

// The device gives out memory by pages of 2 MiB; small allocations share one.
size_t whole_pages(size_t size) {
  constexpr size_t kPage = 2 << 20;
  return size < kPage / 2 || size > SIZE_MAX - kPage ? size : (size + kPage - 1) / kPage * kPage;
}

// Makes an allocation of `size` bytes by `make`; `size_made` says how large it became.
template <class Make, class SizeMade>
CUresult allocate(CUdeviceptr* out, size_t size, Make make, SizeMade size_made) {
  Gate* gate = gate_here();
  if (gate == nullptr) return make();
  size = whole_pages(size);
  if (!gate->allocate(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = make();
  if (result != CUDA_SUCCESS || out == nullptr) {
    gate->deallocate(size);
    return result;
  }
  const size_t made = whole_pages(size_made());
  const bool larger = made > size && gate->allocate(made - size);
  const std::lock_guard<std::mutex> held(state->lock);
  state->blocks[*out] = {larger ? made : size, current_context(), gate};
  return result;
}

template <class Make>
CUresult allocate(CUdeviceptr* out, size_t size, Make make) {
  return allocate(out, size, make, [size] { return size; });
}

// Before the driver frees it: afterwards another thread may get the same address.
Block forget(CUdeviceptr at) {
  const std::lock_guard<std::mutex> held(state->lock);
  const auto found = state->blocks.find(at);
  if (found == state->blocks.end()) return {0, nullptr, nullptr};
  const Block block = found->second;
  state->blocks.erase(found);
  return block;
}

template <class Free>
CUresult release(CUdeviceptr at, Free free) {
  if (Gate::get() == nullptr) return free();
  const Block block = forget(at);
  const CUresult result = free();
  if (block.gate == nullptr) return result;
  if (result == CUDA_SUCCESS) {
    block.gate->deallocate(block.size);
  } else {
    const std::lock_guard<std::mutex> held(state->lock);
    state->blocks[at] = block;
  }
  return result;
}

// With the lock held: a reference to physical memory is gone.
void settle(CUmemHandle handle) {
  const auto found = state->physical.find(handle);
  if (found == state->physical.end() || found->second.held > 0 || found->second.mapped > 0) return;
  found->second.gate->deallocate(found->second.size);
  state->physical.erase(found);
}

}  // namespace

void forget_memory(CUcontext context) {
  const std::lock_guard<std::mutex> held(state->lock);
  for (auto at = state->blocks.begin(); at != state->blocks.end();) {
    if (at->second.context != context) {
      ++at;
      continue;
    }
    at->second.gate->deallocate(at->second.size);
    at = state->blocks.erase(at);
  }
}

}  // namespace shoal::cuda

using namespace shoal::cuda;

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const CUresult result = forward(real.cuMemGetInfo_v2, free, total);
  uint64_t own_free = 0, own_total = 0;
  const Gate* gate = gate_here();
  if (result != CUDA_SUCCESS || gate == nullptr || !gate->memory_limit(&own_free, &own_total)) return result;
  if (free != nullptr) *free = std::min<size_t>(*free, own_free);
  if (total != nullptr) *total = std::min<size_t>(*total, own_total);
  return result;
}

CUresult cuDeviceTotalMem_v2(size_t* total, CUdevice device) {
  const CUresult result = forward(real.cuDeviceTotalMem_v2, total, device);
  uint64_t own_free = 0, own_total = 0;
  const Gate* gate = gate_of(device);
  if (result == CUDA_SUCCESS && gate != nullptr && gate->memory_limit(&own_free, &own_total)) {
    *total = std::min<size_t>(*total, own_total);
  }
  return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t size) {
  return allocate(out, size, [=] { return forward(real.cuMemAlloc_v2, out, size); });
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned element) {
  return allocate(
      out, width * height, [=] { return forward(real.cuMemAllocPitch_v2, out, pitch, width, height, element); },
      [=] { return *pitch * height; });
}
CUresult cuMemAllocManaged(CUdeviceptr* out, size_t size, unsigned flags) {
  return allocate(out, size, [=] { return forward(real.cuMemAllocManaged, out, size, flags); });
}
CUresult cuMemFree_v2(CUdeviceptr at) {
  return release(at, [=] { return forward(real.cuMemFree_v2, at); });
}

#define FLAVOUR(suffix)                                                                                              \
  CUresult cuMemAllocAsync##suffix(CUdeviceptr* out, size_t size, CUstream stream) {                                 \
    return allocate(out, size, [=] { return forward(real.cuMemAllocAsync##suffix, out, size, stream); });            \
  }                                                                                                                  \
  CUresult cuMemAllocFromPoolAsync##suffix(CUdeviceptr* out, size_t size, CUmemoryPool pool, CUstream stream) {      \
    return allocate(out, size, [=] { return forward(real.cuMemAllocFromPoolAsync##suffix, out, size, pool, stream); }); \
  }                                                                                                                  \
  CUresult cuMemFreeAsync##suffix(CUdeviceptr at, CUstream stream) {                                                 \
    return release(at, [=] { return forward(real.cuMemFreeAsync##suffix, at, stream); });                            \
  }
FLAVOUR()
FLAVOUR(_ptsz)

CUresult cuMemCreate(CUmemHandle* out, size_t size, const void* properties, unsigned long long flags) {
  // In CUmemAllocationProp the location stands third, its kind and then its device: memory of the host does not count.
  const int* const words = static_cast<const int*>(properties);
  const bool on_device = properties == nullptr || words[2] == 1;
  Gate* gate = !on_device ? nullptr : properties == nullptr ? gate_here() : gate_of(CUdevice{words[3]});
  if (gate != nullptr && !gate->allocate(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = forward(real.cuMemCreate, out, size, properties, flags);
  if (gate == nullptr) return result;
  if (result != CUDA_SUCCESS) {
    gate->deallocate(size);
    return result;
  }
  const std::lock_guard<std::mutex> held(state->lock);
  state->physical[*out] = {size, gate, 1, 0};
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemHandle* out, void* address) {
  const CUresult result = forward(real.cuMemRetainAllocationHandle, out, address);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard<std::mutex> held(state->lock);
  const auto found = state->physical.find(*out);
  if (found != state->physical.end()) found->second.held++;
  return result;
}

CUresult cuMemRelease(CUmemHandle handle) {
  // Under the lock: once the driver has let go of it, another thread's cuMemCreate may get the same handle.
  const std::lock_guard<std::mutex> held(state->lock);
  const CUresult result = forward(real.cuMemRelease, handle);
  if (result != CUDA_SUCCESS) return result;
  const auto found = state->physical.find(handle);
  if (found != state->physical.end()) found->second.held--;
  settle(handle);
  return result;
}

CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemHandle handle, unsigned long long flags) {
  const CUresult result = forward(real.cuMemMap, at, size, offset, handle, flags);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard<std::mutex> held(state->lock);
  const auto found = state->physical.find(handle);
  if (found == state->physical.end()) return result;
  found->second.mapped++;
  state->mappings[at] = handle;
  return result;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t size) {
  const CUresult result = forward(real.cuMemUnmap, at, size);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard<std::mutex> held(state->lock);
  for (auto one = state->mappings.lower_bound(at); one != state->mappings.end() && one->first < at + size;) {
    const CUmemHandle handle = one->second;
    one = state->mappings.erase(one);
    const auto found = state->physical.find(handle);
    if (found != state->physical.end()) found->second.mapped--;
    settle(handle);
  }
  return result;
}
