// The gate: what a front end (CUDA shim, OpenCL layer) calls around each launch. One for each device whose page the
// environment names; absent (null) when there is no page, no slot, or anything else is wrong: launches then go straight through.
//
//   SHOAL_DEVICE_PAGE    path of the page; of a process that shares several devices their paths, with colons between
//   SHOAL_DEVICE_CLASS   guaranteed | best-effort
//   SHOAL_DEVICE_WEIGHT  best-effort: from 1 (default 1)
//   SHOAL_DEVICE_MEMORY  bytes the process may allocate on each device; none: no limit
//   SHOAL_DEVICE_NAME    for people
//   SHOAL_DEVICE_PROFILE path of the file that keeps kernel profiles (see profile.h)
//   SHOAL_DEVICE_WAYS    whole | slice | ticket: the most a best-effort kernel may be transformed (default ticket)
//   SHOAL_DEVICE_LOG     a file for messages; none: warnings on stderr, once each
#pragma once

#include <cstdint>

#include "page.h"

namespace shoal::device {

constexpr uint32_t kGates = 16;

class Gate {
 public:
  // Made on first use, again after a fork; never throws. Ask each time (one load): a fork changes the answer. Lanes that
  // were open before a fork are open after it, with nothing pending.
  // That of the first page.
  static Gate* get();
  // That of a device, by its UUID. A single page that is not named by a UUID is that of every device.
  static Gate* of(const char* device);
  static Gate* numbered(uint32_t number);
  static const char* why();  // there is none; "" when there is one
  uint32_t number() const;   // its place among the process's own, from 0

  ShoalClass cls() const;
  Slot* slot() const;

  // A stream's lane. Streams over kLanes - 1 get the last lane, whose launches the front end must finish one by one.
  uint32_t open_lane();
  void close_lane(uint32_t lane);

  // Of one stream, the calls to submit, acquire and cancel and the launch itself are made in order, under a lock of the
  // front end: sequence numbers reach the device in their order.

  // Guaranteed: one launch follows at once. Returns the sequence number that the device (or the front end, when it has
  // seen the end) must store in `done(lane)`. Two relaxed stores and a clock read; no lock, no system call.
  uint32_t submit(uint32_t lane);
  std::atomic<uint32_t>* done(uint32_t lane) const;
  // Is a best-effort tenant on the page? While there is none, a guaranteed launch only passes: it is counted, its time is kept,
  // and its end is told to none. The launches of that time are over for one that comes then; the grace covers the last.
  bool beside() const;
  void pass();

  // Best effort: waits until one piece of `cost_ns` may go (spins 20 us, then sleeps at most as long as the policy says;
  // the device wakes no process), then counts it as submitted. Returns its sequence number. `cost_ns` over the bound: counted.
  // Never waits while `capturing`: the caller forwards launches of a stream that is being captured without asking.
  uint32_t acquire(uint32_t lane, uint64_t cost_ns);
  // The same for a piece that must not wait, because others wait for it: counted as outstanding, and as a collective.
  uint32_t pass_piece(uint32_t lane, uint64_t cost_ns);
  // The piece `sequence` has ended after `took_ns` on the device (0: not measured, its cost counts), and on all lanes but
  // the last all before it too. Stores `done`, for guaranteed launches as well. Also found by itself from `done` at the
  // next acquire.
  void release(uint32_t lane, uint32_t sequence, uint64_t took_ns);
  // A launch that acquire or submit counted and the driver refused.
  void cancel(uint32_t lane, uint32_t sequence);

  // Best effort: pieces ran for so much longer than they cost at the gate, as a kernel by ticket does, which costs what it
  // takes to stop it. It counts for the fair clock.
  void charge(uint64_t more_ns);

  // Best effort, while a piece runs that can be stopped: does guaranteed work want the device?
  bool wanted() const;

  // Best effort: work of its own in another stream is overdue, and may wait for what is launched on this lane.
  bool overdue(uint32_t lane) const;

  // Best effort: it launches one kernel more, which can be launched in parts or not. For people.
  void count_kernel(bool in_parts);
  void count_part();  // and this piece was a part of one

  // The bound that holds now, for shoal_choose.
  uint64_t bound_ns() const;

  // Its process ends: guaranteed launches beside it need no more be told of.
  void retire() const;

  // Memory: false when the quota does not allow `bytes` more. `total` and `free` are what the process should be told.
  bool allocate(uint64_t bytes);
  void deallocate(uint64_t bytes);
  bool memory_limit(uint64_t* free_bytes, uint64_t* total_bytes) const;  // false: no quota, the driver's word stands

  struct State;

 private:
  friend struct Gates;
  explicit Gate(State* state) : state_(state) {}
  State* state_;
};

}  // namespace shoal::device
