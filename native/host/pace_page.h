// The page through which a daemon steers shoal-pace, mirrored by src/shoal/host/actuators/pace.py. Every field has one
// writer and is stored whole, so neither side ever waits for the other or makes a system call for it.
#pragma once

#include <atomic>
#include <cstdint>

namespace shoal {

constexpr uint32_t kMagic = 0x53484f43;  // "SHOC"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kUnused = 0xffffffff;

enum State : uint32_t {
  kStarting = 0,
  kOff = 1,      // no limit is asked for
  kPacing = 2,
  kIdle = 3,     // a limit is asked for, but nothing runs on the core
  kLapsed = 4,   // the daemon did not renew its lease
  kFailed = 5,   // see `error`
};

struct alignas(64) Header {
  // Written by the daemon.
  uint32_t magic, version, slots;
  std::atomic<int32_t> owner;            // its pid: shoal-pace ends when that is no longer its parent
  std::atomic<uint64_t> heartbeat_ns;    // CLOCK_MONOTONIC
  std::atomic<uint64_t> lease_ns;
  std::atomic<uint32_t> stop;
  uint32_t reserved[7];
};

struct alignas(64) Slot {
  // Written by the daemon.
  std::atomic<uint32_t> cpu;             // kUnused: none
  std::atomic<uint32_t> burn_when_idle;  // 1: no idle detection
  std::atomic<uint64_t> window;          // run_ns << 32 | period_ns; 0: no limit
  std::atomic<uint64_t> phase_ns;        // where in the period the window ends: spreads the windows of many cores
  uint64_t reserved[5];
  // Written by shoal-pace.
  std::atomic<uint32_t> state;
  std::atomic<int32_t> error;
  std::atomic<uint64_t> periods, given_ns, burned_ns, idle_ns;  // idle: not paced, as nothing ran
  std::atomic<uint64_t> late, worst_late_ns;                    // windows that ended over kLateNs late
  uint64_t reserved_out;
};

static_assert(sizeof(Header) == 64 && sizeof(Slot) == 128, "the layout is shared with Python");
static_assert(std::atomic<uint64_t>::is_always_lock_free, "fields are stored whole");

}  // namespace shoal
