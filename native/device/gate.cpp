#include "gate.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "../host/clock.h"

namespace shoal::device {

namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr uint64_t kSpinNs = 20'000;
constexpr uint64_t kWakeNs = 10'000;  // a sleep ends about this late
constexpr uint32_t kPieces = 1024;  // outstanding at once on one lane

void add(std::atomic<uint64_t>& counter, uint64_t by) { counter.store(counter.load(relaxed) + by, relaxed); }

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
void say(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char* path = std::getenv("SHOAL_DEVICE_LOG");
  FILE* file = path != nullptr && *path != 0 ? std::fopen(path, "ae") : nullptr;
  std::fprintf(file != nullptr ? file : stderr, "shoal: %s\n", text);
  if (file != nullptr) std::fclose(file);
}

// A whole number from the environment; false when there is one that is none.
bool read_number(const char* name, uint64_t* value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return true;
  char* end = nullptr;
  errno = 0;
  *value = std::strtoull(text, &end, 10);
  return errno == 0 && *end == 0 && *text >= '0' && *text <= '9';
}

struct Piece {
  uint32_t sequence;
  bool ended;
  uint64_t cost_ns;
};

// What was submitted on a lane and has not been seen to end, oldest first.
struct Pieces {
  std::array<Piece, kPieces> piece;
  uint32_t first = 0, count = 0;
  Piece& at(uint32_t i) { return piece[(first + i) % kPieces]; }
  bool full() const { return count == kPieces; }
};

// Sleeps to `until`, precisely: the thread's timer slack (50 us) is longer than a piece.
void nap(uint64_t until) {
  const int slack = prctl(PR_GET_TIMERSLACK);
  if (slack > 1000) prctl(PR_SET_TIMERSLACK, 1000UL);
  sleep_until(until);
  if (slack > 1000) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
}

}  // namespace

struct Gate::State {
  Page* page = nullptr;
  Slot* slot = nullptr;
  uint64_t owner = 0;
  ShoalClass cls = SHOAL_GUARANTEED;
  uint32_t weight = 1;
  uint64_t quota = 0;
  std::string name;

  std::mutex lanes_lock;
  std::array<bool, kLanes> open{};

  // Best effort. One thread waits, the others behind it; `pieces_lock` is held for moments only.
  std::mutex turnstile, pieces_lock;
  std::array<std::unique_ptr<Pieces>, kLanes> pieces;
  Seen seen{};
  uint64_t outstanding_ns = 0;
  Slot nowhere{};  // where a process counts that has no place any more

  bool is_mine() const { return slot->owner.load(relaxed) == owner && slot->ready.load(relaxed) == owner; }

  bool enter() {
    Slot* found = join(page, cls, weight, quota, name.c_str());
    slot = found != nullptr ? found : &nowhere;
    owner = slot->owner.load(relaxed);
    return found != nullptr;
  }

  // Another process took the slot: from another pid namespace this process looked gone. It starts anew.
  void enter_again() {
    const std::lock_guard<std::mutex> guard(lanes_lock);
    if (is_mine()) return;
    if (!enter()) say("this process lost its place at the device's gate, and there is no other: launches are not gated");
    for (auto& line : pieces) line.reset();
    outstanding_ns = 0;
    show_lanes();
  }

  // In the page; behind its end when it has no place.
  size_t index() const { return slot == &nowhere ? kSlots : static_cast<size_t>(slot - page->slot); }

