// Kernels. Guaranteed: counted. Best effort: whole or in slices, each piece through the gate.
#include <cstdlib>
#include <cstring>

#include "events.h"
#include "flight.h"
#include "held.h"
#include "log.h"
#include "programs.h"

namespace shoal::device::opencl {
namespace {

struct Launch {
  cl_command_queue queue;
  cl_kernel kernel;
  cl_uint dimensions;
  const size_t *offset, *global, *local;
  cl_uint waits;
  const cl_event* list;
  cl_event* out;

  cl_int forward(cl_event* event) const {
    return next->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits, list, event);
  }
};

bool slices_allowed() {
  static const bool allowed = [] {
    const char* most = std::getenv("SHOAL_DEVICE_WAYS");
    return most == nullptr || std::strcmp(most, "whole") != 0;
  }();
  return allowed;
}

// A local size where the program gives none. A kernel that demands one must be given it: the driver tells the program.
bool local_size(const Launch& launch, cl_device_id device, size_t local[3]) {
  size_t demanded[3] = {0, 0, 0}, most = 1;
  next->clGetKernelWorkGroupInfo(launch.kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof demanded, demanded, nullptr);
  if (demanded[0] != 0) return false;
  next->clGetKernelWorkGroupInfo(launch.kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, nullptr);
  return choose_local(launch.dimensions, launch.global, most, local);
}

Key key_of(const Kernel& kernel, const Grid& grid) {
  Key key{};
  key.hash = hash_of(kernel);
  for (int d = 0; d < 3; ++d) {
    key.grid[d] = static_cast<uint32_t>(grid.groups[d]);
    key.block[d] = static_cast<uint32_t>(grid.local[d]);
  }
  return key;
}

// One after the other, also on a queue that keeps no order: the last one's event is the kernel's.
cl_int in_slices(const Launch& launch, const Queue& queue, const Grid& grid, cl_kernel kernel, Work work, bool seen, bool* begun) {
  const size_t local[3] = {grid.local[0], grid.local[1], grid.local[2]};
  const uint64_t all = grid.blocks(), size = work.blocks;
  cl_event first = nullptr, before = nullptr, event = nullptr;
  cl_int error = CL_SUCCESS;
  for (uint64_t at = 0; at < all && error == CL_SUCCESS; at += size) {
    const uint64_t count = std::min(size, all - at);
    // See specialise: the first group of the slice and the grid's size are told by the offset.
    const size_t offset[3] = {at, grid.groups[0], grid.groups[1]};
    const size_t global[3] = {count * local[0], local[1], local[2]};
    const bool chained = before != nullptr && !queue.in_order;
    const cl_uint waits = before == nullptr ? launch.waits : chained ? 1 : 0;
    const cl_event* const list = before == nullptr ? launch.list : chained ? &before : nullptr;
    work.first = at;
    work.blocks = count;
    work.measured = count == size && (seen || before != nullptr);  // the last may be shorter
    const uint64_t cost = std::max<uint64_t>(work.cost_ns * count / size, 1);
    Work piece = work;
    piece.cost_ns = cost;
    error = fly(launch.queue, queue.lane, std::move(piece), {}, &event, [&](cl_event* made) {
      return next->clEnqueueNDRangeKernel(launch.queue, kernel, 3, offset, global, local, waits, list, made);
    });
    if (error != CL_SUCCESS) break;
    *begun = true;
    if (before != nullptr && before != first) next->clReleaseEvent(before);
    before = event;
    if (first == nullptr) first = event;
  }
  if (error == CL_SUCCESS && launch.out != nullptr) {
    *launch.out = before;
    next->clRetainEvent(before);
    span(first, before);
  }
  if (before != nullptr && before != first) next->clReleaseEvent(before);
  if (first != nullptr) next->clReleaseEvent(first);
  return error;
}

cl_int gated(const Launch& launch, const Queue& queue, Kernel* kernel, const Users& users, cl_event* out) {
  Work work;
  work.kernel = kernel->name;
  Grid grid;
  size_t chosen[3];
  const size_t* local = launch.local;
  if (local == nullptr && local_size(launch, queue.device, chosen)) local = chosen;
  std::string reason = lay_out(launch.dimensions, launch.offset, launch.global, local, &grid);
  if (reason.empty() && !users.empty()) reason = "it waits for a user event";
  work.key = key_of(*kernel, grid);
  work.of = work.blocks = grid.blocks();

  const bool seen = kernel->launched.exchange(true);  // the first launch may load code: its time would mislead
  uint32_t ways = 1u << SHOAL_WHOLE;
  if (slices_allowed()) ways |= 1u << SHOAL_SLICE;
  ShoalPlan chosen_plan = plan(work.key, ways, work.of, queue.units);
  if (chosen_plan.way == SHOAL_SLICE) {
    const cl_kernel build = reason.empty() ? sliced(kernel, queue.device, grid, &reason) : nullptr;
    bool begun = false;
    if (build != nullptr) {
      Work slice = work;
      slice.way = SHOAL_SLICE;
      slice.blocks = chosen_plan.blocks;
      slice.cost_ns = chosen_plan.cost_ns;
      const cl_int error = in_slices(launch, queue, grid, build, std::move(slice), seen, &begun);
      if (error == CL_SUCCESS || begun) return error;
      reason = "the driver refuses a slice of it";  // the program's own launch tells it why
    }
    fall_back(kernel->name, kNotSliced, reason);
    chosen_plan = plan(work.key, 1u << SHOAL_WHOLE, work.of, queue.units);
  }
  work.cost_ns = chosen_plan.cost_ns;
  work.measured = seen;
  return fly(launch.queue, queue.lane, std::move(work), users, out, [&launch](cl_event* event) { return launch.forward(event); });
}

bool empty_range(const Launch& launch) {
  if (launch.global == nullptr || launch.dimensions < 1 || launch.dimensions > 3) return true;
  for (cl_uint d = 0; d < launch.dimensions; ++d)
    if (launch.global[d] == 0) return true;
  return false;
}

cl_int launch_kernel(const Launch& launch) {
  const auto queue = queues().find(launch.queue);
  const Users users = users_of(launch.queue, launch.waits, launch.list);
  cl_event event = nullptr;
  cl_event* const out = launch.out == nullptr ? nullptr : &event;
  cl_int error;
  const auto kernel = best_effort() ? kernel_of(launch.kernel) : nullptr;
  if (!queue || !queue->lane || empty_range(launch) || (best_effort() && !kernel)) {
    error = launch.forward(out);
  } else if (!best_effort()) {
    Work work;
    if (tracing()) {
      char name[128] = "";
      next->clGetKernelInfo(launch.kernel, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, nullptr);
      work.kernel = name;
    }
    error = fly(launch.queue, queue->lane, std::move(work), users, out, [&launch](cl_event* made) { return launch.forward(made); });
  } else if (in_callback()) {
    fall_back(kernel->name, kNotGated, "a callback launches it");
    error = launch.forward(out);
  } else {
    Launch inner = launch;
    inner.out = out;
    error = gated(inner, *queue, kernel.get(), users, out);
  }
  if (error != CL_SUCCESS) return error;
  if (launch.out != nullptr) *launch.out = event;
  spread(launch.queue, !queue || queue->in_order, event, users);
  return CL_SUCCESS;
}

cl_int CL_API_CALL range(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* offset, const size_t* global,
                         const size_t* local, cl_uint waits, const cl_event* list, cl_event* out) {
  return launch_kernel({queue, kernel, dimensions, offset, global, local, waits, list, out});
}

// A range of one work-item, by definition.
cl_int CL_API_CALL task(cl_command_queue queue, cl_kernel kernel, cl_uint waits, const cl_event* list, cl_event* out) {
  static constexpr size_t kOne = 1;
  return launch_kernel({queue, kernel, 1, nullptr, &kOne, &kOne, waits, list, out});
}

}  // namespace

void hook_launches(cl_icd_dispatch* table) {
  table->clEnqueueNDRangeKernel = range;
  table->clEnqueueTask = task;
}

}  // namespace shoal::device::opencl
