// Streams as the gates see them: each stream that is launched on has a lane of the process's slot at its device, and what was
// submitted on a lane is marked as done by the device itself, by a write to the page that follows the launch in its stream.
// Guaranteed launches are marked together: each kBatch-th, and what is left when the host looks at the stream (see `mark_left`).
#pragma once

#include <atomic>
#include <mutex>

#include "gate.h"
#include "real.h"

namespace shoal::cuda {

using device::Gate;

// The handle that means the same in every flavour of the API.
inline CUstream explicit_stream(CUstream stream, bool per_thread) {
  return stream != nullptr ? stream : per_thread ? kPerThreadStream : kLegacyStream;
}

// From now on a launch asks whether its stream is being captured.
void expect_capture();
// Is it? Also when the driver refuses to say: the launch then goes to the driver as it is.
bool is_capturing(CUstream stream);

// Of a device, and of the current context's; null: the process has no place there.
Gate* gate_of(CUdevice device);
Gate* gate_here();
// The gate of the stream's device.
Gate* gate_of(CUstream stream);

// The gate when a launch on this stream is its business, else null: no gate, or the stream is being captured.
inline Gate* gate_for(CUstream stream) {
  if (Gate::get() == nullptr) return nullptr;
  Gate* gate = gate_of(stream);
  return gate != nullptr && !is_capturing(stream) ? gate : nullptr;
}

// The host looks at a stream, or at all of the current context: guaranteed launches there whose end is not marked get a mark.
extern std::atomic<uint32_t> left_unmarked;  // lanes that have such
void mark_left_on(CUstream stream);
void mark_left_everywhere();
inline bool any_left() { return left_unmarked.load(std::memory_order_relaxed) != 0; }
inline void mark_left(CUstream stream) {
  if (any_left()) mark_left_on(stream);
}
inline void mark_all_left() {
  if (any_left()) mark_left_everywhere();
}

// While one lives the thread may call what would break another thread's capture.
class Relaxed {
 public:
  Relaxed();
  ~Relaxed();
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  int mode_ = kCaptureRelaxed;
  bool changed_ = false;
};

// What guards a lane of a gate.
std::mutex& lane_lock(uint32_t gate, uint32_t lane);

// Holds the lane of a stream: as long as one lives, nothing else is submitted there.
class Lane {
 public:
  Lane(Gate* gate, CUstream stream);
  uint32_t number() const { return number_; }
  uint32_t index() const { return gate_->number() * device::kLanes + number_; }  // among all of the process's lanes
  CUstream stream() const { return stream_; }
  // Lets the device store the sequence number in the page once it has done all that the stream was given so far.
  void mark(uint32_t sequence);
  // The same now or later, together with what follows.
  void mark_some_time(uint32_t sequence);
  void mark_left();

 private:
  bool mark_by_write(CUstream stream, uint32_t sequence);
  bool mark_by_callback(CUstream stream, uint32_t sequence);

  Gate* gate_;
  CUstream stream_;
  uint32_t number_;
  std::unique_lock<std::mutex> held_;
};

}  // namespace shoal::cuda