  void show_lanes() {
    uint32_t top = 0;
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (open[i] || slot->lane[i].submitted.load(relaxed) != slot->lane[i].done.load(relaxed)) top = i + 1;
    }
    slot->lanes.store(std::max(top, slot->lanes.load(relaxed)), std::memory_order_release);
  }

  bool is_idle() const {
    const uint32_t lanes = std::min(slot->lanes.load(relaxed), kLanes);
    for (uint32_t i = 0; i < lanes; ++i) {
      if (slot->lane[i].submitted.load(relaxed) != slot->lane[i].done.load(relaxed)) return false;
    }
    return true;
  }

  // Counts one launch of the lane; before it is one. `done` never passes what this returns.
  uint32_t count(uint32_t lane, uint64_t now) {
    if (lane >= slot->lanes.load(relaxed)) {
      const std::lock_guard<std::mutex> guard(lanes_lock);
      open[lane] = true;
      show_lanes();
    }
    if (is_idle()) slot->progress_ns.store(now, relaxed);
    slot->launches.fetch_add(1, relaxed);
    const uint32_t sequence = slot->lane[lane].submitted.load(relaxed) + 1;
    slot->lane[lane].submitted.store(sequence, std::memory_order_release);
    return sequence;
  }

  // Stores `done`, unless it is further already.
  void mark_done(uint32_t lane, uint32_t sequence) {
    std::atomic<uint32_t>& done = slot->lane[lane].done;
    uint32_t before = done.load(relaxed);
    while (static_cast<int32_t>(sequence - before) > 0 &&
           !done.compare_exchange_weak(before, sequence, std::memory_order_release, relaxed)) {
    }
  }

  // With pieces_lock held, as all below.
  void retire(Pieces& line) {
    while (line.count > 0 && line.at(0).ended) {
      line.first = (line.first + 1) % kPieces;
      --line.count;
    }
  }

  void end(Piece& piece) {
    if (piece.ended) return;
    piece.ended = true;
    outstanding_ns -= std::min(outstanding_ns, piece.cost_ns);
  }

  // Shows what is outstanding; `moved`: some of it has just ended.
  void publish_outstanding(uint64_t now, bool moved) {
    uint64_t running = 0;
    uint32_t lanes = 0;
    for (const auto& line : pieces) {
      if (line == nullptr || line->count == 0) continue;
      ++lanes;
      running = line->at(0).cost_ns;
    }
    slot->running_ns.store(lanes == 1 ? running : 0, relaxed);
    if (moved) slot->progress_ns.store(now, relaxed);
    slot->outstanding_ns.store(outstanding_ns, relaxed);
  }

  // Takes off what the device has finished.
  void collect(uint64_t now) {
    bool changed = false;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (pieces[lane] == nullptr || pieces[lane]->count == 0) continue;
      Pieces& line = *pieces[lane];
      const uint32_t done = slot->lane[lane].done.load(std::memory_order_acquire);
      for (uint32_t i = 0; i < line.count && static_cast<int32_t>(done - line.at(i).sequence) >= 0; ++i) {
        if (line.at(i).ended) continue;
        end(line.at(i));
        add(slot->ran_ns, line.at(i).cost_ns);
        changed = true;
      }
      retire(line);
    }
    if (changed) publish_outstanding(now, true);
  }

  void publish_waiting(bool waits, uint64_t since) {
    slot->waiting_since_ns.store(waits ? since : 0, relaxed);
    slot->waiting.store(waits ? 1 : 0, std::memory_order_release);
  }
};

namespace {

std::atomic<Gate*> the_gate{nullptr};
std::atomic<bool> tried{false};
std::mutex making;
const char* absent_because = "no launch has asked for it yet";
std::array<bool, kLanes> open_before_fork{};
Gate* forked_from = nullptr;

}  // namespace

