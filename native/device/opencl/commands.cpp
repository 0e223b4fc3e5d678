// Every command but kernels. What counts, and why:
//
//   device work   copies and fills within the device: drivers do them by kernels. Guaranteed: counted. Best effort: gated,
//                 whole.
//   transfers     reads, writes, maps, unmaps, migrations: a copy engine moves them, beside kernels. Guaranteed: counted,
//                 since a request's kernels follow its input. Best effort: not gated.
//   nothing       native kernels (on the host), freeing of shared memory: the device is not used.
//   marks         markers and barriers: nothing again, but without a list they wait for all that is on their queue.
//
// All of them are followed as to which user events they wait for.
#include <tuple>

#include "flight.h"
#include "held.h"

namespace shoal::device::opencl {
namespace {

enum Kind { kDeviceWork, kTransfer, kNothing, kMark };

cl_int command(const char* name, Kind kind, bool blocks_queue, cl_command_queue handle, cl_uint count, const cl_event* list,
               cl_event* out, const Forward& forward) {
  const auto queue = queues().find(handle);
  const Users users = users_of(handle, count, list, kind == kMark && count == 0);
  const bool counted = queue && (kind == kDeviceWork || (kind == kTransfer && !best_effort()));
  cl_event event = nullptr;
  cl_int error;
  if (counted) {
    Work work;
    work.kernel = name;
    if (best_effort()) {
      work.key.hash = hash_bytes(name, std::char_traits<char>::length(name), 0);
      work.cost_ns = plan(work.key, 1u << SHOAL_WHOLE, 1, queue->units).cost_ns;
      work.measured = true;
    }
    error = fly(handle, queue->lane, std::move(work), users, out == nullptr ? nullptr : &event, forward);
  } else {
    const bool needed = out != nullptr;
    error = forward(needed ? &event : nullptr);
    if (error == CL_SUCCESS) next->clFlush(handle);  // kernels on other queues may wait for it at the gate
  }
  if (error != CL_SUCCESS) return error;
  if (out != nullptr) *out = event;
  spread(handle, blocks_queue || !queue || queue->in_order, event, users);
  return CL_SUCCESS;
}

// A call whose last arguments are the wait list and the event.
template <auto Entry, const auto& Name, Kind kind, bool blocks_queue = false>
struct Hook;

template <typename... Arguments, cl_int(CL_API_CALL* cl_icd_dispatch::*Entry)(Arguments...), const auto& Name, Kind kind,
          bool blocks_queue>
struct Hook<Entry, Name, kind, blocks_queue> {
  static cl_int CL_API_CALL call(Arguments... arguments) {
    constexpr size_t last = sizeof...(Arguments) - 1;
    auto all = std::make_tuple(arguments...);
    return command(Name, kind, blocks_queue, std::get<0>(all), std::get<last - 2>(all), std::get<last - 1>(all),
                   std::get<last>(all), [&all](cl_event* event) {
                     std::get<last>(all) = event;
                     return std::apply(next->*Entry, all);
                   });
  }
};

// A map: it returns an address, and its last argument is the error.
template <typename... Arguments, void*(CL_API_CALL* cl_icd_dispatch::*Entry)(Arguments...), const auto& Name, Kind kind,
          bool blocks_queue>
struct Hook<Entry, Name, kind, blocks_queue> {
  static void* CL_API_CALL call(Arguments... arguments) {
    constexpr size_t last = sizeof...(Arguments) - 1;
    auto all = std::make_tuple(arguments...);
    cl_int* const program_error = std::get<last>(all);
    void* address = nullptr;
    const cl_int error = command(Name, kind, blocks_queue, std::get<0>(all), std::get<last - 3>(all), std::get<last - 2>(all),
                                 std::get<last - 1>(all), [&all, &address](cl_event* event) {
                                   cl_int said = CL_SUCCESS;
                                   std::get<last - 1>(all) = event;
                                   std::get<last>(all) = &said;
                                   address = std::apply(next->*Entry, all);
                                   return said;
                                 });
    if (program_error != nullptr) *program_error = error;
    return address;
  }
};

// Calls of OpenCL 1.0 with other arguments.
cl_int CL_API_CALL marker(cl_command_queue queue, cl_event* out) {
  return command("marker", kMark, false, queue, 0, nullptr, out, [queue](cl_event* event) { return next->clEnqueueMarker(queue, event); });
}

cl_int CL_API_CALL barrier(cl_command_queue queue) {
  return command("barrier", kMark, true, queue, 0, nullptr, nullptr, [queue](cl_event*) { return next->clEnqueueBarrier(queue); });
}

cl_int CL_API_CALL wait_for_events(cl_command_queue queue, cl_uint count, const cl_event* list) {
  return command("wait", kMark, true, queue, count, list, nullptr,
                 [=](cl_event*) { return next->clEnqueueWaitForEvents(queue, count, list); });
}

}  // namespace

#define SHOAL_HOOK(name, ...)                                                      \
  do {                                                                             \
    static constexpr char kName[] = #name;                                         \
    table->name = Hook<&cl_icd_dispatch::name, kName, __VA_ARGS__>::call; \
  } while (false)

void hook_commands(cl_icd_dispatch* table) {
  SHOAL_HOOK(clEnqueueCopyBuffer, kDeviceWork);
  SHOAL_HOOK(clEnqueueCopyBufferRect, kDeviceWork);
  SHOAL_HOOK(clEnqueueCopyImage, kDeviceWork);
  SHOAL_HOOK(clEnqueueCopyImageToBuffer, kDeviceWork);
  SHOAL_HOOK(clEnqueueCopyBufferToImage, kDeviceWork);
  SHOAL_HOOK(clEnqueueFillBuffer, kDeviceWork);
  SHOAL_HOOK(clEnqueueFillImage, kDeviceWork);
  SHOAL_HOOK(clEnqueueSVMMemcpy, kDeviceWork);
  SHOAL_HOOK(clEnqueueSVMMemFill, kDeviceWork);
  SHOAL_HOOK(clEnqueueReadBuffer, kTransfer);
  SHOAL_HOOK(clEnqueueReadBufferRect, kTransfer);
  SHOAL_HOOK(clEnqueueWriteBuffer, kTransfer);
  SHOAL_HOOK(clEnqueueWriteBufferRect, kTransfer);
  SHOAL_HOOK(clEnqueueReadImage, kTransfer);
  SHOAL_HOOK(clEnqueueWriteImage, kTransfer);
  SHOAL_HOOK(clEnqueueMapBuffer, kTransfer);
  SHOAL_HOOK(clEnqueueMapImage, kTransfer);
  SHOAL_HOOK(clEnqueueUnmapMemObject, kTransfer);
  SHOAL_HOOK(clEnqueueMigrateMemObjects, kTransfer);
  SHOAL_HOOK(clEnqueueSVMMap, kTransfer);
  SHOAL_HOOK(clEnqueueSVMUnmap, kTransfer);
  SHOAL_HOOK(clEnqueueSVMMigrateMem, kTransfer);
  SHOAL_HOOK(clEnqueueSVMFree, kNothing);
  SHOAL_HOOK(clEnqueueNativeKernel, kNothing);
  SHOAL_HOOK(clEnqueueMarkerWithWaitList, kMark);
  SHOAL_HOOK(clEnqueueBarrierWithWaitList, kMark, true);
  table->clEnqueueMarker = marker;
  table->clEnqueueBarrier = barrier;
  table->clEnqueueWaitForEvents = wait_for_events;
}

}  // namespace shoal::device::opencl
