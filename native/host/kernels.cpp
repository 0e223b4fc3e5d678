#include <algorithm>
#include <atomic>

#include "clock.h"
#include "shoal_host.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace {

constexpr size_t kChunk = 256u << 10;  // small enough to look at the clock often, large enough not to matter

void keep(const void *memory) { asm volatile("" ::"r"(memory) : "memory"); }

void nt_store([[maybe_unused]] unsigned char *at, [[maybe_unused]] size_t bytes) {
#if defined(__x86_64__)
  const __m128i value = _mm_set1_epi32(7);
  for (size_t i = 0; i < bytes; i += 16) _mm_stream_si128(reinterpret_cast<__m128i *>(at + i), value);
#endif
}

// A line's first word only: the whole line travels all the same, and the core is not what limits.
void store(unsigned char *at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) *reinterpret_cast<volatile uint64_t *>(at + i) = i;
}

void read(const unsigned char *at, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes; i += 64) sum += *reinterpret_cast<const uint64_t *>(at + i);
  asm volatile("" ::"r"(sum));
}

void triad(double *__restrict a, const double *__restrict b, const double *__restrict c, size_t count) {
  for (size_t i = 0; i < count; ++i) a[i] = b[i] + 3.0 * c[i];
  keep(a);
}

uint64_t spin() {
  uint64_t x = 1;
  for (int i = 0; i < 100'000; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(x));
  }
  return 100'000;
}

// Runs the kernel on the piece that begins at `from` and returns how much it moved.
uint64_t piece(int kernel, unsigned char *memory, size_t bytes, size_t from, size_t size) {
  switch (kernel) {
    case SHOAL_NT_STORE:
      nt_store(memory + from, size);
      return size;
    case SHOAL_STORE:
      store(memory + from, size);
      return size;
    case SHOAL_READ:
      read(memory + from, size);
      return size;
    case SHOAL_TRIAD: {  // three arrays in the same memory
      const size_t third = bytes / 3 / kChunk * kChunk;
      auto *a = reinterpret_cast<double *>(memory + from);
      triad(a, a + third / sizeof(double), a + 2 * third / sizeof(double), size / sizeof(double));
      return 3 * size;
    }
    default:
      return spin();
  }
}

}  // namespace

int shoal_kernel_run(int kernel, void *memory, size_t bytes, uint64_t for_ns, uint64_t *moved) {
#if !defined(__x86_64__)
  if (kernel == SHOAL_NT_STORE) return ENOTSUP;
#endif
  if (kernel < SHOAL_NT_STORE || kernel > SHOAL_SPIN) return EINVAL;
  const size_t span = (kernel == SHOAL_TRIAD ? bytes / 3 : bytes) / kChunk * kChunk;
  if (kernel != SHOAL_SPIN && (memory == nullptr || span == 0)) return EINVAL;
  const uint64_t end = shoal::now_ns() + for_ns;
  for (size_t from = 0; shoal::now_ns() < end; from = from + kChunk < span ? from + kChunk : 0) {
    const uint64_t done = piece(kernel, static_cast<unsigned char *>(memory), bytes, from, kChunk);
    __atomic_fetch_add(moved, done, __ATOMIC_RELAXED);
  }
  return 0;
}
