#include "policy.h"

#include <algorithm>

namespace {

constexpr uint64_t kPollNs = 50'000;  // what only the device or a neighbour can change is looked at this often,
constexpr uint64_t kSlowPollNs = 1'000'000;  // down to this after a long wait: a part of it
constexpr uint64_t kSoonNs = 2'000;
constexpr uint64_t kLongestLookNs = 10'000'000;
constexpr uint64_t kNever = UINT64_MAX;
constexpr uint64_t kLaunchNs = 4'000;  // what one more launch costs on the device, where slices were not yet measured
constexpr uint32_t kMostSeen = (1u << 24) - 1;  // the file of profiles has so many bits for it
constexpr double kNotToBeHad = 1e9;
constexpr double kHostNs = 8'000;      // from the end of a piece until the next one begins, where none was launched ahead

uint64_t sub(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
uint64_t add(uint64_t a, uint64_t b) { return a > kNever - b ? kNever : a + b; }

uint64_t divide_up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

uint64_t scale(uint64_t value, uint64_t by, uint64_t per) {
  const auto wide = static_cast<unsigned __int128>(value) * by / per;
  return wide > kNever ? kNever : static_cast<uint64_t>(wide);
}

bool stuck(const ShoalRules& rules, const ShoalTenant& tenant, uint64_t now) {
  return tenant.pending != 0 && sub(now, tenant.progress_ns) >= rules.stuck_ns;
}

bool live(const ShoalRules& rules, const ShoalTenant& tenant, uint32_t cls, uint64_t now) {
  return tenant.cls == cls && !stuck(rules, tenant, now);
}

uint64_t grace(const ShoalRules& rules, const ShoalTenant& tenant) {
  return std::max(rules.grace_ns, std::min(tenant.gap_ns, rules.grace_most_ns));
}

uint64_t weight(const ShoalTenant& tenant) { return std::max<uint64_t>(tenant.weight, 1); }

constexpr uint32_t kFirsts = 3;
enum Mean : uint32_t { kWholeMean, kSliceMean, kTicketMean, kTicketWholeMean };

// Mean and mean absolute deviation, over about the last `weight`; at first the least.
void average(uint32_t* firsts, Mean which, uint64_t* mean, uint64_t* deviation, uint64_t sample, uint32_t weight) {
  const uint32_t shift = 2 * which, had = *mean == 0 ? 0 : *firsts >> shift & kFirsts;
  if (had < kFirsts) {
    *firsts = (*firsts & ~(kFirsts << shift)) | (had + 1) << shift;
    *mean = had == 0 ? sample : std::min(*mean, sample);
    *deviation = *mean / 8;
    return;
  }
  sample = std::min(sample, scale(*mean, 4, 1));
  const auto m = static_cast<int64_t>(*mean), x = static_cast<int64_t>(sample), n = static_cast<int64_t>(weight);
  const int64_t away = x > m ? x - m : m - x;
  *deviation = static_cast<uint64_t>(static_cast<int64_t>(*deviation) + (away - static_cast<int64_t>(*deviation)) / n);
  *mean = static_cast<uint64_t>(std::max<int64_t>(m + (x - m) / n, 1));
}

// See shoal_learn. `whole`: of all `blocks`. Slices within a quarter of their part of it are in use, and measured.
void trust_slices_again(ShoalProfile* known, uint64_t whole, uint32_t blocks) {
  const uint64_t part = scale(whole, known->slice_blocks, blocks);
  if (add(known->slice_ns, 2 * known->slice_dev_ns) <= add(part, part / 4)) return;
  known->slice_ns = std::min(known->slice_ns, 2 * part);
  known->slice_dev_ns = std::min(known->slice_dev_ns, known->slice_ns / 2);
  known->slice_ns -= divide_up(sub(known->slice_ns, part), 4);
  known->slice_dev_ns -= divide_up(known->slice_dev_ns, 4);
}

// When the minimum share or the longest wait lets a piece pass guaranteed work. The share is of all best-effort tenants
// that wait together, by weight: who has part s of the device's time waits (1 - s) / s times the length of a piece.
uint64_t due_at(const ShoalRules& rules, const ShoalTenant* tenants, size_t count, size_t self, uint64_t cost,
                uint64_t since, uint64_t now) {
  uint64_t due = rules.max_wait_ns ? add(since, rules.max_wait_ns) : kNever;
  if (rules.min_share_pm) {
    uint64_t all = weight(tenants[self]);
    for (size_t i = 0; i < count; ++i) {
      const ShoalTenant& other = tenants[i];
      if (i != self && live(rules, other, SHOAL_BEST_EFFORT, now) && other.waiting &&
          sub(now, other.last_active_ns) < kAwayNs) {
        all += weight(other);
      }
    }
    const uint64_t whole = scale(cost, 1000 * all, std::min(rules.min_share_pm, 1000u) * weight(tenants[self]));
    due = std::min(due, add(since, sub(whole, cost)));
  }
  return due;
}

}  // namespace

ShoalRules shoal_default_rules(void) {
  ShoalRules rules{};
  rules.bound_ns = 50'000;
  rules.grace_ns = 100'000;
  rules.grace_most_ns = 300'000;
  rules.idle_ns = 100'000'000;
  rules.idle_bound_ns = 2'000'000;
  rules.stuck_ns = 10'000'000'000;
  rules.quantum_ns = 2'000'000;
  return rules;
}

uint64_t shoal_bound(const ShoalRules* rules, const ShoalTenant* tenants, size_t count, uint64_t now) {
  for (size_t i = 0; i < count; ++i) {
    const ShoalTenant& tenant = tenants[i];
    if (!live(*rules, tenant, SHOAL_GUARANTEED, now)) continue;
    if (tenant.pending || sub(now, tenant.last_active_ns) < rules->idle_ns) return rules->bound_ns;
  }
  return std::max(rules->idle_bound_ns, rules->bound_ns);
}

ShoalDecision shoal_decide(const ShoalRules* rules, const ShoalTenant* tenants, size_t count, size_t self,
                           uint64_t cost, uint64_t since, uint64_t now) {
  const auto own = static_cast<uint32_t>(self);
  if (self >= count || tenants[self].cls != SHOAL_BEST_EFFORT) return {SHOAL_GO, own, now + 1};
  cost = std::max<uint64_t>(cost, 1);

  // Guaranteed work first: on the device, or here a moment ago.
  const uint64_t poll = std::min(std::max(sub(now, since) / 32, kPollNs), kSlowPollNs);
  ShoalDecision found{SHOAL_GO, own, 0};
  for (size_t i = 0; i < count; ++i) {
    const ShoalTenant& tenant = tenants[i];
    if (!live(*rules, tenant, SHOAL_GUARANTEED, now)) continue;
    if (tenant.pending) {
      if (found.verdict != SHOAL_WAIT_BUSY) found = {SHOAL_WAIT_BUSY, static_cast<uint32_t>(i), now + poll};
      continue;
    }
    const uint64_t quiet_at = add(tenant.last_active_ns, grace(*rules, tenant));
    if (now < quiet_at && found.verdict != SHOAL_WAIT_BUSY && quiet_at > found.look_at_ns) {
      found = {SHOAL_WAIT_GRACE, static_cast<uint32_t>(i), quiet_at};
    }
  }
  const bool quiet = found.verdict == SHOAL_GO;
  const uint64_t due = due_at(*rules, tenants, count, self, cost, since, now);
  const uint64_t overdue = tenants[self].overdue_ns;
  const bool passes = due <= now || overdue >= kLongOverdueNs;
  const auto waits = [&](uint32_t verdict, uint32_t cause, uint64_t look_at) {
    look_at = std::min(look_at, now + kLongestLookNs);
    if (due > now) look_at = std::min(look_at, due);
    return ShoalDecision{verdict, cause, std::max(look_at, now + 1)};
  };
  if (!quiet && !passes) return waits(found.verdict, found.cause, found.look_at_ns);

  // Enough left on the device? It may be faster than predicted: look when half of that is over, and again.
  uint64_t left = 0, most = 0;
  bool any = false;
  uint32_t holder = own;
  for (size_t i = 0; i < count; ++i) {
    if (!live(*rules, tenants[i], SHOAL_BEST_EFFORT, now)) continue;
    const ShoalTenant& tenant = tenants[i];
    any = any || tenant.outstanding_ns;
    left = add(left, sub(tenant.outstanding_ns, std::min(tenant.running_ns, sub(now, tenant.progress_ns))));
    if (tenant.outstanding_ns > most) most = tenant.outstanding_ns, holder = static_cast<uint32_t>(i);
  }
  const uint64_t bound = shoal_bound(rules, tenants, count, now);
  if (any && overdue < kOverdueNs && add(left, cost) > bound) {
    const uint64_t drains = cost > bound ? left : add(left, cost) - bound;
    const uint64_t late = sub(sub(now, tenants[holder].progress_ns), tenants[holder].running_ns) / 8;
    return waits(SHOAL_WAIT_BOUND, holder, add(now, std::max({drains / 2, std::min(late, kPollNs), kSoonNs})));
  }
  if (!quiet) return {SHOAL_GO_SHARE, own, now + 1};
  if (passes || overdue >= kOverdueNs) return {SHOAL_GO, own, now + 1};

  // Whose turn? The one that had least goes, and any other that stays within a quantum of it.
  uint64_t least = kNever;
  uint32_t first = own;
  for (size_t i = 0; i < count; ++i) {
    const ShoalTenant& other = tenants[i];
    if (i == self || !other.waiting || !live(*rules, other, SHOAL_BEST_EFFORT, now)) continue;
    if (sub(now, other.last_active_ns) >= kAwayNs) continue;
    const uint64_t had = other.used_ns / weight(other);
    if (had < least) least = had, first = static_cast<uint32_t>(i);
  }
  const ShoalTenant& me = tenants[self];
  if (me.used_ns / weight(me) > least && add(me.used_ns, cost) / weight(me) > add(least, rules->quantum_ns)) {
    return waits(SHOAL_WAIT_TURN, first, now + kPollNs);
  }
  return {SHOAL_GO, own, now + 1};
}

uint64_t shoal_next_gap(const ShoalRules* rules, uint64_t estimate, uint64_t gap) {
  if (gap > rules->grace_most_ns) return estimate;
  if (estimate == 0) return gap;
  // Steps in the ratio 19 to 1 balance where 95 % of the gaps are shorter; they are parts of the estimate, so that it
  // follows from microseconds to milliseconds.
  if (gap > estimate) return std::min(estimate + estimate * 19 / 200 + 1, rules->grace_most_ns);
  return estimate - estimate / 200;
}

uint64_t shoal_start(const ShoalRules* rules, uint64_t used, uint32_t weight, uint64_t fair) {
  return std::max(used, scale(sub(fair, rules->quantum_ns), std::max(weight, 1u), 1));
}

ShoalPlan shoal_choose(const ShoalProfile* profile, uint32_t ways, uint64_t blocks, uint64_t bound) {
  const ShoalProfile& known = *profile;
  blocks = std::max<uint64_t>(blocks, 1);
  const uint64_t wave = std::max(known.wave_blocks, 1u);
  const uint64_t all = divide_up(blocks, wave), sliced = divide_up(known.slice_blocks, wave);
  const bool measured = known.slice_ns && sliced && sliced < all;

  // The mean time of a slice: what a launch costs, and each wave of blocks. Through the measured slice and the whole
  // kernel; where that has no sense, or one is not known, through the other and a usual launch.
  double launch = kLaunchNs, each = 0, doubt = 0;
  auto whole = static_cast<double>(known.whole_ns);
  if (measured) {
    const auto n = static_cast<double>(sliced), t = static_cast<double>(known.slice_ns);
    doubt = 2 * static_cast<double>(known.slice_dev_ns) / t;
    if (known.whole_ns) {
      each = (whole - t) / (static_cast<double>(all) - n);
      launch = t - each * n;
    }
    if (launch < 0 || each <= 0) {
      launch = std::min<double>(kLaunchNs, t);
      each = (t - launch) / n;
    }
    if (!known.whole_ns) whole = launch + each * static_cast<double>(all);
  } else {
    if (known.whole_ns) doubt = 2 * static_cast<double>(known.whole_dev_ns) / whole;
    if (!known.whole_ns) whole = kUnknownNs;
    each = std::max(whole - launch, 0.0) / static_cast<double>(all);
  }
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX));
  const uint64_t predicted =
      known.whole_ns ? known.whole_ns + 2 * known.whole_dev_ns : static_cast<uint64_t>(whole * (1 + doubt));
  if (predicted <= bound) return {SHOAL_WHOLE, most, predicted, 0, 0};

  if ((ways & (1u << SHOAL_SLICE)) && all > 1) {
    // Waves that fit into a time, at least one.
    const auto waves = [&](double room) {
      const double fit = each > 0 ? std::max(room / (1 + doubt) - launch, 0.0) / each : static_cast<double>(all);
      return static_cast<uint64_t>(std::min(fit, static_cast<double>(std::min(all - 1, UINT32_MAX / wave))));
    };
    const auto time = [&](uint64_t n) { return (launch + each * static_cast<double>(n)) * (1 + doubt); };
    // What slices of n waves add to the time of their blocks; not to be had where launches alone add over a quarter. The
    // next one is launched when it fits the bound beside what is left of the one before: too late, and the device waits.
    const auto limit = static_cast<double>(bound);
    const auto added = [&](uint64_t n) {
      const double blocks_ns = each * static_cast<double>(n);
      if (time(n) > limit || launch > 0.25 * blocks_ns) return kNotToBeHad;
      return (launch + std::max(kHostNs - (limit - time(n)), 0.0)) / blocks_ns;
    };
    uint64_t n = std::max<uint64_t>(waves(limit), 1);
    const uint64_t ahead = std::max<uint64_t>(waves(limit - kHostNs), 1);
    if (added(ahead) < added(n)) n = ahead;
    if (measured && added(sliced) <= added(n) + 0.05) n = sliced;
    // One wave tells how long a block takes; until then they go one after the other.
    if (!known.seen) return {SHOAL_SLICE, static_cast<uint32_t>(wave), std::max(bound, uint64_t{1}), 0, 0};
    if (added(n) < kNotToBeHad) {
      const uint64_t even = divide_up(all, divide_up(all, n));
      return {SHOAL_SLICE, static_cast<uint32_t>(even * wave), static_cast<uint64_t>(time(even)), 0, 0};
    }
  }
  if (ways & (1u << SHOAL_TICKET)) {
    const uint64_t stop = known.ticket_ns ? known.ticket_ns : std::min(predicted, bound);
    if (stop <= bound) return {SHOAL_TICKET, most, stop, 0, 0};
  }
  return {SHOAL_WHOLE, most, predicted, 1, 0};
}

