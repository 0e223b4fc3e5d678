// The C face of libshoaldevice.so, for ctypes (src/shoal/device/native.py). Policy functions are exported as they stand.
#include <cerrno>
#include <cstddef>
#include <ctime>

#include "../host/clock.h"
#include "gate.h"
#include "page.h"
#include "policy.h"
#include "profile.h"

using namespace shoal::device;

extern "C" {

SHOAL_API uint32_t shoal_device_abi(void) { return 3; }

SHOAL_API uint64_t shoal_device_now(void) { return shoal::now_ns(); }

// The layout, for the mirror to compare: sizes of page, header, slot and lane, and where the lanes of a slot begin.
SHOAL_API void shoal_page_layout(uint64_t out[5]) {
  out[0] = sizeof(Page);
  out[1] = sizeof(Header);
  out[2] = sizeof(Slot);
  out[3] = sizeof(Lane);
  out[4] = offsetof(Slot, lane);
}

SHOAL_API Page* shoal_page_create(const char* path, const char* device, uint64_t memory_total, const ShoalRules* rules) {
  return create_page(path, device, memory_total, *rules);
}
SHOAL_API Page* shoal_page_open(const char* path) { return open_page(path); }
SHOAL_API void shoal_page_close(Page* page) { close_page(page); }
SHOAL_API const char* shoal_page_error(int error) { return page_error(error); }
SHOAL_API int shoal_page_write_rules(const char* path, const ShoalRules* rules) {
  return write_rules(path, *rules) ? 0 : errno;
}
SHOAL_API void shoal_page_rules(const Page* page, ShoalRules* rules) {
  Seen seen{};
  *rules = rules_of(page, &seen);
}
// The index of a slot; -1 when all are taken.
SHOAL_API int shoal_page_join(Page* page, const Process* process, Running running, uint32_t cls, uint32_t weight,
                              uint64_t quota, const char* name, uint64_t now) {
  const Process self = process != nullptr ? *process : this_process();
  const Slot* slot = join_as(page, self, running != nullptr ? running : is_running, static_cast<ShoalClass>(cls),
                             weight, quota, name, now);
  return slot == nullptr ? -1 : static_cast<int>(slot - page->slot);
}
SHOAL_API void shoal_page_leave(Page* page, uint32_t slot) { leave(page, &page->slot[slot]); }
SHOAL_API uint32_t shoal_page_reap(Page* page, Running running) {
  return reap(page, running != nullptr ? running : is_running);
}
SHOAL_API Seen* shoal_seen_new(Running running) {
  Seen* seen = new Seen{};
  seen->running = running;
  return seen;
}
SHOAL_API void shoal_seen_free(Seen* seen) { delete seen; }
SHOAL_API uint32_t shoal_page_snapshot(const Page* page, uint64_t now, Seen* seen, ShoalTenant* out) {
  return snapshot(page, now, seen, out);
}
SHOAL_API void shoal_this_process(Process* out) { *out = this_process(); }
SHOAL_API int shoal_is_running(const Process* process) { return is_running(*process); }

SHOAL_API Gate* shoal_gate_get(void) { return Gate::get(); }
SHOAL_API const char* shoal_gate_why(void) { return Gate::why(); }
SHOAL_API uint64_t shoal_gate_owner(const Gate* gate) { return gate->slot()->owner.load(); }
SHOAL_API uint32_t shoal_gate_open_lane(Gate* gate) { return gate->open_lane(); }
SHOAL_API void shoal_gate_close_lane(Gate* gate, uint32_t lane) { gate->close_lane(lane); }
SHOAL_API uint32_t shoal_gate_submit(Gate* gate, uint32_t lane) { return gate->submit(lane); }
SHOAL_API uint32_t shoal_gate_acquire(Gate* gate, uint32_t lane, uint64_t cost) { return gate->acquire(lane, cost); }
SHOAL_API void shoal_gate_release(Gate* gate, uint32_t lane, uint32_t sequence, uint64_t took) {
  gate->release(lane, sequence, took);
}
SHOAL_API void shoal_gate_cancel(Gate* gate, uint32_t lane, uint32_t sequence) { gate->cancel(lane, sequence); }
SHOAL_API void shoal_gate_done(Gate* gate, uint32_t lane, uint32_t sequence) { gate->done(lane)->store(sequence); }
SHOAL_API uint64_t shoal_gate_bound(const Gate* gate) { return gate->bound_ns(); }
SHOAL_API int shoal_gate_allocate(Gate* gate, uint64_t bytes) { return gate->allocate(bytes); }
SHOAL_API void shoal_gate_deallocate(Gate* gate, uint64_t bytes) { gate->deallocate(bytes); }
SHOAL_API int shoal_gate_memory(const Gate* gate, uint64_t* free_bytes, uint64_t* total_bytes) {
  return gate->memory_limit(free_bytes, total_bytes);
}

SHOAL_API Gate* shoal_gate_of(const char* device) { return Gate::of(device); }
SHOAL_API int shoal_gate_beside(const Gate* gate) { return gate->beside(); }
SHOAL_API void shoal_gate_pass(Gate* gate) { gate->pass(); }
SHOAL_API uint32_t shoal_gate_pass_piece(Gate* gate, uint32_t lane, uint64_t cost) { return gate->pass_piece(lane, cost); }

// What a launch costs the caller, in nanoseconds of CPU: `rounds` of what a front end does around it, as the class has it.
// The device is taken to be done at once.
SHOAL_API double shoal_gate_cost(Gate* gate, uint32_t lane, uint32_t rounds) {
  timespec before, after;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  for (uint32_t i = 0; i < rounds; ++i) {
    if (gate->cls() == SHOAL_GUARANTEED && !gate->beside()) {
      gate->pass();
    } else if (gate->cls() == SHOAL_GUARANTEED) {
      gate->done(lane)->store(gate->submit(lane), std::memory_order_relaxed);
    } else {
      gate->release(lane, gate->acquire(lane, 1000), 0);
    }
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  const auto spent = static_cast<double>(after.tv_sec - before.tv_sec) * 1e9 + static_cast<double>(after.tv_nsec - before.tv_nsec);
  return spent / rounds;
}

SHOAL_API Profiles* shoal_profiles_open(const char* path) { return Profiles::open(path); }
SHOAL_API void shoal_profiles_look(Profiles* profiles, const Key* key, ShoalProfile* out) { *out = profiles->look(*key); }
SHOAL_API void shoal_profiles_note(Profiles* profiles, const Key* key, uint32_t way, uint32_t blocks, uint64_t took) {
  profiles->note(*key, static_cast<ShoalWay>(way), blocks, took);
}
SHOAL_API uint64_t shoal_hash(const void* data, uint64_t size, uint64_t seed) { return hash_bytes(data, size, seed); }

}  // extern "C"
