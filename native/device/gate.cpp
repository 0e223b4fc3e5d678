#include "gate.h"

#include <sys/prctl.h>

#include <algorithm>

#include "../host/clock.h"
#include "gate_state.h"

namespace shoal::device {

namespace {

constexpr uint64_t kSpinNs = 20'000;
constexpr uint64_t kWakeNs = 10'000;  // a sleep ends about this late

// Sleeps to `until`, precisely: the thread's timer slack (50 us) is longer than a piece.
void nap(uint64_t until) {
  const int slack = prctl(PR_GET_TIMERSLACK);
  if (slack > 1000) prctl(PR_SET_TIMERSLACK, 1000UL);
  sleep_until(until);
  if (slack > 1000) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
}

}  // namespace

ShoalClass Gate::cls() const { return state_->cls; }
Slot* Gate::slot() const { return state_->slot; }
uint32_t Gate::number() const { return state_->number; }

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

bool Gate::beside() const { return state_->page->header.best_effort.load(relaxed) != 0; }

void Gate::pass() {
  State& s = *state_;
  if (!s.is_mine()) s.enter_again();
  s.slot->last_active_ns.store(now_ns(), relaxed);
  s.slot->launches.fetch_add(1, relaxed);
}

uint32_t Gate::pass_piece(uint32_t lane, uint64_t cost) {
  State& s = *state_;
  const std::lock_guard<std::mutex> guard(s.pieces_lock);
  if (!s.is_mine()) s.enter_again();
  const uint64_t now = now_ns();
  s.collect(now);
  if (s.pieces[lane] == nullptr) s.pieces[lane] = std::make_unique<Pieces>();
  s.slot->last_active_ns.store(now, relaxed);
  add(s.slot->collectives, 1);
  if (s.pieces[lane]->full()) return s.count(lane, now);  // its end is known by the lane only
  return s.begin(lane, std::max<uint64_t>(cost, 1), now);
}

void Gate::retire() const { state_->page->header.best_effort.fetch_and(~state_->bit); }

bool Gate::overdue(uint32_t lane) const {
  const std::lock_guard<std::mutex> guard(state_->pieces_lock);
  return state_->overdue(lane, now_ns()) >= kOverdueNs;
}

void Gate::count_part() { state_->slot->parts.fetch_add(1, relaxed); }

void Gate::count_kernel(bool in_parts) {
  state_->slot->kernels.fetch_add(1, relaxed);
  if (in_parts) state_->slot->variants.fetch_add(1, relaxed);
}

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
        // Of a process that was taken for gone by mistake.
        if (!(header.best_effort.load(relaxed) & s.bit)) header.best_effort.fetch_or(s.bit);
        slot.used_ns.store(shoal_start(&rules, slot.used_ns.load(relaxed), s.weight, header.fair_ns.load(relaxed)),
                           relaxed);
      }
      if (s.pieces[lane] == nullptr) s.pieces[lane] = std::make_unique<Pieces>();
      Pieces& line = *s.pieces[lane];
      const uint32_t count = snapshot(s.page, now, &s.seen, tenants);
      if (s.index() < count) tenants[s.index()].overdue_ns = s.overdue(lane, now);
      decision = shoal_decide(&rules, tenants, count, s.index(), cost, since, now);
      if (line.full()) decision = {SHOAL_WAIT_BOUND, 0, now + kSpinNs};
      if (decision.verdict <= SHOAL_GO_SHARE) {
        // Show it before the turn is taken: who looks from then on sees it. Another has won: decide again.
        slot.claim_ns.store(cost, relaxed);
        uint64_t expected = epoch;
        if (header.turn.compare_exchange_strong(expected, epoch + 1, std::memory_order_acq_rel)) {
          const uint64_t start = slot.used_ns.load(relaxed) / s.weight;
          uint64_t fair = header.fair_ns.load(relaxed);
          while (fair < start && !header.fair_ns.compare_exchange_weak(fair, start, relaxed)) {
          }
          if (cost > shoal_bound(&rules, tenants, count, now)) add(slot.violations, 1);
          if (decision.verdict == SHOAL_GO_SHARE) add(slot.shares, 1);
          const uint32_t sequence = s.begin(lane, cost, now);
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
  const uint64_t now = now_ns();
  if (s.retire(lane)) line.since_ns = now;
  // On the shared lane all is done up to the oldest that is not.
  s.mark_done(lane, line.count == 0 ? slot.lane[lane].submitted.load(relaxed) : line.at(0).sequence - 1);
  s.publish_outstanding(now, true);
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
    if (line != nullptr) s.retire(lane);
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

}  // namespace shoal::device
