// Command queues: which device, in order or not, and the lane of the page that counts their commands.
#include "layer.h"
#include "target.h"

namespace shoal::device::opencl {
namespace {

void remember(cl_command_queue handle, cl_device_id device, cl_command_queue_properties flags,
              std::vector<cl_queue_properties> asked) {
  auto queue = std::make_shared<Queue>();
  queue->device = device;
  next->clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof queue->units, &queue->units, nullptr);
  queue->in_order = (flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
  queue->profiled = (flags & CL_QUEUE_PROFILING_ENABLE) != 0;
  queue->asked = std::move(asked);
  if (gate() != nullptr) queue->lane = std::make_shared<Lane>(queue->in_order);
  queues().add(handle, std::move(queue));
}

// Best-effort queues tell what pieces took, whether or not the program asked for it.
cl_command_queue_properties with_times(cl_command_queue_properties flags) {
  return best_effort() ? flags | CL_QUEUE_PROFILING_ENABLE : flags;
}

cl_command_queue CL_API_CALL create(cl_context context, cl_device_id device, cl_command_queue_properties flags, cl_int* error) {
  if (!is_target(device)) return next->clCreateCommandQueue(context, device, flags, error);
  const cl_command_queue made = next->clCreateCommandQueue(context, device, with_times(flags), error);
  if (made != nullptr) remember(made, device, flags, {});
  return made;
}

cl_command_queue CL_API_CALL create_with(cl_context context, cl_device_id device, const cl_queue_properties* properties,
                                         cl_int* error) {
  std::vector<cl_queue_properties> asked, given;
  cl_command_queue_properties flags = 0;
  bool has_flags = false;
  for (const cl_queue_properties* at = properties; at != nullptr && *at != 0; at += 2) {
    asked.insert(asked.end(), {at[0], at[1]});
    if (at[0] == CL_QUEUE_PROPERTIES) {
      has_flags = true;
      flags = at[1];
      given.insert(given.end(), {at[0], with_times(flags)});
    } else {
      given.insert(given.end(), {at[0], at[1]});
    }
  }
  // The host cannot enqueue to a device's own queue.
  if (!is_target(device) || (flags & CL_QUEUE_ON_DEVICE) != 0)
    return next->clCreateCommandQueueWithProperties(context, device, properties, error);
  if (!has_flags && with_times(0) != 0) given.insert(given.end(), {CL_QUEUE_PROPERTIES, with_times(0)});
  given.push_back(0);
  if (properties != nullptr) asked.push_back(0);
  const cl_command_queue made =
      next->clCreateCommandQueueWithProperties(context, device, given.size() > 1 ? given.data() : properties, error);
  if (made != nullptr) remember(made, device, flags, std::move(asked));
  return made;
}

cl_int CL_API_CALL retain(cl_command_queue handle) {
  const cl_int error = next->clRetainCommandQueue(handle);
  if (error == CL_SUCCESS) queues().retain(handle);
  return error;
}

cl_int CL_API_CALL release(cl_command_queue handle) {
  queues().release(handle);  // before the driver may give the handle to another queue
  return next->clReleaseCommandQueue(handle);
}

cl_int CL_API_CALL info(cl_command_queue handle, cl_command_queue_info name, size_t size, void* value, size_t* size_ret) {
  const auto queue = queues().find(handle);
  if (queue && name == CL_QUEUE_PROPERTIES && value != nullptr && size >= sizeof(cl_command_queue_properties)) {
    const cl_int error = next->clGetCommandQueueInfo(handle, name, size, value, size_ret);
    if (error == CL_SUCCESS && !queue->profiled)
      *static_cast<cl_command_queue_properties*>(value) &= ~static_cast<cl_command_queue_properties>(CL_QUEUE_PROFILING_ENABLE);
    return error;
  }
  if (queue && name == CL_QUEUE_PROPERTIES_ARRAY) {
    const size_t length = queue->asked.size() * sizeof(cl_queue_properties);
    if (value != nullptr && size < length) return CL_INVALID_VALUE;
    if (value != nullptr) std::copy(queue->asked.begin(), queue->asked.end(), static_cast<cl_queue_properties*>(value));
    if (size_ret != nullptr) *size_ret = length;
    return CL_SUCCESS;
  }
  return next->clGetCommandQueueInfo(handle, name, size, value, size_ret);
}

}  // namespace

void hook_queues(cl_icd_dispatch* table) {
  table->clCreateCommandQueue = create;
  table->clCreateCommandQueueWithProperties = create_with;
  table->clRetainCommandQueue = retain;
  table->clReleaseCommandQueue = release;
  if (best_effort()) table->clGetCommandQueueInfo = info;
}

}  // namespace shoal::device::opencl