Gate* Gate::get() {
  if (tried.load(std::memory_order_acquire)) return the_gate.load(relaxed);
  const std::lock_guard<std::mutex> guard(making);
  if (tried.load(relaxed)) return the_gate.load(relaxed);

  static const bool hooked = [] {
    // A child has neither the parent's slot nor its locks: it makes a gate of its own.
    return pthread_atfork(
               [] {
                 making.lock();
                 forked_from = the_gate.load(relaxed);
               },
               [] { making.unlock(); },
               [] {
                 if (forked_from != nullptr) open_before_fork = forked_from->state_->open;
                 the_gate.store(nullptr, relaxed);
                 tried.store(false, relaxed);
                 making.unlock();
               }) == 0;
  }();
  if (!hooked) say("forks of this process share its place at the device's gate");

  const auto without = [](const char* reason) -> Gate* {
    absent_because = reason;
    tried.store(true, std::memory_order_release);
    return nullptr;
  };
  const char* path = std::getenv("SHOAL_DEVICE_PAGE");
  if (path == nullptr || *path == 0) return without("SHOAL_DEVICE_PAGE is not set");

  auto state = std::make_unique<State>();
  const char* cls = std::getenv("SHOAL_DEVICE_CLASS");
  if (cls != nullptr && std::strcmp(cls, "guaranteed") == 0) {
    state->cls = SHOAL_GUARANTEED;
  } else if (cls != nullptr && std::strcmp(cls, "best-effort") == 0) {
    state->cls = SHOAL_BEST_EFFORT;
  } else {
    say("SHOAL_DEVICE_CLASS is %s, not guaranteed or best-effort: launches are not gated", cls ? cls : "not set");
    return without("SHOAL_DEVICE_CLASS is neither guaranteed nor best-effort");
  }
  uint64_t weight = 1;
  if (!read_number("SHOAL_DEVICE_WEIGHT", &weight) || weight < 1 || weight > 1'000'000) {
    say("SHOAL_DEVICE_WEIGHT is no number from 1 to 1000000: 1 is taken");
    weight = 1;
  }
  state->weight = static_cast<uint32_t>(weight);
  if (!read_number("SHOAL_DEVICE_MEMORY", &state->quota)) {
    say("SHOAL_DEVICE_MEMORY is no number of bytes: memory is not limited");
    state->quota = 0;
  }
  const char* name = std::getenv("SHOAL_DEVICE_NAME");
  state->name = name != nullptr ? name : "";
  state->page = open_page(path);
  if (state->page == nullptr) {
    const char* reason = page_error(errno);
    say("the page %s cannot be used, %s: launches are not gated", path, reason);
    return without(reason);
  }
  if (!state->enter()) {
    say("the page %s has no free place for another process: launches are not gated", path);
    close_page(state->page);
    return without("the page has no free place");
  }
  state->open = open_before_fork;
  state->show_lanes();
  Gate* gate = new Gate(state.release());  // for the life of the process: other threads may launch while it ends
  the_gate.store(gate, relaxed);
  tried.store(true, std::memory_order_release);
  return gate;
}

const char* Gate::why() {
  const std::lock_guard<std::mutex> guard(making);
  return the_gate.load(relaxed) != nullptr ? "" : absent_because;
}

ShoalClass Gate::cls() const { return state_->cls; }
Slot* Gate::slot() const { return state_->slot; }

uint32_t Gate::open_lane() {
  State& s = *state_;
  const std::lock_guard<std::mutex> guard(s.lanes_lock);
  uint32_t lane = 0;
  while (lane < kLanes - 1 && (s.open[lane] || s.slot->lane[lane].submitted.load(relaxed) !=
                                                   s.slot->lane[lane].done.load(relaxed))) {
    ++lane;
  }
  s.open[lane] = true;
  s.show_lanes();
  return lane;
}

void Gate::close_lane(uint32_t lane) {
  State& s = *state_;
  const std::lock_guard<std::mutex> guard(s.lanes_lock);
  if (lane < kLanes - 1) s.open[lane] = false;  // the last is shared by any number of streams
}

uint32_t Gate::submit(uint32_t lane) {
  State& s = *state_;
  if (!s.is_mine()) s.enter_again();
  Slot& slot = *s.slot;
  const uint64_t now = now_ns();
  const uint64_t last = slot.last_active_ns.load(relaxed);
  ShoalRules limits{};
  limits.grace_most_ns = __atomic_load_n(&s.page->header.rules.grace_most_ns, __ATOMIC_RELAXED);
  const uint64_t gap = s.is_idle() && now > last ? now - last : 0;
  slot.gap_ns.store(shoal_next_gap(&limits, slot.gap_ns.load(relaxed), gap), relaxed);
  slot.last_active_ns.store(now, relaxed);
  return s.count(lane, now);
}

std::atomic<uint32_t>* Gate::done(uint32_t lane) const { return &state_->slot->lane[lane].done; }

