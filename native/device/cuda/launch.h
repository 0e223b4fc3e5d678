// Launches: what a process of each class does around them.
#pragma once

#include "kernels.h"
#include "streams.h"

namespace shoal::cuda {

// One kernel launch, whichever call asked for it. `stream` is explicit.
struct Launch {
  CUfunction function;
  unsigned grid[3], block[3], shared;
  CUstream stream;
  void** params;
  void** extra;
  const CUlaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
  bool whole = false;  // must not be cut: cooperative, a cluster, or something hangs on its beginning or end
};

// A stretch of work that the driver starts by `start`. Guaranteed: told to the gate, and started at once. Its end is told where
// best-effort work may wait for it.
template <class Function>
CUresult submit(Gate* gate, CUstream stream, Function start) {
  if (!gate->beside() && !any_left()) {
    gate->pass();
    return start();
  }
  Lane lane(gate, stream);
  const uint32_t sequence = gate->submit(lane.number());
  const CUresult result = start();
  if (result == CUDA_SUCCESS) {
    lane.mark_some_time(sequence);
  } else {
    gate->cancel(lane.number(), sequence);
  }
  return result;
}

// Best effort: a piece that takes `cost_ns` waits at the gate, and then starts. One that `passes` does not wait.
template <class Function>
CUresult piece(Gate* gate, Lane& lane, uint64_t cost_ns, Function start, bool passes = false) {
  const uint32_t sequence =
      passes ? gate->pass_piece(lane.number(), cost_ns) : gate->acquire(lane.number(), cost_ns);
  const CUresult result = start(sequence);
  if (result == CUDA_SUCCESS) {
    lane.mark(sequence);
  } else {
    gate->cancel(lane.number(), sequence);
  }
  return result;
}

// The driver's own call, with the program's own words. It outlives the call that it is given to.
class Start {
 public:
  template <class Function>
  Start(const Function& function)  // NOLINT: a reference, no copy
      : function_(&function), call_([](const void* it) { return (*static_cast<const Function*>(it))(); }) {}
  CUresult operator()() const { return call_(function_); }

 private:
  const void* function_;
  CUresult (*call_)(const void*);
};

// Best effort: the kernel in the way that fits the bound.
CUresult launch_best_effort(Gate* gate, const Launch& launch, Start whole);
// How long it is predicted to take as a whole.
uint64_t predict(const Launch& launch);
// Asks the driver for `blocks` blocks of a variant of it, in one dimension.
CUresult launch_variant(CUfunction variant, const Launch& launch, const Kernel& kernel, const Extra& own, uint32_t blocks);
// Asks the driver for it, as it is.
CUresult launch_whole(const Launch& launch);

// Notes how long a best-effort piece took, now and then: events before and after it, read when the device has passed them.
class Timing {
 public:
  static void forget(CUcontext context);  // it has ended
  // Reads what has ended on the lane.
  static void read(Gate* gate, Lane& lane);
  Timing(Lane& lane, bool wanted);
  void begin();
  void end(uint32_t sequence, const device::Key& key, ShoalWay way, uint32_t blocks);

 private:
  Lane& lane_;
  CUevent before_ = nullptr, after_ = nullptr;
};

}  // namespace shoal::cuda
