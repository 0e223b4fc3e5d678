// The shared page of one device: a file that every tenant of the device maps. src/shoal/device/page.py mirrors the layout.
//
// Every field has one writer, but for a slot's `owner`, which is taken and given back by compare-and-swap, `turn`, `top`
// and `fair_ns`.
// No lock is ever held: a process may be killed at any instruction, and the page stays consistent.
#pragma once

#include <atomic>
#include <cstdint>

#include "policy.h"

namespace shoal::device {

constexpr uint32_t kMagic = 0x53484456;  // "SHDV"
constexpr uint32_t kVersion = 2;
constexpr uint32_t kSlots = 64;
constexpr uint32_t kLanes = 32;

// One queue of in-order work (a stream): done == submitted once the device has finished all of it. The device itself
// writes `done` where it can (cuStreamWriteValue32); sequences wrap, and are only compared for equality and distance.
struct Lane {
  std::atomic<uint32_t> submitted, done;
};

struct alignas(128) Slot {
  // pid in the low half, 0: free; a generation in the high one. Taken by compare-and-swap.
  std::atomic<uint64_t> owner;
  // Written by the owner.
  std::atomic<uint64_t> ready;       // as `owner`, written last when joining: until then the slot counts as free
  std::atomic<uint64_t> start_time;  // of the process, in clock ticks since boot: tells a recycled pid
  std::atomic<uint64_t> pid_space;   // the pid namespace (inode): pids of another cannot be asked for
  std::atomic<uint32_t> cls;         // ShoalClass
  std::atomic<uint32_t> weight;
  std::atomic<uint32_t> lanes;       // in use, from 0; a process with more streams shares the last by waiting for it
  std::atomic<uint32_t> waiting;     // 1: waits at the gate
  std::atomic<uint64_t> last_active_ns, progress_ns, gap_ns, outstanding_ns, running_ns, used_ns,
      waiting_since_ns;
  std::atomic<uint64_t> claim_ns;    // of the piece that is about to take the turn; no part of outstanding_ns yet
  std::atomic<uint64_t> ran_ns;      // device time it has had in truth; used_ns is moved by shoal_start
  std::atomic<uint64_t> memory_quota, memory_used;  // bytes; quota 0: none
  // Counters. shares: passed guaranteed work, by the minimum share, the longest wait, or because work of its own waited for it;
  // collectives: kernels that wait for other devices, which pass; kernels, variants: it launched so many, and so many of them
  // can be launched in parts; parts: pieces that were slices or went by ticket.
  std::atomic<uint64_t> launches, pieces, violations, shares, collectives, kernels, variants, parts;
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
  // Written by write_rules only; tenants read them at each decision.
  ShoalRules rules;
  std::atomic<uint64_t> rules_epoch;  // odd while the rules are being written
  // Any best-effort tenant, by compare-and-swap: who wins it has decided on the newest state.
  std::atomic<uint64_t> turn;
  std::atomic<uint64_t> fair_ns;      // see shoal_start; only grows
  std::atomic<uint64_t> best_effort;  // a bit for each slot that a best-effort process has; one that was killed keeps it until
                                      // its slot is freed. Without any, the ends of guaranteed launches are of no interest.
  std::atomic<uint32_t> top;          // slots ever taken lie below
};

struct Page {
  Header header;
  Slot slot[kSlots];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "fields are stored whole");

// Makes the file (mode 0660, never through a link) with `rules`, or opens the one that is there. Null and errno on error;
// page_error puts it into words: EPROTO another version, EINVAL no page, EPERM a file that its owner or mode makes unsafe
// (it must belong to root, to this user, or to the owner of its directory, and not be writable by others).
// Pages are never removed while a tenant lives.
Page* create_page(const char* path, const char* device, uint64_t memory_total, const ShoalRules& rules);
Page* open_page(const char* path);
void close_page(Page* page);
const char* page_error(int error);

// One at a time (a lock on the file); tenants see the old rules or the new. False and errno on error.
bool write_rules(const char* path, const ShoalRules& rules);

// A process, as a slot knows it.
struct Process {
  uint32_t pid;
  uint64_t start_time, pid_space;
};
Process this_process();
// Whether it runs: asks the kernel. A zombie does not. Pids of another namespace count as running, see snapshot.
bool is_running(const Process& process);
using Running = bool (*)(const Process&);

// Takes a free slot, or one whose process is gone, or one of another pid namespace that was silent for ten minutes. Null when
// all are taken.
Slot* join(Page* page, ShoalClass cls, uint32_t weight, uint64_t memory_quota, const char* name);
Slot* join_as(Page* page, const Process& process, Running running, ShoalClass cls, uint32_t weight,
              uint64_t memory_quota, const char* name, uint64_t now_ns);
void leave(Page* page, Slot* slot);
// Frees the slots of processes that are gone; how many. Joining does it too: this is for people who look.
uint32_t reap(Page* page, Running running);

// The tenants as the policy sees them: processes that are gone are left out (class SHOAL_FREE), stuck ones are for the
// policy. A process of another pid namespace cannot be asked for: the policy judges it by progress_ns and last_active_ns.
// `seen` (zeroed at first) keeps what one reader remembers from look to look: a slot's process is asked for at most every
// 10 ms, and when `done` moves is known by looking only. Returns the number of slots filled; those behind are free.
struct Seen {
  Running running;  // null: is_running
  ShoalRules rules;
  uint64_t rules_epoch;
  uint64_t owner[kSlots], asked_ns[kSlots], progress_ns[kSlots];
  uint32_t done[kSlots];
  bool alive[kSlots];
};
uint32_t snapshot(const Page* page, uint64_t now_ns, Seen* seen, ShoalTenant out[kSlots]);
// The rules, through `seen`: those read before when a writer is at work, or was killed there.
const ShoalRules& rules_of(const Page* page, Seen* seen);

}  // namespace shoal::device