uint32_t Gate::acquire(uint32_t lane, uint64_t cost) {
  State& s = *state_;
  cost = std::max<uint64_t>(cost, 1);
  const std::lock_guard<std::mutex> turn(s.turnstile);
  const uint64_t since = now_ns();
  uint64_t now = since, looked = 0;
  uint32_t verdict = SHOAL_GO;
  bool waits = false;
  ShoalTenant tenants[kSlots];
  for (;;) {
    ShoalDecision decision{};
    {
      const std::lock_guard<std::mutex> guard(s.pieces_lock);
      if (!s.is_mine()) s.enter_again();
      Slot& slot = *s.slot;
      Header& header = s.page->header;
      if (waits) add(slot.waited_ns[verdict - SHOAL_WAIT_BUSY], now - looked);
      looked = now;
      s.collect(now);
      slot.last_active_ns.store(now, relaxed);
      const uint64_t epoch = header.turn.load(std::memory_order_acquire);
      const ShoalRules& rules = rules_of(s.page, &s.seen);
      if (!waits) {
        slot.used_ns.store(shoal_start(&rules, slot.used_ns.load(relaxed), s.weight, header.fair_ns.load(relaxed)),
                           relaxed);
      }
      if (s.pieces[lane] == nullptr) s.pieces[lane] = std::make_unique<Pieces>();
      Pieces& line = *s.pieces[lane];
      const uint32_t count = snapshot(s.page, now, &s.seen, tenants);
      decision = shoal_decide(&rules, tenants, count, s.index(), cost, since, now);
      if (line.full()) decision = {SHOAL_WAIT_BOUND, 0, now + kSpinNs};
      if (decision.verdict <= SHOAL_GO_SHARE) {
        // Show it before the turn is taken: who looks from then on sees it. Another has won: decide again.
        slot.claim_ns.store(cost, relaxed);
        uint64_t expected = epoch;
        if (header.turn.compare_exchange_strong(expected, epoch + 1, std::memory_order_acq_rel)) {
          s.outstanding_ns += cost;
          const uint64_t start = slot.used_ns.load(relaxed) / s.weight;
          uint64_t fair = header.fair_ns.load(relaxed);
          while (fair < start && !header.fair_ns.compare_exchange_weak(fair, start, relaxed)) {
          }
          add(slot.used_ns, cost);
          add(slot.pieces, 1);
          if (cost > shoal_bound(&rules, tenants, count, now)) add(slot.violations, 1);
          if (decision.verdict == SHOAL_GO_SHARE) add(slot.shares, 1);
          const uint32_t sequence = s.count(lane, now);
          line.at(line.count++) = {sequence, false, cost};
          s.publish_outstanding(now, false);
          slot.claim_ns.store(0, std::memory_order_release);
          if (waits) s.publish_waiting(false, 0);
          return sequence;
        }
        slot.claim_ns.store(0, relaxed);
        now = now_ns();
        continue;
      }
      verdict = decision.verdict;
      if (!waits) s.publish_waiting(true, since);
      waits = true;
    }
    if (now - since < kSpinNs || decision.look_at_ns < now + kSpinNs) {
      for (int i = 0; i < 32; ++i) pause();
    } else {
      nap(decision.look_at_ns - kWakeNs);
    }
    now = now_ns();
  }
}

void Gate::release(uint32_t lane, uint32_t sequence, uint64_t took) {
  State& s = *state_;
  const bool shared = lane == kLanes - 1;
  if (s.cls == SHOAL_GUARANTEED) {
    s.mark_done(lane, sequence);
    return;
  }
  const std::lock_guard<std::mutex> guard(s.pieces_lock);
  Slot& slot = *s.slot;
  if (s.pieces[lane] == nullptr) return;
  Pieces& line = *s.pieces[lane];
  for (uint32_t i = 0; i < line.count; ++i) {
    Piece& piece = line.at(i);
    const auto behind = static_cast<int32_t>(sequence - piece.sequence);
    if (behind < 0 || (shared && behind != 0) || piece.ended) continue;
    s.end(piece);
    const uint64_t ran = behind == 0 && took ? took : piece.cost_ns;
    add(slot.ran_ns, ran);
    const uint64_t used = slot.used_ns.load(relaxed) + ran;
    slot.used_ns.store(used - std::min(used, piece.cost_ns), relaxed);
  }
  s.retire(line);
  // On the shared lane all is done up to the oldest that is not.
  s.mark_done(lane, line.count == 0 ? slot.lane[lane].submitted.load(relaxed) : line.at(0).sequence - 1);
  s.publish_outstanding(now_ns(), true);
}

