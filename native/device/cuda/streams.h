// Streams as the gate sees them: each stream that is launched on has a lane of the process's slot, and what was submitted on a
// lane is marked as done by the device itself, by a write to the page that follows the launch in its stream.
#pragma once

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

// The gate when a launch on this stream is its business, else null: no gate, or the stream is being captured.
inline Gate* gate_for(CUstream stream) {
  Gate* gate = Gate::get();
  return gate != nullptr && !is_capturing(stream) ? gate : nullptr;
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

// What guards a lane.
std::mutex& lane_lock(uint32_t lane);

// Holds the lane of a stream: as long as one lives, nothing else is submitted there.
class Lane {
 public:
  Lane(Gate* gate, CUstream stream);
  uint32_t number() const { return number_; }
  CUstream stream() const { return stream_; }
  // Lets the device store the sequence number in the page once it has done all that the stream was given so far.
  void mark(uint32_t sequence);

 private:
  bool mark_by_write(CUstream stream, uint32_t sequence);
  bool mark_by_callback(CUstream stream, uint32_t sequence);

  Gate* gate_;
  CUstream stream_;
  uint32_t number_;
  std::unique_lock<std::mutex> held_;
};

}  // namespace shoal::cuda
