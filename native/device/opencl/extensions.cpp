// Calls that programs get by name. Command buffers go whole; of other calls that launch or allocate it is said once that
// they are not gated, or not counted.
#include <CL/cl_ext.h>

#include <cstring>

#include "flight.h"
#include "held.h"
#include "log.h"

namespace shoal::device::opencl {
namespace {

clEnqueueCommandBufferKHR_fn enqueue_buffer = nullptr;

cl_int CL_API_CALL command_buffer(cl_uint count, cl_command_queue* on, cl_command_buffer_khr buffer, cl_uint waits,
                                  const cl_event* list, cl_event* out) {
  static constexpr char kName[] = "clEnqueueCommandBufferKHR";
  // Which queues it was recorded for only the driver knows: it is counted on the lane of all that keep no order.
  static auto* lane = new std::shared_ptr<Lane>(std::make_shared<Lane>(false));
  const cl_command_queue queue = count > 0 ? on[0] : nullptr;
  const Users users = users_of(queue, waits, list);
  Work work;
  work.kernel = kName;
  if (best_effort()) {
    fall_back(kName, kNotSliced, "command buffers go whole");
    work.key.hash = hash_bytes(kName, sizeof kName, 0);
    work.cost_ns = plan(work.key, 1u << SHOAL_WHOLE, 1, 0).cost_ns;
    work.measured = true;
  }
  cl_event event = nullptr;
  const cl_int error = fly(queue, *lane, std::move(work), users, out == nullptr ? nullptr : &event,
                           [=](cl_event* made) { return enqueue_buffer(count, on, buffer, waits, list, made); });
  if (error != CL_SUCCESS) return error;
  if (out != nullptr) *out = event;
  spread(queue, true, event, users);
  return CL_SUCCESS;
}

bool contains(const char* name, const char* part) { return std::strstr(name, part) != nullptr; }

void* instead(const char* name, void* real) {
  if (real == nullptr || name == nullptr) return real;
  if (std::strcmp(name, "clEnqueueCommandBufferKHR") == 0) {
    enqueue_buffer = reinterpret_cast<clEnqueueCommandBufferKHR_fn>(real);
    return reinterpret_cast<void*>(command_buffer);
  }
  if (contains(name, "clEnqueue") || contains(name, "clCreateCommandQueue")) fall_back(name, kNotGated, "it is of an extension");
  if (contains(name, "MemAlloc") || contains(name, "SVMAlloc")) fall_back(name, kNotCounted, "it is of an extension");
  return real;
}

void* CL_API_CALL address_for(cl_platform_id platform, const char* name) {
  return instead(name, next->clGetExtensionFunctionAddressForPlatform(platform, name));
}

void* CL_API_CALL address(const char* name) { return instead(name, next->clGetExtensionFunctionAddress(name)); }

}  // namespace

void hook_extensions(cl_icd_dispatch* table) {
  table->clGetExtensionFunctionAddressForPlatform = address_for;
  table->clGetExtensionFunctionAddress = address;
}

}  // namespace shoal::device::opencl