void Gate::cancel(uint32_t lane, uint32_t sequence) {
  State& s = *state_;
  Slot& slot = *s.slot;
  if (s.cls == SHOAL_BEST_EFFORT) {
    const std::lock_guard<std::mutex> guard(s.pieces_lock);
    Pieces* line = s.pieces[lane].get();
    for (uint32_t i = 0; line != nullptr && i < line->count; ++i) {
      Piece& piece = line->at(i);
      if (piece.sequence != sequence || piece.ended) continue;
      s.end(piece);
      const uint64_t used = slot.used_ns.load(relaxed);
      slot.used_ns.store(used - std::min(used, piece.cost_ns), relaxed);
      if (i + 1 == line->count) --line->count;
    }
    if (line != nullptr) s.retire(*line);
    s.publish_outstanding(now_ns(), false);
  }
  // No process will store this number. If it is the newest it is taken back; else the next one's end stands for it too.
  uint32_t expected = sequence;
  slot.lane[lane].submitted.compare_exchange_strong(expected, sequence - 1, std::memory_order_release, relaxed);
}

void Gate::charge(uint64_t more) {
  const std::lock_guard<std::mutex> guard(state_->pieces_lock);
  add(state_->slot->ran_ns, more);
  add(state_->slot->used_ns, more);
}

bool Gate::wanted() const {
  State& s = *state_;
  const std::lock_guard<std::mutex> guard(s.pieces_lock);
  ShoalTenant tenants[kSlots];
  const uint64_t now = now_ns();
  const uint32_t count = snapshot(s.page, now, &s.seen, tenants);
  const uint32_t verdict = shoal_decide(&rules_of(s.page, &s.seen), tenants, count, s.index(), 1, now, now).verdict;
  return verdict == SHOAL_WAIT_BUSY || verdict == SHOAL_WAIT_GRACE;
}

uint64_t Gate::bound_ns() const {
  State& s = *state_;
  const std::lock_guard<std::mutex> guard(s.pieces_lock);
  ShoalTenant tenants[kSlots];
  const uint64_t now = now_ns();
  const uint32_t count = snapshot(s.page, now, &s.seen, tenants);
  return shoal_bound(&rules_of(s.page, &s.seen), tenants, count, now);
}

bool Gate::allocate(uint64_t bytes) {
  Slot& slot = *state_->slot;
  uint64_t used = slot.memory_used.load(relaxed);
  do {
    if (state_->quota && (bytes > state_->quota || used > state_->quota - bytes)) return false;
  } while (!slot.memory_used.compare_exchange_weak(used, used + bytes, relaxed));
  return true;
}

void Gate::deallocate(uint64_t bytes) {
  Slot& slot = *state_->slot;
  uint64_t used = slot.memory_used.load(relaxed);
  while (!slot.memory_used.compare_exchange_weak(used, used - std::min(used, bytes), relaxed)) {
  }
}

bool Gate::memory_limit(uint64_t* free_bytes, uint64_t* total_bytes) const {
  if (state_->quota == 0) return false;
  const uint64_t used = state_->slot->memory_used.load(relaxed);
  *total_bytes = state_->quota;
  *free_bytes = state_->quota - std::min(used, state_->quota);
  return true;
}

namespace {

// The slot stays owned, so that no other process takes it while threads of this one still launch; it counts no more.
__attribute__((destructor)) void end_of_process() {
  Gate* gate = the_gate.load(relaxed);
  if (gate == nullptr) return;
  Slot* slot = gate->slot();
  if (static_cast<uint32_t>(slot->owner.load(relaxed)) == static_cast<uint32_t>(getpid())) {
    slot->ready.store(0, std::memory_order_release);
  }
}

}  // namespace

}  // namespace shoal::device
