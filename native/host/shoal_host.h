// The C interface of libshoalhost, bound by src/shoal/host/linux/native.py. Functions keep no global state, may be called
// from any thread, and return 0 or a positive errno where they return int.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SHOAL_HOST_ABI 1
#define SHOAL_API extern "C" __attribute__((visibility("default")))

SHOAL_API uint32_t shoal_host_abi();

// Memory of `bytes`, in huge pages where the kernel has them, touched. Null when there is not enough.
SHOAL_API void *shoal_memory_new(size_t bytes);
SHOAL_API void shoal_memory_free(void *memory, size_t bytes);

// Latency probe: lays a random cycle through all cache lines of `memory`, then follows it for `loads` dependent loads,
// starting where the last shot ended (`cursor`, 0 at first). Returns nanoseconds per load.
SHOAL_API int shoal_probe_lay(void *memory, size_t bytes);
SHOAL_API double shoal_probe_shot(const void *memory, uint64_t *cursor, uint32_t loads);

// Core-to-core ping-pong: one cache line handed to and fro by two threads pinned to the two CPUs. `best_ns` is what one
// handover took in the fastest of `repeats` runs of `rounds` round trips. ETIMEDOUT when no run ended in `limit_ns`.
SHOAL_API int shoal_pingpong(
    int cpu_a, int cpu_b, uint32_t rounds, uint32_t repeats, uint64_t limit_ns, double *best_ns);

// Memory kernels. Runs one over `memory` again and again until `for_ns` are over; adds the bytes moved to `moved` all
// along (it may lie in shared memory), or loop rounds for SPIN. ENOTSUP where the processor lacks it.
enum shoal_kernel { SHOAL_NT_STORE, SHOAL_STORE, SHOAL_READ, SHOAL_TRIAD, SHOAL_SPIN };
SHOAL_API int shoal_kernel_run(int kernel, void *memory, size_t bytes, uint64_t for_ns, uint64_t *moved);
