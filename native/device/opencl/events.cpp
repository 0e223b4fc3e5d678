// What a program sees of the events of best-effort commands: one kernel, though it went in pieces.
#include "events.h"

#include <map>

#include "layer.h"

namespace shoal::device::opencl {
namespace {

thread_local uint32_t callbacks = 0;

struct Callback {
  void(CL_CALLBACK* function)(cl_event, cl_int, void*);
  void* data;
};

void CL_CALLBACK call(cl_event event, cl_int status, void* data) {
  auto* callback = static_cast<Callback*>(data);
  ++callbacks;
  callback->function(event, status, callback->data);
  --callbacks;
  delete callback;
}

cl_int CL_API_CALL set_callback(cl_event event, cl_int type, void(CL_CALLBACK* function)(cl_event, cl_int, void*), void* data) {
  if (function == nullptr) return next->clSetEventCallback(event, type, function, data);
  auto* callback = new Callback{function, data};
  const cl_int error = next->clSetEventCallback(event, type, call, callback);
  if (error != CL_SUCCESS) delete callback;
  return error;
}

// The program's events of kernels in pieces: each is its last piece's, and keeps its first piece's.
struct First {
  explicit First(cl_event of) : event(of) { next->clRetainEvent(event); }
  ~First() { next->clReleaseEvent(event); }
  First(const First&) = delete;
  First& operator=(const First&) = delete;
  const cl_event event;
};

Registry<cl_event, First>& spans() {
  static auto* all = new Registry<cl_event, First>;
  return *all;
}

cl_int CL_API_CALL retain(cl_event event) {
  const cl_int error = next->clRetainEvent(event);
  if (error == CL_SUCCESS) spans().retain(event);
  return error;
}

cl_int CL_API_CALL release(cl_event event) {
  const std::shared_ptr<First> first = spans().release(event);
  return next->clReleaseEvent(event);
}

cl_int CL_API_CALL profiling(cl_event event, cl_profiling_info name, size_t size, void* value, size_t* size_ret) {
  cl_command_queue handle = nullptr;
  next->clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof handle, &handle, nullptr);
  const auto queue = queues().find(handle);
  if (queue && !queue->profiled) return CL_PROFILING_INFO_NOT_AVAILABLE;
  const cl_int error = next->clGetEventProfilingInfo(event, name, size, value, size_ret);
  const auto first = spans().find(event);
  if (error != CL_SUCCESS || !first || name == CL_PROFILING_COMMAND_END || name == CL_PROFILING_COMMAND_COMPLETE) return error;
  return next->clGetEventProfilingInfo(first->event, name, size, value, size_ret);
}

}  // namespace

bool in_callback() { return callbacks > 0; }

void span(cl_event first, cl_event last) { spans().add(last, std::make_shared<First>(first)); }

void hook_events(cl_icd_dispatch* table) {
  table->clSetEventCallback = set_callback;
  table->clRetainEvent = retain;
  table->clReleaseEvent = release;
  table->clGetEventProfilingInfo = profiling;
}

}  // namespace shoal::device::opencl
