// What the shim knows of a kernel: the key of its profile, and the variants that its module has beside it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "profile.h"
#include "real.h"

namespace shoal::cuda {

// A variant takes the kernel's own parameters and these 32 bytes behind them (src/shoal/device/ptx says what they mean).
struct Extra {
  uint32_t grid[3], base;
  uint64_t control, unused;
};
static_assert(sizeof(Extra) == 32, "as the variants read it");

struct Kernel {
  std::string name;
  uint64_t hash = 0;
  bool collective = false;  // of NCCL: it waits for kernels on other devices, which wait for it
  mutable std::atomic<bool> whole_ran{false}, slice_ran{false};
  CUfunction slice = nullptr, ticket = nullptr;
  std::vector<size_t> sizes;  // of its parameters
  bool has_sizes = false;     // the driver told
  size_t extra_offset = 0;    // where a variant's last parameter begins
  // How many blocks of the slice variant the device runs at once; 0: the driver does not tell.
  uint32_t wave_blocks(uint32_t threads, uint32_t shared) const;
  uint32_t ways() const {
    return 1u << SHOAL_WHOLE | (slice != nullptr ? 1u << SHOAL_SLICE : 0) | (ticket != nullptr ? 1u << SHOAL_TICKET : 0);
  }

 private:
  mutable std::atomic<uint64_t> last_wave_{0};  // threads, shared memory and the answer
};

// Found at a kernel's first launch, and kept until its module is unloaded or its attributes change.
std::shared_ptr<const Kernel> kernel_of(CUfunction function, bool* is_new = nullptr);
void forget_kernel(CUfunction function);
// All that came from a module or a library, which is unloaded: its handles may mean something else next.
void forget_image(const void* module_or_library);

// Where a handle came from. Kernels of a library and functions of a module are asked by different calls, which do not check
// what they are given; the API takes either at a launch. A handle that came otherwise is asked nothing, and goes whole.
void note_kernel(CUkernel kernel, CUlibrary library);
void note_function(CUfunction function, CUmodule module);
void note_function_of(CUfunction function, CUkernel kernel);
// What was loaded as this module or library, in short.
void note_image(const void* module_or_library, uint64_t fingerprint);

// The profiles of this process; null when there are none.
device::Profiles* profiles();

}  // namespace shoal::cuda
