// A token bucket without tokens: the generic cell rate algorithm (ITU-T I.371). All that takers share is the time at
// which the next byte is due, so one compare-and-swap admits a chunk, from any number of threads and processes.
#include <algorithm>
#include <cstring>

#include "clock.h"
#include "shoal_host.h"

namespace {

constexpr uint64_t kChunk = 64u << 10;  // what may go at full speed at once: 2.5 us at 26 GB/s
constexpr uint64_t kSleepNs = 150'000;  // shorter waits are spun: an ordinary thread's timers are 50 us late

uint64_t relaxed(const uint64_t &field) { return __atomic_load_n(&field, __ATOMIC_RELAXED); }

uint64_t duration_ns(uint64_t bytes, uint64_t bytes_per_s) {
  return static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_s));
}

// When these bytes may go: books them, and does not wait.
uint64_t admit(shoal_bucket &bucket, uint64_t bytes, uint64_t now) {
  const uint64_t rate = relaxed(bucket.bytes_per_s);
  const uint64_t until = relaxed(bucket.until_ns);
  __atomic_fetch_add(&bucket.taken_bytes, bytes, __ATOMIC_RELAXED);
  if (rate == 0 || now >= until) return now;
  const uint64_t cost = duration_ns(bytes, rate);
  const uint64_t saved = duration_ns(relaxed(bucket.burst_bytes), rate);
  const uint64_t earliest = now > saved ? now - saved : 0;
  uint64_t due = relaxed(bucket.next_ns);
  uint64_t start;
  do {
    // What was booked at a lower rate than today's, or before a crash, holds nobody up for longer than one chunk.
    start = std::max(earliest, std::min(due, now + 64 * cost));
  } while (!__atomic_compare_exchange_n(&bucket.next_ns, &due, start + cost, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return std::min(start, until);
}

void take_chunk(shoal_bucket &bucket, uint64_t bytes) {
  const uint64_t now = shoal::now_ns();
  const uint64_t at = admit(bucket, bytes, now);
  if (at <= now) return;
  if (at - now > kSleepNs) shoal::sleep_until(at - kSleepNs / 2);
  __atomic_fetch_add(&bucket.waited_ns, shoal::burn_until(at, false) - now, __ATOMIC_RELAXED);
}

}  // namespace

void shoal_bucket_take(shoal_bucket *bucket, uint64_t bytes) {
  for (uint64_t taken = 0; taken < bytes; taken += kChunk) take_chunk(*bucket, std::min(kChunk, bytes - taken));
}

void shoal_bucket_copy(shoal_bucket *bucket, void *to, const void *from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kChunk) {
    const size_t size = std::min<size_t>(kChunk, bytes - at);
    take_chunk(*bucket, size);
    std::memcpy(static_cast<unsigned char *>(to) + at, static_cast<const unsigned char *>(from) + at, size);
  }
}
