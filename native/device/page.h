// The shared page of one device: a file that every tenant of the device maps. src/shoal/device/page.py mirrors the layout.
//
// Every field has one writer, but for a slot's `owner`, which is taken and given back by compare-and-swap, and `turn`.
// No lock is ever held: a process may be killed at any instruction, and the page stays consistent.
#pragma once

#include <atomic>
#include <cstdint>

#include "policy.h"

namespace shoal::device {

constexpr uint32_t kMagic = 0x53484456;  // "SHDV"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kSlots = 64;
constexpr uint32_t kLanes = 32;

// One queue of in-order work (a stream): done == submitted once the device has finished all of it. The device itself
// writes `done` where it can (cuStreamWriteValue32); sequences wrap, and are only compared for equality and distance.
struct Lane {
  std::atomic<uint32_t> submitted, done;
};

struct alignas(128) Slot {
  // pid in the low half, a generation in the high one; 0: free. Taken by compare-and-swap.
  std::atomic<uint64_t> owner;
  std::atomic<uint64_t> start_time;  // of the process, in clock ticks since boot: tells a recycled pid
  // Written by the owner.
  std::atomic<uint32_t> cls;         // ShoalClass; written last when joining, SHOAL_FREE until then
  std::atomic<uint32_t> weight;
  std::atomic<uint32_t> lanes;       // in use, from 0; a process with more streams shares the last by waiting for it
  std::atomic<uint32_t> waiting;     // 1: waits at the gate
  std::atomic<uint64_t> last_active_ns, progress_ns, gap_ns, outstanding_ns, used_ns, waiting_since_ns;
  std::atomic<uint64_t> memory_quota, memory_used;  // bytes; quota 0: none
  std::atomic<uint64_t> launches, pieces, violations, shares;  // counters; shares: passed guaranteed work by the minimum share
  std::atomic<uint64_t> waited_ns[4];  // by ShoalVerdict from SHOAL_WAIT_BUSY
  char name[48];                       // for people: the job, or the command's name
  Lane lane[kLanes];
};

struct alignas(128) Header {
  // Written by the one that makes the page, before `magic`.
  std::atomic<uint32_t> magic;
  uint32_t version, slots, lanes;
  uint64_t size;           // of the whole file
  uint64_t memory_total;   // bytes of the device; 0: not known
  char device[64];         // UUID, or another stable name
  // Written by the daemon or by a command; tenants read it at each decision.
  ShoalRules rules;
  std::atomic<uint64_t> rules_epoch;  // odd while the rules are being written
  // Any best-effort tenant, by compare-and-swap: who wins it has decided on the newest state.
  std::atomic<uint64_t> turn;
};

struct Page {
  Header header;
  Slot slot[kSlots];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "fields are stored whole");

// Makes the file (mode 0660, never through a link) with `rules`, or opens the one that is there. Null and errno on error:
// EPROTO when the version is another. Pages are never removed while a tenant lives.
Page* create_page(const char* path, const char* device, uint64_t memory_total, const ShoalRules& rules);
Page* open_page(const char* path);
void close_page(Page* page);

// Takes a free slot, or one whose process is gone. Null when all are taken.
Slot* join(Page* page, ShoalClass cls, uint32_t weight, uint64_t memory_quota, const char* name);
void leave(Slot* slot);

// The tenants as the policy sees them: dead processes and stuck tenants are left out (class SHOAL_FREE). `seen` keeps what
// one reader remembers from look to look (liveness is asked of the kernel at most every 10 ms a slot).
struct Seen {
  uint64_t asked_ns[kSlots];
  bool alive[kSlots];
};
void snapshot(const Page* page, uint64_t now_ns, Seen* seen, ShoalTenant out[kSlots]);

}  // namespace shoal::device
