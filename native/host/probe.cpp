#include <sys/mman.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "clock.h"
#include "shoal_host.h"

namespace {
constexpr size_t kLine = 64;

struct Random {  // xorshift64 (Marsaglia 2003): the same cycle on every machine
  uint64_t state = 88172645463325252u;
  uint64_t operator()() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
};
}  // namespace

uint32_t shoal_host_abi() { return SHOAL_HOST_ABI; }

void *shoal_memory_new(size_t bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_HUGEPAGE);  // else TLB misses would be measured too
  std::memset(memory, 1, bytes);
  return memory;
}

void shoal_memory_free(void *memory, size_t bytes) { munmap(memory, bytes); }

int shoal_probe_lay(void *memory, size_t bytes) try {
  const size_t lines = bytes / kLine;
  if (lines < 2 || lines > UINT32_MAX) return EINVAL;
  std::vector<uint32_t> order(lines);
  std::iota(order.begin(), order.end(), 0u);
  Random random;
  for (size_t i = lines - 1; i > 0; --i) std::swap(order[i], order[random() % i]);  // Sattolo: one single cycle
  auto *base = static_cast<unsigned char *>(memory);
  for (size_t i = 0; i < lines; ++i) {
    const uint64_t next = kLine * order[i + 1 < lines ? i + 1 : 0];
    std::memcpy(base + kLine * order[i], &next, sizeof next);
  }
  return 0;
} catch (const std::bad_alloc &) {
  return ENOMEM;
}

double shoal_probe_shot(const void *memory, uint64_t *cursor, uint32_t loads) {
  const auto *base = static_cast<const volatile unsigned char *>(memory);
  uint64_t at = *cursor;
  const uint64_t began = shoal::now_ns();
  for (uint32_t i = 0; i < loads; ++i) at = *reinterpret_cast<const volatile uint64_t *>(base + at);
  const uint64_t took = shoal::now_ns() - began;
  *cursor = at;
  return static_cast<double>(took) / loads;
}
