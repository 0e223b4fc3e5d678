// Memory on the device: counted against the quota, and told as if the device had no more.
//
// Buffers, images, pipes and shared memory count with their size from creation to the last release, on the device or not yet:
// drivers move them when they like. Parts of a buffer and images in one count nothing.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "layer.h"
#include "target.h"

namespace shoal::device::opencl {
namespace {

bool take(size_t bytes) {
  Gate* const at = gate();
  return at == nullptr || at->allocate(bytes);
}

void give(size_t bytes) {
  if (Gate* const at = gate()) at->deallocate(bytes);
}

cl_mem refuse(cl_int* error) {
  if (error != nullptr) *error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return nullptr;
}

void CL_CALLBACK freed(cl_mem, void* bytes) { give(reinterpret_cast<size_t>(bytes)); }

// Given back when the driver lets go of it: after the program's last release and the last command that uses it.
cl_mem counted(cl_mem made, size_t bytes) {
  if (made == nullptr || next->clSetMemObjectDestructorCallback(made, freed, reinterpret_cast<void*>(bytes)) != CL_SUCCESS)
    give(bytes);
  return made;
}

template <auto Entry>
struct Buffer;
template <typename... Arguments, cl_mem(CL_API_CALL* cl_icd_dispatch::*Entry)(Arguments...)>
struct Buffer<Entry> {
  template <size_t size_at, size_t error_at>
  static cl_mem CL_API_CALL call(Arguments... arguments) {
    const auto all = std::make_tuple(arguments...);
    const size_t bytes = std::get<size_at>(all);
    if (!take(bytes)) return refuse(std::get<error_at>(all));
    return counted((next->*Entry)(arguments...), bytes);
  }
};

// How large an image or a pipe is only the driver knows.
template <auto Entry>
struct Other;
template <typename... Arguments, cl_mem(CL_API_CALL* cl_icd_dispatch::*Entry)(Arguments...)>
struct Other<Entry> {
  static cl_mem CL_API_CALL call(Arguments... arguments) {
    const cl_mem made = (next->*Entry)(arguments...);
    if (made == nullptr) return made;
    cl_mem whole = nullptr;
    size_t bytes = 0;
    next->clGetMemObjectInfo(made, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, nullptr);
    next->clGetMemObjectInfo(made, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr);
    if (whole != nullptr) return made;
    if (take(bytes)) return counted(made, bytes);
    next->clReleaseMemObject(made);
    return refuse(std::get<sizeof...(Arguments) - 1>(std::make_tuple(arguments...)));
  }
};

struct Shared {
  std::mutex lock;
  std::unordered_map<const void*, size_t> bytes;
};

Shared& shared() {
  static auto* all = new Shared;
  return *all;
}

void give_shared(const void* address) {
  size_t bytes = 0;
  {
    const std::lock_guard<std::mutex> guard(shared().lock);
    const auto at = shared().bytes.find(address);
    if (at == shared().bytes.end()) return;
    bytes = at->second;
    shared().bytes.erase(at);
  }
  give(bytes);
}

void* CL_API_CALL allocate_shared(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
  if (!take(size)) return nullptr;
  void* const made = next->clSVMAlloc(context, flags, size, alignment);
  if (made == nullptr) {
    give(size);
    return made;
  }
  const std::lock_guard<std::mutex> guard(shared().lock);
  shared().bytes[made] = size;
  return made;
}

void CL_API_CALL free_shared(cl_context context, void* address) {
  give_shared(address);
  next->clSVMFree(context, address);
}

cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info name, size_t size, void* value, size_t* size_ret) {
  const cl_int error = next->clGetDeviceInfo(device, name, size, value, size_ret);
  uint64_t left = 0, total = 0;
  Gate* const at = gate();
  const bool bytes = name == CL_DEVICE_GLOBAL_MEM_SIZE || name == CL_DEVICE_MAX_MEM_ALLOC_SIZE;
  if (error != CL_SUCCESS || value == nullptr || !bytes || at == nullptr || !is_target(device)) return error;
  if (at->memory_limit(&left, &total)) *static_cast<cl_ulong*>(value) = std::min<cl_ulong>(*static_cast<cl_ulong*>(value), total);
  return error;
}

}  // namespace

void hook_memory(cl_icd_dispatch* table) {
  table->clCreateBuffer = Buffer<&cl_icd_dispatch::clCreateBuffer>::call<2, 4>;
  table->clCreateBufferWithProperties = Buffer<&cl_icd_dispatch::clCreateBufferWithProperties>::call<3, 5>;
  table->clCreateImage = Other<&cl_icd_dispatch::clCreateImage>::call;
  table->clCreateImageWithProperties = Other<&cl_icd_dispatch::clCreateImageWithProperties>::call;
  table->clCreateImage2D = Other<&cl_icd_dispatch::clCreateImage2D>::call;
  table->clCreateImage3D = Other<&cl_icd_dispatch::clCreateImage3D>::call;
  table->clCreatePipe = Other<&cl_icd_dispatch::clCreatePipe>::call;
  table->clSVMAlloc = allocate_shared;
  table->clSVMFree = free_shared;
  table->clGetDeviceInfo = device_info;
}

}  // namespace shoal::device::opencl