void shoal_learn(ShoalProfile* profile, uint32_t way, uint32_t blocks, uint64_t took) {
  ShoalProfile& known = *profile;
  took = std::max<uint64_t>(took, 1);
  if (known.seen < kMostSeen) ++known.seen;
  const uint32_t weight = std::min(known.seen, 8u);
  uint64_t unused = 0;
  switch (way) {
    case SHOAL_WHOLE:
      average(&known.firsts, kWholeMean, &known.whole_ns, &known.whole_dev_ns, took, weight);
      if (blocks && known.slice_ns) trust_slices_again(&known, known.whole_ns, blocks);
      break;
    case SHOAL_SLICE:
      if (known.slice_blocks != blocks) known.slice_ns = known.slice_dev_ns = 0;
      known.slice_blocks = blocks;
      average(&known.firsts, kSliceMean, &known.slice_ns, &known.slice_dev_ns, took, weight);
      break;
    case SHOAL_TICKET:
      if (blocks == 0) {
        average(&known.firsts, kTicketMean, &known.ticket_ns, &unused, took, weight);
      } else {
        average(&known.firsts, kTicketWholeMean, &known.ticket_whole_ns, &unused, took, weight);
        if (known.slice_ns) trust_slices_again(&known, known.ticket_whole_ns, blocks);
      }
      break;
  }
}
