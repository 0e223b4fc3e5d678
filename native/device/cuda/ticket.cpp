#include "ticket.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "../../host/clock.h"

namespace shoal::cuda {
namespace {

constexpr uint64_t kSettleNs = 100'000'000;  // how long what was given to the stream before may take
constexpr uint64_t kWatchNs = 2'000'000'000;   // how long a kernel is watched
constexpr uint64_t kLookNs = 10'000;         // between two looks at the page
constexpr size_t kWords = 2;                 // of the control block before the claims: stop, next

struct Control {
  CUcontext context;
  CUdeviceptr address;
  size_t blocks;
  CUstream stream;  // of the shim's own: it tells the kernel to stop while the program's stream is busy
  CUevent began, ended;
};

struct State {
  std::mutex lock;
  std::vector<Control> spare;
};

State* state = new State;
[[maybe_unused]] const bool watched = pthread_atfork(nullptr, nullptr, [] { state = new State; }) == 0;

void look_later() {
  const timespec pause{0, static_cast<long>(kLookNs)};
  nanosleep(&pause, nullptr);
}

// A control block with room for the claims of so many blocks, in the current context. Not counted against the quota.
bool take(size_t blocks, Control* out) {
  CUcontext context = nullptr;
  if (forward(real.cuCtxGetCurrent, &context) != CUDA_SUCCESS) return false;
  const std::lock_guard<std::mutex> held(state->lock);
  for (size_t i = 0; i < state->spare.size(); i++) {
    if (state->spare[i].context != context || state->spare[i].blocks < blocks) continue;
    if (forward(real.cuEventQuery, state->spare[i].ended) != CUDA_SUCCESS) continue;  // its kernel was left alone
    *out = state->spare[i];
    state->spare.erase(state->spare.begin() + static_cast<ptrdiff_t>(i));
    return true;
  }
  const size_t room = std::max<size_t>(blocks, 4096) * 2;
  Control made{context, 0, room, nullptr, nullptr, nullptr};
  int least = 0, greatest = 0;
  forward(real.cuCtxGetStreamPriorityRange, &least, &greatest);
  if (forward(real.cuMemAlloc_v2, &made.address, (kWords + room) * sizeof(uint32_t)) != CUDA_SUCCESS) return false;
  if (forward(real.cuStreamCreateWithPriority, &made.stream, kStreamNonBlocking, greatest) != CUDA_SUCCESS ||
      forward(real.cuEventCreate, &made.began, kEventDefault) != CUDA_SUCCESS ||
      forward(real.cuEventCreate, &made.ended, kEventDefault) != CUDA_SUCCESS) {
    forward(real.cuMemFree_v2, made.address);
    return false;
  }
  *out = made;
  return true;
}

void give_back(const Control& control) {
  const std::lock_guard<std::mutex> held(state->lock);
  state->spare.push_back(control);
}

// Waits for what the stream was given before: a program may let it wait for something that it does itself, later.
bool settles(CUstream stream) {
  for (const uint64_t began = now_ns(); now_ns() - began < kSettleNs; look_later()) {
    if (forward(real.cuStreamQuery, stream) == CUDA_SUCCESS) return true;
  }
  return false;
}

CUresult stop(const Control& control) {
  const CUresult written = forward(real.cuStreamWriteValue32_v2, control.stream, control.address, 1u, 0u);
  return written == CUDA_SUCCESS ? written
                                 : forward(real.cuMemsetD32Async, control.address, 1u, size_t{1}, control.stream);
}

bool read_next(const Control& control, uint32_t* next) {
  return forward(real.cuMemcpyDtoHAsync_v2, static_cast<void*>(next), control.address + sizeof(uint32_t), sizeof *next,
                 control.stream) == CUDA_SUCCESS &&
         forward(real.cuStreamSynchronize, control.stream) == CUDA_SUCCESS;
}

// It ran to its end. Of a kernel that was never seen whole that is the best guess for it, too.
void note_whole(const Control& control, const device::Key& key, uint32_t blocks, bool known_whole) {
  float ms = 0;
  auto* known = profiles();
  if (known == nullptr || forward(real.cuEventElapsedTime, &ms, control.began, control.ended) != CUDA_SUCCESS) return;
  const auto took = static_cast<uint64_t>(ms * 1e6f) + 1;
  known->note(key, SHOAL_TICKET, blocks, took);
  if (!known_whole) known->note(key, SHOAL_WHOLE, blocks, took);
}

// Until the kernel has ended, or runs for too long. How long it ran on after it was told to stop; 0: it was not. The gate is
// told how long it ran beyond what it cost there.
uint64_t watch(Gate* gate, const Control& control, uint64_t cost) {
  uint64_t stopped = 0;
  const uint64_t began = now_ns();
  while (forward(real.cuEventQuery, control.ended) == CUDA_ERROR_NOT_READY) {
    if (stopped == 0 && now_ns() - began > kWatchNs) break;
    if (stopped == 0 && gate->wanted() && stop(control) == CUDA_SUCCESS) stopped = now_ns();
    look_later();
  }
  const uint64_t ran = now_ns() - began;
  if (ran > cost) gate->charge(ran - cost);
  return stopped == 0 ? 0 : std::max<uint64_t>(now_ns() - stopped, 1);
}

}  // namespace

void forget_tickets(CUcontext context) {
  const std::lock_guard<std::mutex> held(state->lock);
  auto& spare = state->spare;
  spare.erase(std::remove_if(spare.begin(), spare.end(), [=](const Control& one) { return one.context == context; }),
              spare.end());
}

bool launch_by_ticket(Gate* gate, Lane& lane, const Launch& launch, const Kernel& kernel, const device::Key& key,
                      const ShoalPlan& plan, CUresult* result) {
  const Relaxed relaxed;
  Control control;
  if (!settles(lane.stream()) || !take(plan.blocks, &control)) return false;
  const Extra own{{launch.grid[0], launch.grid[1], launch.grid[2]}, 0, control.address, 0};
  if (forward(real.cuMemsetD32Async, control.address, 0u, kWords, lane.stream()) != CUDA_SUCCESS) {
    give_back(control);
    return false;
  }
  auto* known = profiles();
  const bool known_whole = known == nullptr || known->look(key).whole_ns != 0;
  for (uint32_t next = 0; next < plan.blocks;) {
    gate->count_part();
    *result = piece(gate, lane, plan.cost_ns, [&](uint32_t) {
      forward(real.cuEventRecord, control.began, lane.stream());
      const CUresult launched = launch_variant(kernel.ticket, launch, kernel, own, plan.blocks - next);
      return launched == CUDA_SUCCESS ? forward(real.cuEventRecord, control.ended, lane.stream()) : launched;
    });
    if (*result != CUDA_SUCCESS) break;
    const uint64_t after = watch(gate, control, plan.cost_ns);
    if (after == 0) {
      if (next == 0) note_whole(control, key, plan.blocks, known_whole);
      break;
    }
    if (known != nullptr) known->note(key, SHOAL_TICKET, 0, after);
    if (!read_next(control, &next)) break;
    forward(real.cuMemsetD32Async, control.address, 0u, size_t{1}, lane.stream());
  }
  give_back(control);
  return true;
}

}  // namespace shoal::cuda
