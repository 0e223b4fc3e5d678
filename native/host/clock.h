// Time and waiting, shared by the library and shoal-pace.
#pragma once

#include <cerrno>
#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace shoal {

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

inline void sleep_until(uint64_t at_ns) {
  const timespec t{static_cast<time_t>(at_ns / 1'000'000'000u), static_cast<long>(at_ns % 1'000'000'000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

#if defined(__x86_64__)
inline bool has_tpause() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (1u << 5));  // WAITPKG
}

// About a microsecond in the light sleep state C0.1, which saves power and leaves more of the core to an SMT sibling.
__attribute__((target("waitpkg"))) inline void tpause() { _tpause(1, __rdtsc() + 2000); }
#else
inline bool has_tpause() { return false; }
inline void tpause() { pause(); }
#endif

// Spins until `at_ns`; `light` takes TPAUSE while there is time enough.
inline uint64_t burn_until(uint64_t at_ns, bool light) {
  for (;;) {
    const uint64_t now = now_ns();
    if (now >= at_ns) return now;
    if (light && at_ns - now > 4000) {
      tpause();
    } else {
      for (int i = 0; i < 8; ++i) pause();
    }
  }
}

}  // namespace shoal
