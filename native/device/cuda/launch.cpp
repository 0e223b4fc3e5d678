#include "launch.h"

#include "ticket.h"
#include "trace.h"

#include <algorithm>
#include <cstring>

namespace shoal::cuda {
namespace {

constexpr uint32_t kLearns = 8;    // launches of a kernel that are timed at first,
constexpr uint32_t kSamples = 32;  // and then one of this many

thread_local uint32_t launches = 0;

bool wants_timing(const ShoalProfile& profile) { return profile.seen < kLearns || ++launches % kSamples == 0; }

device::Key key_of(const Launch& launch, const Kernel& kernel) {
  device::Key key{kernel.hash, {}, {}};
  std::copy_n(launch.grid, 3, key.grid);
  std::copy_n(launch.block, 3, key.block);
  return key;
}

uint64_t blocks_of(const Launch& launch) { return uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2]; }

// The kernel's arguments with the variant's own behind them, in the form in which the program gave them.
class Arguments {
 public:
  Arguments(const Launch& launch, const Kernel& kernel, const Extra* own) {
    if (launch.params == nullptr && launch.extra != nullptr) {
      const void* given = nullptr;
      size_t size = 0;
      for (void** at = launch.extra; *at != kParamEnd; at += 2) {
        if (*at == kParamBufferPointer) given = at[1];
        if (*at == kParamBufferSize) size = *static_cast<size_t*>(at[1]);
      }
      buffer_.resize(kernel.extra_offset + sizeof *own);
      if (given != nullptr) memcpy(buffer_.data(), given, std::min(size, kernel.extra_offset));
      memcpy(buffer_.data() + kernel.extra_offset, own, sizeof *own);
      size_ = buffer_.size();
      extra_[1] = buffer_.data();
      return;
    }
    if (launch.params != nullptr) pointers_.assign(launch.params, launch.params + kernel.sizes.size());
    pointers_.push_back(const_cast<Extra*>(own));
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  void** params() { return buffer_.empty() ? pointers_.data() : nullptr; }
  void** extra() { return buffer_.empty() ? nullptr : extra_; }

 private:
  std::vector<void*> pointers_;
  std::vector<char> buffer_;
  size_t size_ = 0;
  void* extra_[5] = {kParamBufferPointer, nullptr, kParamBufferSize, &size_, kParamEnd};
};

}  // namespace

CUresult launch_variant(CUfunction variant, const Launch& launch, const Kernel& kernel, const Extra& own, uint32_t blocks) {
  Arguments arguments(launch, kernel, &own);
  Launch part = launch;
  part.function = variant;
  part.grid[0] = blocks;
  part.grid[1] = part.grid[2] = 1;
  part.params = arguments.params();
  part.extra = arguments.extra();
  // An early start of the next kernel is no matter of a slice.
  std::vector<CUlaunchAttribute> attributes;
  for (unsigned i = 0; i < launch.attribute_count; i++) {
    if (launch.attributes[i].id != kLaunchProgrammaticSerialization) attributes.push_back(launch.attributes[i]);
  }
  part.attributes = attributes.data();
  part.attribute_count = static_cast<unsigned>(attributes.size());
  return launch_whole(part);
}

namespace {

CUresult launch_slices(Gate* gate, Lane& lane, const Launch& launch, const Kernel& kernel, const device::Key& key,
                       const ShoalPlan& plan, bool timed) {
  const auto all = static_cast<uint32_t>(blocks_of(launch));
  for (uint32_t base = 0; base < all; base += plan.blocks) {
    const uint32_t blocks = std::min(plan.blocks, all - base);
    const Extra own{{launch.grid[0], launch.grid[1], launch.grid[2]}, base, 0, 0};
    Timing::read(gate, lane);
    Timing timing(lane, timed && blocks == plan.blocks && kernel.slice_ran.exchange(true, std::memory_order_relaxed));
    device::trace("slice", kernel.name, base, blocks, all);
    gate->count_part();
    const CUresult result = piece(gate, lane, plan.cost_ns, [&](uint32_t sequence) {
      timing.begin();
      const CUresult launched = launch_variant(kernel.slice, launch, kernel, own, blocks);
      if (launched == CUDA_SUCCESS) timing.end(sequence, key, SHOAL_SLICE, blocks);
      return launched;
    });
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

bool must_stay_whole(const CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case kLaunchCooperative:
    case kLaunchDeviceUpdatable:
      return attribute.value.number != 0;
    case kLaunchClusterDimension:
    case kLaunchPreferredCluster:
      return uint64_t{attribute.value.dims[0]} * attribute.value.dims[1] * attribute.value.dims[2] > 1;
    case kLaunchProgrammaticEvent:
    case kLaunchCompletionEvent:
      return true;
    default:
      return false;
  }
}

// What a hook does with a launch: `start` is the driver's own call, in the program's flavour.
template <class Function>
CUresult launched(Gate* gate, const Launch& launch, const Function& start) {
  return gate->cls() == SHOAL_GUARANTEED ? submit(gate, launch.stream, start) : launch_best_effort(gate, launch, start);
}

}  // namespace

CUresult launch_whole(const Launch& launch) {
  if (launch.attribute_count == 0) {
    return forward(real.cuLaunchKernel, launch.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                   launch.block[1], launch.block[2], launch.shared, launch.stream, launch.params, launch.extra);
  }
  CUlaunchConfig config{};
  config.gridDimX = launch.grid[0], config.gridDimY = launch.grid[1], config.gridDimZ = launch.grid[2];
  config.blockDimX = launch.block[0], config.blockDimY = launch.block[1], config.blockDimZ = launch.block[2];
  config.sharedMemBytes = launch.shared;
  config.hStream = launch.stream;
  config.attrs = const_cast<CUlaunchAttribute*>(launch.attributes);
  config.numAttrs = launch.attribute_count;
  return forward(real.cuLaunchKernelEx, &config, launch.function, launch.params, launch.extra);
}

uint64_t predict(const Launch& launch) {
  const auto kernel = kernel_of(launch.function);
  auto* known = profiles();
  const ShoalProfile profile = known != nullptr ? known->look(key_of(launch, *kernel)) : ShoalProfile{};
  return shoal_choose(&profile, 1u << SHOAL_WHOLE, blocks_of(launch), UINT64_MAX).cost_ns;
}

CUresult launch_best_effort(Gate* gate, const Launch& launch, Start whole) {
  const uint64_t blocks = blocks_of(launch);
  if (launch.function == nullptr || blocks == 0) return whole();  // the driver has something to say
  bool is_new = false;
  const auto kernel = kernel_of(launch.function, &is_new);
  if (is_new) gate->count_kernel(kernel->slice != nullptr || kernel->ticket != nullptr);
  const device::Key key = key_of(launch, *kernel);
  Lane lane(gate, launch.stream);
  Timing::read(gate, lane);
  auto* known = profiles();
  ShoalProfile profile = known != nullptr ? known->look(key) : ShoalProfile{};
  const uint32_t ways = launch.whole || blocks > INT32_MAX ? 1u << SHOAL_WHOLE : kernel->ways();
  if (kernel->slice != nullptr) profile.wave_blocks = kernel->wave_blocks(launch.block[0] * launch.block[1] * launch.block[2], launch.shared);
  ShoalPlan plan = shoal_choose(&profile, ways, blocks, gate->bound_ns());
  const bool timed = known != nullptr && wants_timing(profile);
  if (plan.way == SHOAL_SLICE) return launch_slices(gate, lane, launch, *kernel, key, plan, timed);
  // By ticket the call waits for the kernel's end, which may lie behind what waits for a later call.
  if (plan.way == SHOAL_TICKET && gate->overdue(lane.number())) {
    plan = shoal_choose(&profile, 1u << SHOAL_WHOLE, blocks, gate->bound_ns());
  }
  if (plan.way == SHOAL_TICKET) {
    CUresult result = CUDA_SUCCESS;
    device::trace("ticket", kernel->name, 0, blocks, blocks);
    if (launch_by_ticket(gate, lane, launch, *kernel, key, plan, &result)) return result;
    plan = shoal_choose(&profile, 1u << SHOAL_WHOLE, blocks, gate->bound_ns());
  }
  // The first launch in a process may load the code, and a collective's time is that of the devices it waits for.
  Timing timing(lane, timed && kernel->whole_ran.exchange(true, std::memory_order_relaxed) && !kernel->collective);
  device::trace(kernel->collective ? "collective" : "whole", kernel->name, 0, blocks, blocks);
  const auto start = [&](uint32_t sequence) {
    timing.begin();
    const CUresult result = whole();
    if (result == CUDA_SUCCESS) timing.end(sequence, key, SHOAL_WHOLE, static_cast<uint32_t>(blocks));
    return result;
  };
  return piece(gate, lane, plan.cost_ns, start, kernel->collective);
}

}  // namespace shoal::cuda

using namespace shoal::cuda;

#define FLAVOUR(suffix, per_thread)                                                                                            \
  CUresult cuLaunchKernel##suffix(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,  \
                                  unsigned shared, CUstream stream, void** params, void** extra) {                             \
    const auto start = [=] {                                                                                                   \
      return forward(real.cuLaunchKernel##suffix, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);                   \
    };                                                                                                                         \
    const CUstream on = explicit_stream(stream, per_thread);                                                                   \
    Gate* gate = gate_for(on);                                                                                                 \
    return gate == nullptr ? start()                                                                                           \
                           : launched(gate, {f, {gx, gy, gz}, {bx, by, bz}, shared, on, params, extra}, start);                \
  }                                                                                                                            \
  CUresult cuLaunchKernelEx##suffix(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {                 \
    const auto start = [=] { return forward(real.cuLaunchKernelEx##suffix, config, f, params, extra); };                       \
    if (config == nullptr) return start();                                                                                     \
    const CUstream on = explicit_stream(config->hStream, per_thread);                                                          \
    Gate* gate = gate_for(on);                                                                                                 \
    if (gate == nullptr) return start();                                                                                       \
    Launch launch{f,                                                                                                           \
                  {config->gridDimX, config->gridDimY, config->gridDimZ},                                                      \
                  {config->blockDimX, config->blockDimY, config->blockDimZ},                                                   \
                  config->sharedMemBytes,                                                                                      \
                  on,                                                                                                          \
                  params,                                                                                                      \
                  extra,                                                                                                       \
                  config->attrs,                                                                                               \
                  config->numAttrs};                                                                                           \
    launch.whole = std::any_of(config->attrs, config->attrs + config->numAttrs, must_stay_whole);                              \
    return launched(gate, launch, start);                                                                                      \
  }                                                                                                                            \
  CUresult cuLaunchCooperativeKernel##suffix(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
                                             unsigned bz, unsigned shared, CUstream stream, void** params) {                   \
    const auto start = [=] {                                                                                                   \
      return forward(real.cuLaunchCooperativeKernel##suffix, f, gx, gy, gz, bx, by, bz, shared, stream, params);               \
    };                                                                                                                         \
    const CUstream on = explicit_stream(stream, per_thread);                                                                   \
    Gate* gate = gate_for(on);                                                                                                 \
    if (gate == nullptr) return start();                                                                                       \
    return launched(gate, {f, {gx, gy, gz}, {bx, by, bz}, shared, on, params, nullptr, nullptr, 0, true}, start);              \
  }
FLAVOUR(, false)
FLAVOUR(_ptsz, true)
