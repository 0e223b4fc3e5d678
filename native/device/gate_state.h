// What a gate keeps of its process: shared by the gate's calls (gate.cpp) and what makes gates (gates.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "gate.h"

namespace shoal::device {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr uint32_t kPieces = 1024;  // outstanding at once on one lane

inline void add(std::atomic<uint64_t>& counter, uint64_t by) { counter.store(counter.load(relaxed) + by, relaxed); }

inline uint32_t first_of(uint32_t bits) { return static_cast<uint32_t>(__builtin_ctz(bits)); }

// A message for people.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

struct Piece {
  uint32_t sequence;
  bool ended;
  uint64_t cost_ns;
};

// What was submitted on a lane and has not been seen to end, oldest first.
struct Pieces {
  std::array<Piece, kPieces> piece;
  uint32_t first = 0, count = 0;
  uint64_t since_ns = 0;  // when the oldest became the oldest
  Piece& at(uint32_t i) { return piece[(first + i) % kPieces]; }
  bool full() const { return count == kPieces; }
};

struct Gate::State {
  Page* page = nullptr;
  Slot* slot = nullptr;
  uint64_t owner = 0, bit = 0;  // its bit in Header::best_effort
  ShoalClass cls = SHOAL_GUARANTEED;
  uint32_t number = 0, weight = 1;
  uint64_t quota = 0;
  std::string name;

  std::mutex lanes_lock;
  std::array<bool, kLanes> open{};

  // Best effort. One thread waits, the others behind it; `pieces_lock` is held for moments only.
  std::mutex turnstile, pieces_lock;
  std::array<std::unique_ptr<Pieces>, kLanes> pieces;
  uint32_t busy = 0;  // a bit for each lane that has some
  Seen seen{};
  uint64_t outstanding_ns = 0;
  Slot nowhere{};  // where a process counts that has no place any more

  bool is_mine() const { return slot->owner.load(relaxed) == owner && slot->ready.load(relaxed) == owner; }

  bool enter() {
    Slot* found = join(page, cls, weight, quota, name.c_str());
    slot = found != nullptr ? found : &nowhere;
    bit = found != nullptr && cls == SHOAL_BEST_EFFORT ? uint64_t{1} << index() : 0;
    owner = slot->owner.load(relaxed);
    return found != nullptr;
  }

  // Another process took the slot: from another pid namespace this process looked gone. It starts anew.
  void enter_again() {
    const std::lock_guard<std::mutex> guard(lanes_lock);
    if (is_mine()) return;
    if (!enter()) say("this process lost its place at the device's gate, and there is no other: launches are not gated");
    for (auto& line : pieces) line.reset();
    busy = 0;
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
  bool retire(uint32_t lane) {
    Pieces& line = *pieces[lane];
    const uint32_t before = line.count;
    while (line.count > 0 && line.at(0).ended) {
      line.first = (line.first + 1) % kPieces;
      --line.count;
    }
    if (line.count == 0) busy &= ~(1u << lane);
    return line.count != before;
  }

  void end(Piece& piece) {
    if (piece.ended) return;
    piece.ended = true;
    outstanding_ns -= std::min(outstanding_ns, piece.cost_ns);
  }

  // Shows what is outstanding; `moved`: some of it has just ended.
  void publish_outstanding(uint64_t now, bool moved) {
    const bool one = busy != 0 && (busy & (busy - 1)) == 0;
    slot->running_ns.store(one ? pieces[first_of(busy)]->at(0).cost_ns : 0, relaxed);
    if (moved) slot->progress_ns.store(now, relaxed);
    slot->outstanding_ns.store(outstanding_ns, relaxed);
  }

  // Takes off what the device has finished.
  void collect(uint64_t now) {
    bool changed = false;
    for (uint32_t left = busy; left != 0; left &= left - 1) {
      const uint32_t lane = first_of(left);
      Pieces& line = *pieces[lane];
      const uint32_t done = slot->lane[lane].done.load(std::memory_order_acquire);
      for (uint32_t i = 0; i < line.count && static_cast<int32_t>(done - line.at(i).sequence) >= 0; ++i) {
        if (line.at(i).ended) continue;
        end(line.at(i));
        add(slot->ran_ns, line.at(i).cost_ns);
        changed = true;
      }
      if (retire(lane)) line.since_ns = now;
    }
    if (changed) publish_outstanding(now, true);
  }

  // Counts a piece of the lane as outstanding; returns its sequence number.
  uint32_t begin(uint32_t lane, uint64_t cost, uint64_t now) {
    Pieces& line = *pieces[lane];
    outstanding_ns += cost;
    add(slot->used_ns, cost);
    add(slot->pieces, 1);
    const uint32_t sequence = count(lane, now);
    if (line.count == 0) line.since_ns = now;
    line.at(line.count++) = {sequence, false, cost};
    busy |= 1u << lane;
    publish_outstanding(now, false);
    return sequence;
  }

  // See ShoalTenant::overdue_ns.
  uint64_t overdue(uint32_t lane, uint64_t now) {
    if (busy & 1u << lane) return 0;
    uint64_t most = 0;
    for (uint32_t left = busy; left != 0; left &= left - 1) {
      Pieces& line = *pieces[first_of(left)];
      const uint64_t expected = line.since_ns + line.at(0).cost_ns;
      if (now > expected) most = std::max(most, now - expected);
    }
    return most;
  }

  void publish_waiting(bool waits, uint64_t since) {
    slot->waiting_since_ns.store(waits ? since : 0, relaxed);
    slot->waiting.store(waits ? 1 : 0, std::memory_order_release);
  }
};

}  // namespace shoal::device
