// The policy of one shared device: pure functions, compiled once, and the same for shims, tests and the simulator.
// C linkage and plain structs, so that Python binds them as they stand (src/shoal/device/policy.py mirrors the layout).
// Times are nanoseconds of CLOCK_MONOTONIC, or of the simulator's clock.
#pragma once

#include <cstddef>
#include <cstdint>

#define SHOAL_API __attribute__((visibility("default")))

extern "C" {

constexpr uint64_t kAwayNs = 50'000'000;  // gates look at least every 10 ms
constexpr uint64_t kUnknownNs = 200'000;  // what an unknown kernel is taken for
// A piece that runs so much longer than predicted may wait for a later one of its process, in another stream: that one then
// passes the bound, and after the longer time guaranteed work, which waits behind the first.
constexpr uint64_t kOverdueNs = 1'000'000, kLongOverdueNs = 100'000'000;

enum ShoalClass : uint32_t { SHOAL_FREE = 0, SHOAL_GUARANTEED = 1, SHOAL_BEST_EFFORT = 2 };

// What is asked of a device, for all its tenants.
struct ShoalRules {
  uint64_t bound_ns;      // T: best-effort work left on the device while guaranteed work was here lately
  uint64_t grace_ns;      // least silence of guaranteed work before best-effort work may start
  uint64_t grace_most_ns; // the grace follows a tenant's own gaps between launches, up to this
  uint64_t idle_ns;       // after this much silence of all guaranteed tenants best-effort kernels go whole
  uint64_t idle_bound_ns; // outstanding then
  uint64_t stuck_ns;      // a tenant that has launches pending and makes no progress for this long is ignored
  uint64_t quantum_ns;    // how far one best-effort tenant may be ahead of another, by used_ns / weight
  uint64_t max_wait_ns;   // a best-effort launch waits at most this long; 0: for ever
  uint32_t min_share_pm;  // of the device's time, in thousandths, for best-effort work; 0: none
  uint32_t reserved;
};

// One tenant as a snapshot of its slot in the page.
struct ShoalTenant {
  uint32_t cls;             // ShoalClass
  uint32_t weight;          // best-effort: share among its kind, from 1
  uint32_t pending;         // launches submitted and not done
  uint32_t waiting;         // best-effort: it waits for the device now
  uint64_t last_active_ns;  // last launch, last progress seen, or, while it waits, when it last looked
  uint64_t progress_ns;     // when `done` last moved, or the first pending launch was submitted
  uint64_t gap_ns;          // guaranteed: p95 of the gaps between its launches (see shoal_next_gap)
  uint64_t outstanding_ns;  // best-effort: predicted time of what it has on the device
  uint64_t running_ns;      // best-effort: the part of it that runs since progress_ns, if that is one piece; else 0
  uint64_t used_ns;         // best-effort: its fair clock, device time it has had since it began; see shoal_start
  uint64_t overdue_ns;      // the one that asks: by how much work of its own exceeds its prediction, in other streams than the
                            // one it asks for, where nothing of it is outstanding; 0: none does
};

enum ShoalVerdict : uint32_t {
  SHOAL_GO = 0,
  SHOAL_GO_SHARE = 1,      // the minimum share, the longest wait or overdue work lets it pass guaranteed work: counted
  SHOAL_WAIT_BUSY = 2,     // a guaranteed tenant has work on the device
  SHOAL_WAIT_GRACE = 3,    // it was here a moment ago
  SHOAL_WAIT_BOUND = 4,    // enough best-effort work is outstanding
  SHOAL_WAIT_TURN = 5,     // another best-effort tenant comes first
};

struct ShoalDecision {
  uint32_t verdict;  // ShoalVerdict
  uint32_t cause;    // which tenant it waits for: an index into `tenants`; its own when none
  uint64_t look_at_ns;  // when to decide again at the latest
};

// May tenant `self` put a piece of `cost_ns` on the device now? `since_ns`: when it began to wait. Guaranteed: always.
// A piece longer than the bound goes when nothing else of best-effort work is outstanding (the caller counts a violation).
// A waiting tenant that has not looked for kAwayNs holds up no other: it is stopped, or gone.
SHOAL_API ShoalDecision shoal_decide(const ShoalRules* rules, const ShoalTenant* tenants, size_t count, size_t self,
                                     uint64_t cost_ns, uint64_t since_ns, uint64_t now_ns);

// How much best-effort work may be outstanding at `now_ns`: bound_ns, or idle_bound_ns once guaranteed work is long silent.
SHOAL_API uint64_t shoal_bound(const ShoalRules* rules, const ShoalTenant* tenants, size_t count, uint64_t now_ns);

// The next estimate of the p95 gap in which a guaranteed tenant had nothing on the device, after one more launch: 0 when
// there was something (stochastic approximation of a quantile; gaps over the most are not of one request and change nothing).
SHOAL_API uint64_t shoal_next_gap(const ShoalRules* rules, uint64_t estimate_ns, uint64_t gap_ns);

// What a best-effort tenant's fair clock is set to when it begins to wait: its own, but not more than a quantum behind the
// page's (start-time fair queueing), so that time away is no credit. `fair_ns`: used_ns / weight of the last that went.
SHOAL_API uint64_t shoal_start(const ShoalRules* rules, uint64_t used_ns, uint32_t weight, uint64_t fair_ns);

// How a kernel is launched.
enum ShoalWay : uint32_t { SHOAL_WHOLE = 0, SHOAL_SLICE = 1, SHOAL_TICKET = 2 };

// What the profile knows of one (kernel, grid, block); 0 of a mean means never seen.
struct ShoalProfile {
  uint64_t whole_ns, whole_dev_ns;   // mean and mean absolute deviation
  uint64_t slice_ns, slice_dev_ns;   // of one slice of `slice_blocks`
  uint64_t ticket_ns;                // from stop to end: one resident wave
  uint64_t ticket_whole_ns;          // the whole kernel by ticket
  uint32_t slice_blocks;
  uint32_t seen;
  uint32_t wave_blocks;  // how many of its blocks the device runs at once; 0: not known (the front end fills it in)
  uint32_t firsts;       // of each mean how many samples it began with, three at most: two bits each, in the order above
};

struct ShoalPlan {
  uint32_t way;     // ShoalWay
  uint32_t blocks;  // of one slice
  uint64_t cost_ns; // predicted, of one piece
  uint32_t violates; // its piece is longer than the bound and no way makes it shorter
  uint32_t reserved;
};

// Whole if it fits the bound; else slices that fit it, of the size that costs least, if they slow the kernel down by at
// most a quarter; else ticket; else whole, counted. Slices a little shorter than the bound may be the best: the next one is
// launched before the one before has ended. A measured size is kept where another is hardly better. `ways`: bits
// 1 << ShoalWay that the kernel can do. An unknown kernel is taken for 200 us; if it can be sliced, its first slices are of
// one wave, one after the other: they tell how long a block takes.
SHOAL_API ShoalPlan shoal_choose(const ShoalProfile* profile, uint32_t ways, uint64_t blocks, uint64_t bound_ns);

// What is known after one more piece has run: `way` of `blocks` blocks, in `took_ns`. By ticket: a whole kernel (`blocks` as
// many as its grid), or, with 0 blocks, from stop to end. Slices of one size only: another size begins anew. A mean begins as
// the least of its first three samples: what loads code or finds cold caches takes longer than it will. Later a sample counts
// as at most four times the mean, so that one that something disturbed does not decide alone. Slices that seem too slow to
// be used would never be measured again: each whole run brings what is known of them nearer to their part of the kernel.
SHOAL_API void shoal_learn(ShoalProfile* profile, uint32_t way, uint32_t blocks, uint64_t took_ns);

// What is asked where nothing else was asked for.
SHOAL_API ShoalRules shoal_default_rules(void);

}  // extern "C"
