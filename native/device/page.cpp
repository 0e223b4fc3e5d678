#include "page.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "../host/clock.h"
#include "file.h"

namespace shoal::device {

namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr uint64_t kAskNs = 10'000'000;
constexpr uint64_t kSilentNs = 600'000'000'000;  // after that a slot of another pid namespace may be taken

uint32_t pid_of(uint64_t owner) { return static_cast<uint32_t>(owner); }
uint64_t next_owner(uint64_t before, uint32_t pid) { return ((before >> 32) + 1) << 32 | pid; }

Process process_of(const Slot& slot, uint64_t owner) {
  return {pid_of(owner), slot.start_time.load(relaxed), slot.pid_space.load(relaxed)};
}

// State and start time of a process from /proc; false when it cannot be read.
bool read_stat(uint32_t pid, char* state, uint64_t* start_time) {
  char path[32], text[512];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return false;
  text[size] = 0;
  const char* at = std::strrchr(text, ')');  // the name may hold anything
  if (at == nullptr || at[1] != ' ') return false;
  at += 2;
  *state = *at;
  for (int field = 3; field < 22; ++field) {
    at = std::strchr(at, ' ');
    if (at == nullptr) return false;
    ++at;
  }
  *start_time = std::strtoull(at, nullptr, 10);
  return true;
}

// The rules are plain words in the page, read and written under a sequence lock.
constexpr size_t kRuleWords = sizeof(ShoalRules) / sizeof(uint64_t);
static_assert(sizeof(ShoalRules) % sizeof(uint64_t) == 0, "copied by words");

void copy_rules(ShoalRules* to, const ShoalRules* from) {
  for (size_t i = 0; i < kRuleWords; ++i) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(to) + i,
                     __atomic_load_n(reinterpret_cast<const uint64_t*>(from) + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  }
}

// May `slot` be taken from `owner`? Asked only when a place is needed or when slots are tidied up.
bool is_gone(const Slot& slot, uint64_t owner, Running running) {
  return pid_of(owner) != 0 && slot.ready.load(std::memory_order_acquire) == owner && !running(process_of(slot, owner));
}

// A process that died while it joined: `ready` never came. Its start time may be another's, its pid is its own.
bool died_joining(const Slot& slot, uint64_t owner, Running running) {
  if (pid_of(owner) == 0 || slot.ready.load(std::memory_order_acquire) == owner) return false;
  return !running({pid_of(owner), 0, this_process().pid_space});
}

bool is_silent_stranger(const Slot& slot, uint64_t owner, uint64_t now) {
  if (pid_of(owner) == 0 || slot.pid_space.load(relaxed) == this_process().pid_space) return false;
  const uint64_t last = std::max(slot.last_active_ns.load(relaxed), slot.progress_ns.load(relaxed));
  return now > last && now - last >= kSilentNs;
}

}  // namespace

Page* create_page(const char* path, const char* device, uint64_t memory_total, const ShoalRules& rules) {
  if (access(path, F_OK) != 0) {
    const std::unique_ptr<Page> page(new Page());
    Header& header = page->header;
    header.magic = kMagic;
    header.version = kVersion;
    header.slots = kSlots;
    header.lanes = kLanes;
    header.size = sizeof(Page);
    header.memory_total = memory_total;
    std::snprintf(header.device, sizeof header.device, "%s", device);
    header.rules = rules;
    if (!make_file(path, page.get(), sizeof(Page))) return nullptr;
  }
  return open_page(path);
}

Page* open_page(const char* path) { return static_cast<Page*>(map_file(path, sizeof(Page), kMagic, kVersion)); }

void close_page(Page* page) { munmap(page, sizeof(Page)); }

const char* page_error(int error) {
  switch (error) {
    case EPROTO: return "it is of another version of Shoal: end what uses it, then remove it";
    case EINVAL: return "it is not a page of Shoal";
    case EPERM: return "it must belong to root, to this user or to the owner of its directory, and not be writable by others";
    case ELOOP: return "it is a link";
    default: return std::strerror(error);
  }
}

bool write_rules(const char* path, const ShoalRules& rules) {
  Page* page = open_page(path);
  if (page == nullptr) return false;
  const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  bool good = file >= 0;
  while (good && flock(file, LOCK_EX) != 0) good = errno == EINTR;
  if (good) {
    std::atomic<uint64_t>& epoch = page->header.rules_epoch;
    const uint64_t writing = epoch.load(relaxed) | 1;  // odd already: a writer was killed here
    epoch.store(writing, relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    copy_rules(&page->header.rules, &rules);
    epoch.store(writing + 1, std::memory_order_release);
  }
  const int error = errno;
  if (file >= 0) close(file);
  close_page(page);
  errno = error;
  return good;
}

const ShoalRules& rules_of(const Page* page, Seen* seen) {
  const std::atomic<uint64_t>& epoch = page->header.rules_epoch;
  const uint64_t before = epoch.load(std::memory_order_acquire);
  // `rules_epoch` of what is kept is one more, so that 0 means none.
  if (before + 1 == seen->rules_epoch) return seen->rules;
  ShoalRules read;
  copy_rules(&read, &page->header.rules);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (before % 2 == 0 && epoch.load(relaxed) == before) {
    seen->rules = read;
    seen->rules_epoch = before + 1;
  } else if (seen->rules_epoch == 0) {
    seen->rules = shoal_default_rules();
  }
  return seen->rules;
}

Process this_process() {
  static const Process found = [] {
    struct stat space {};
    const bool known = stat("/proc/self/ns/pid", &space) == 0;
    return Process{0, 0, known ? static_cast<uint64_t>(space.st_ino) : 0};
  }();
  Process self = found;
  self.pid = static_cast<uint32_t>(getpid());
  char state = 0;
  if (!read_stat(self.pid, &state, &self.start_time)) self.start_time = 0;
  return self;
}

bool is_running(const Process& process) {
  static const uint64_t space = this_process().pid_space;
  if (process.pid_space != space) return true;
  char state = 0;
  uint64_t start_time = 0;
  if (read_stat(process.pid, &state, &start_time)) {
    if (state == 'Z' || state == 'X') return false;
    return process.start_time == 0 || process.start_time == start_time;
  }
  return kill(static_cast<pid_t>(process.pid), 0) == 0 || errno == EPERM;
}

Slot* join(Page* page, ShoalClass cls, uint32_t weight, uint64_t memory_quota, const char* name) {
  return join_as(page, this_process(), is_running, cls, weight, memory_quota, name, now_ns());
}

Slot* join_as(Page* page, const Process& process, Running running, ShoalClass cls, uint32_t weight,
              uint64_t memory_quota, const char* name, uint64_t now) {
  for (const bool strangers : {false, true}) {
    for (uint32_t i = 0; i < kSlots; ++i) {
      Slot& slot = page->slot[i];
      uint64_t owner = slot.owner.load(std::memory_order_acquire);
      const bool free = pid_of(owner) == 0 || is_gone(slot, owner, running) || died_joining(slot, owner, running) ||
                        (strangers && is_silent_stranger(slot, owner, now));
      const uint64_t mine = next_owner(owner, process.pid);
      if (!free || !slot.owner.compare_exchange_strong(owner, mine, std::memory_order_acq_rel)) continue;
      uint32_t top = page->header.top.load(relaxed);
      while (top <= i && !page->header.top.compare_exchange_weak(top, i + 1, std::memory_order_acq_rel)) {
      }
      slot.start_time.store(process.start_time, relaxed);
      slot.pid_space.store(process.pid_space, relaxed);
      slot.cls.store(cls, relaxed);
      slot.weight.store(std::max(weight, 1u), relaxed);
      slot.lanes.store(0, relaxed);
      slot.waiting.store(0, relaxed);
      for (auto* field : {&slot.progress_ns, &slot.gap_ns, &slot.outstanding_ns, &slot.running_ns, &slot.used_ns,
                          &slot.waiting_since_ns, &slot.claim_ns, &slot.ran_ns, &slot.memory_used, &slot.launches, &slot.pieces, &slot.violations,
                          &slot.shares, &slot.collectives, &slot.kernels, &slot.variants, &slot.parts}) {
        field->store(0, relaxed);
      }
      for (auto& field : slot.waited_ns) field.store(0, relaxed);
      slot.last_active_ns.store(now, relaxed);
      slot.memory_quota.store(memory_quota, relaxed);
      std::snprintf(slot.name, sizeof slot.name, "%s", name);
      for (Lane& lane : slot.lane) {
        lane.submitted.store(0, relaxed);
        lane.done.store(0, relaxed);
      }
      if (cls == SHOAL_BEST_EFFORT) {
        page->header.best_effort.fetch_or(uint64_t{1} << i);
      } else {
        page->header.best_effort.fetch_and(~(uint64_t{1} << i));
      }
      slot.ready.store(mine, std::memory_order_release);
      return &slot;
    }
  }
  errno = EUSERS;
  return nullptr;
}

void leave(Page* page, Slot* slot) {
  const uint64_t owner = slot->owner.load(relaxed);
  page->header.best_effort.fetch_and(~(uint64_t{1} << (slot - page->slot)));
  slot->ready.store(0, std::memory_order_release);
  slot->owner.store(next_owner(owner, 0), std::memory_order_release);
}

uint32_t reap(Page* page, Running running) {
  uint32_t reaped = 0;
  for (Slot& slot : page->slot) {
    uint64_t owner = slot.owner.load(std::memory_order_acquire);
    if (!is_gone(slot, owner, running) && !died_joining(slot, owner, running)) continue;
    // Before it is free: the next owner's bit stays. (One that joins in this moment sets it again at its next launch.)
    page->header.best_effort.fetch_and(~(uint64_t{1} << (&slot - page->slot)));
    reaped += slot.owner.compare_exchange_strong(owner, next_owner(owner, 0), std::memory_order_acq_rel);
  }
  return reaped;
}

uint32_t snapshot(const Page* page, uint64_t now, Seen* seen, ShoalTenant out[kSlots]) {
  const Running running = seen->running ? seen->running : is_running;
  const uint32_t top = std::min(page->header.top.load(std::memory_order_acquire), kSlots);
  for (uint32_t i = 0; i < top; ++i) {
    const Slot& slot = page->slot[i];
    ShoalTenant& tenant = out[i];
    tenant = {};
    const uint64_t owner = slot.owner.load(std::memory_order_acquire);
    if (pid_of(owner) == 0 || slot.ready.load(std::memory_order_acquire) != owner) continue;

    // First the claim: one that is taken away was added to what is outstanding before.
    const uint64_t claim = slot.claim_ns.load(std::memory_order_acquire);
    uint32_t done = 0, pending = 0;
    const uint32_t lanes = std::min(slot.lanes.load(relaxed), kLanes);
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      // First `done`: it never passes `submitted`.
      const uint32_t ended = slot.lane[lane].done.load(std::memory_order_acquire);
      const auto behind = static_cast<int32_t>(slot.lane[lane].submitted.load(relaxed) - ended);
      done += ended;
      if (behind > 0) pending += static_cast<uint32_t>(behind);
    }
    if (seen->owner[i] != owner) {
      // Not seen before: whether it makes progress is yet to be seen.
      seen->owner[i] = owner;
      seen->asked_ns[i] = 0;
      seen->done[i] = done;
      seen->progress_ns[i] = pending ? now : 0;
    }
    if (seen->asked_ns[i] == 0 || (seen->alive[i] && now - seen->asked_ns[i] >= kAskNs)) {
      seen->alive[i] = running(process_of(slot, owner));
      seen->asked_ns[i] = now;
    }
    if (!seen->alive[i]) continue;
    if (seen->done[i] != done) {
      seen->done[i] = done;
      seen->progress_ns[i] = now;
    }
    tenant.weight = slot.weight.load(relaxed);
    tenant.pending = pending;
    tenant.waiting = slot.waiting.load(relaxed);
    tenant.progress_ns = std::max(slot.progress_ns.load(relaxed), seen->progress_ns[i]);
    tenant.last_active_ns = std::max(slot.last_active_ns.load(relaxed), seen->progress_ns[i]);
    tenant.gap_ns = slot.gap_ns.load(relaxed);
    // What the device has ended is off it, although only its owner takes it off the sum, at its next launch. A process that
    // was stopped at its claim finds, when it goes on, that others took the turn.
    const uint64_t looked = slot.last_active_ns.load(relaxed);
    if (pending != 0) {
      tenant.outstanding_ns = slot.outstanding_ns.load(relaxed);
      tenant.running_ns = slot.running_ns.load(relaxed);
    }
    if (now < looked || now - looked < kAwayNs) tenant.outstanding_ns += claim;
    tenant.used_ns = slot.used_ns.load(relaxed);
    tenant.cls = slot.cls.load(relaxed);
  }
  return top;
}

}  // namespace shoal::device
