#include "streams.h"

#include "memory.h"
#include "ticket.h"
#include "trace.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shoal::cuda {
namespace {

using device::kLanes;

constexpr uint32_t kShared = kLanes - 1;  // of all streams that find no lane of their own
constexpr uint32_t kNone = kLanes;
constexpr uint32_t kBatch = 16;  // guaranteed launches that one mark is for
// A host that looked away from launches without a mark for kAwayNs, and then launched on: best-effort work waited for nothing.
// After two of the kind within kForgiven launches, each launch is marked until as many passed without one.
constexpr uint64_t kAwayNs = 1'000'000;
constexpr uint32_t kForgiven = 64;

thread_local char this_thread;  // its address names the thread

struct Key {
  CUstream stream;
  CUcontext context;   // of default streams, else null: other handles are the process's own
  const char* thread;  // of per-thread default streams
  bool operator==(const Key& other) const {
    return stream == other.stream && context == other.context && thread == other.thread;
  }
};

struct Hash {
  size_t operator()(const Key& key) const {
    return (reinterpret_cast<size_t>(key.stream) >> 4) * 31 + (reinterpret_cast<size_t>(key.context) >> 4) * 17 +
           reinterpret_cast<size_t>(key.thread);
  }
};

struct Line {  // a stream
  CUcontext context = nullptr;
  Gate* gate = nullptr;  // of its device
  std::atomic<uint32_t> lane{kNone};
};

struct Holder {  // of a lane
  std::mutex lock;
  std::atomic<Line*> line{nullptr};
  bool opened = false;
  // Guaranteed: the last launch with a mark, and the stream of those behind it, null when there are none.
  uint32_t marked = 0;
  CUstream left = nullptr;
  uint64_t left_at_ns = 0;
};

struct Lanes {  // of a gate
  std::array<Holder, kLanes> holders;
  // Where the device sees them.
  std::atomic<void*> registered{nullptr};
  CUcontext registered_by = nullptr;
  CUdeviceptr address = 0;
  std::atomic<bool> by_write{true};
};

// Streams that share the last lane finish there in the order in which they were submitted: a stream of the shim's own waits
// for each and marks it.
struct Collector {
  CUstream stream = nullptr;
  CUevent event = nullptr;
};

struct State {
  std::mutex lock;
  std::unordered_map<Key, Line*, Hash> lines;  // lines are never freed: a thread may hold one
  std::array<Lanes, device::kGates> lanes;  // by the gate's number
  std::unordered_map<CUcontext, Collector> collectors;
  std::unordered_map<CUdevice, Gate*> gates;
  std::atomic<uint32_t> looked_away{0};

  Lanes& of(const Gate* gate) { return lanes[gate->number()]; }
  Holder& holder(const Gate* gate, uint32_t lane) { return of(gate).holders[lane]; }
};

State* state = new State;
std::atomic<uint32_t> generation{1};  // the handles that threads remember may mean other streams now
std::atomic<bool> captures{false};

struct Recent {
  uint32_t generation = 0;
  Key key{};
  Line* line = nullptr;
};
thread_local Recent recent;

[[maybe_unused]] const bool watched = pthread_atfork(nullptr, nullptr, [] {
                                        state = new State;
                                        left_unmarked.store(0);
                                        generation.fetch_add(1);
                                      }) == 0;

void leave_none(Holder& holder) {
  if (holder.left != nullptr) left_unmarked.fetch_sub(1, std::memory_order_relaxed);
  holder.left = nullptr;
}

CUcontext current_context() {
  CUcontext context = nullptr;
  if (real.cuCtxGetCurrent != nullptr) real.cuCtxGetCurrent(&context);
  return context;
}

Key key_of(CUstream stream) {
  const bool usual = stream != kLegacyStream && stream != kPerThreadStream;
  return {stream, usual ? nullptr : current_context(), stream == kPerThreadStream ? &this_thread : nullptr};
}

Line* line_of(CUstream stream) {
  const Key key = key_of(stream);
  const uint32_t now = generation.load(std::memory_order_acquire);
  if (recent.generation == now && recent.key == key) return recent.line;
  const auto remember = [&](Line* line) { return (recent = {now, key, line}).line; };
  {
    const std::lock_guard<std::mutex> held(state->lock);
    const auto found = state->lines.find(key);
    if (found != state->lines.end()) return remember(found->second);
  }
  Line* const made = new Line;
  made->context = current_context();
  made->gate = gate_here();
  const std::lock_guard<std::mutex> held(state->lock);
  const auto [place, is_new] = state->lines.emplace(key, made);
  if (!is_new) delete made;  // another thread was faster
  return remember(place->second);
}

bool is_idle(Gate* gate, uint32_t lane) {
  return gate->done(lane)->load(std::memory_order_relaxed) ==
         gate->slot()->lane[lane].submitted.load(std::memory_order_relaxed);
}

// A lane for a stream that has none. In this order: an idle one whose stream is gone, a new one, an idle one of another stream.
void assign(Gate* gate, Line* line) {
  const std::lock_guard<std::mutex> held(state->lock);
  if (line->lane.load() < kShared) return;  // another thread was faster
  const auto take = [&](uint32_t lane) {
    Holder& holder = state->holder(gate, lane);
    const std::unique_lock<std::mutex> own(holder.lock, std::try_to_lock);
    if (!own || !is_idle(gate, lane)) return false;
    if (Line* before = holder.line.load()) before->lane.store(kNone);
    holder.line.store(line);
    line->lane.store(lane);
    return true;
  };
  for (uint32_t lane = 0; lane < kShared; lane++) {
    const Holder& holder = state->holder(gate, lane);
    if (holder.opened && holder.line.load() == nullptr && take(lane)) return;
  }
  const uint32_t opened = gate->open_lane();
  if (opened < kShared && !state->holder(gate, opened).opened) {
    state->holder(gate, opened).opened = true;
    state->holder(gate, opened).line.store(line);
    line->lane.store(opened);
    return;
  }
  for (uint32_t lane = 0; lane < kShared; lane++) {
    if (state->holder(gate, lane).opened && take(lane)) return;
  }
  line->lane.store(kShared);
}

void forget(CUstream stream) {
  const Key key = key_of(stream);
  const std::lock_guard<std::mutex> held(state->lock);
  const auto found = state->lines.find(key);
  if (found == state->lines.end()) return;
  const uint32_t lane = found->second->lane.exchange(kNone);
  if (lane < kShared) state->holder(found->second->gate, lane).line.store(nullptr);
  state->lines.erase(found);
  generation.fetch_add(1, std::memory_order_release);
}

// The streams of a context end with it, and so does all that was submitted to them.
void forget_context(CUcontext context) {
  const std::lock_guard<std::mutex> held(state->lock);
  for (auto at = state->lines.begin(); at != state->lines.end();) {
    Line* line = at->second;
    Gate* const gate = line->gate;
    if (line->context != context) {
      ++at;
      continue;
    }
    const uint32_t lane = line->lane.exchange(kNone);
    if (gate != nullptr && lane < kLanes) {
      gate->release(lane, gate->slot()->lane[lane].submitted.load(std::memory_order_relaxed), 0);
    }
    if (lane < kShared) {
      Holder& holder = state->holder(gate, lane);
      const std::unique_lock<std::mutex> own(holder.lock, std::try_to_lock);  // who marks holds it and wants the state's
      if (own) leave_none(holder);
      holder.line.store(nullptr);
    }
    at = state->lines.erase(at);
  }
  state->collectors.erase(context);
  for (Lanes& each : state->lanes) {
    if (context == each.registered_by) each.registered.store(nullptr);
  }
  generation.fetch_add(1, std::memory_order_release);
}

// Shows the slot's lanes to the device. False: it cannot write there.
bool show_lanes(Lanes& own, void* lanes) {
  const std::lock_guard<std::mutex> held(state->lock);
  if (own.registered.load() == lanes) return true;
  if (!own.by_write.load() || real.cuMemHostRegister_v2 == nullptr || real.cuMemHostGetDevicePointer_v2 == nullptr ||
      real.cuStreamWriteValue32_v2 == nullptr) {
    return false;
  }
  constexpr uintptr_t kPage = 4096;
  const auto first = reinterpret_cast<uintptr_t>(lanes) / kPage * kPage;
  const auto last = reinterpret_cast<uintptr_t>(lanes) + kLanes * sizeof(device::Lane);
  void* const start = reinterpret_cast<void*>(first);
  const size_t size = (last - first + kPage - 1) / kPage * kPage;
  const Relaxed relaxed;
  if (real.cuMemHostRegister_v2(start, size, kHostRegisterPortable | kHostRegisterDeviceMap) != CUDA_SUCCESS ||
      real.cuMemHostGetDevicePointer_v2(&own.address, start, 0) != CUDA_SUCCESS) {
    device::trace("note", "the page cannot be shown to the device: the driver calls back");
    own.by_write.store(false);
    return false;
  }
  own.address += reinterpret_cast<uintptr_t>(lanes) - first;
  own.registered_by = current_context();
  own.registered.store(lanes);
  return true;
}

Collector collector_of(CUcontext context) {
  const std::lock_guard<std::mutex> held(state->lock);
  Collector& collector = state->collectors[context];
  if (collector.stream == nullptr) {
    const Relaxed relaxed;
    if (forward(real.cuStreamCreateWithPriority, &collector.stream, kStreamNonBlocking, 0) != CUDA_SUCCESS ||
        forward(real.cuEventCreate, &collector.event, kEventDisableTiming) != CUDA_SUCCESS) {
      collector = {};
    }
  }
  return collector;
}

}  // namespace

std::atomic<uint32_t> left_unmarked{0};

Gate* gate_of(CUdevice device) {
  if (Gate::get() == nullptr) return nullptr;
  const std::lock_guard<std::mutex> held(state->lock);
  const auto found = state->gates.find(device);
  if (found != state->gates.end()) return found->second;
  unsigned char uuid[16] = {};
  char name[64] = "GPU-";
  if (forward(real.cuDeviceGetUuid_v2, reinterpret_cast<char*>(uuid), device) != CUDA_SUCCESS) {
    forward(real.cuDeviceGetUuid, reinterpret_cast<char*>(uuid), device);
  }
  for (int i = 0, at = 4; i < 16; i++) {
    at += snprintf(name + at, sizeof name - static_cast<size_t>(at), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
  }
  Gate* const gate = Gate::of(name);
  if (gate == nullptr) {
    fprintf(stderr, "shoal: this process has no place at the device %s: launches there are not gated\n", name);
  }
  return state->gates[device] = gate;
}

Gate* gate_here() {
  CUdevice device = 0;
  return forward(real.cuCtxGetDevice, &device) == CUDA_SUCCESS ? gate_of(device) : Gate::get();
}

Gate* gate_of(CUstream stream) { return line_of(stream)->gate; }

std::mutex& lane_lock(uint32_t gate, uint32_t lane) { return state->lanes[gate].holders[lane].lock; }

void expect_capture() { captures.store(true, std::memory_order_relaxed); }

bool is_capturing(CUstream stream) {
  if (!captures.load(std::memory_order_relaxed)) return false;
  int status = kCaptureNone;
  return forward(real.cuStreamIsCapturing, stream, &status) != CUDA_SUCCESS || status != kCaptureNone;
}

Relaxed::Relaxed() {
  // Also before the first capture: another thread may begin it while this one waits.
  changed_ = real.cuThreadExchangeStreamCaptureMode != nullptr &&
             real.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
}

Relaxed::~Relaxed() {
  if (changed_) real.cuThreadExchangeStreamCaptureMode(&mode_);
}

Lane::Lane(Gate* gate, CUstream stream) : gate_(gate), stream_(stream) {
  Line* line = line_of(stream);
  for (;;) {
    number_ = line->lane.load(std::memory_order_acquire);
    if (number_ >= kShared) {
      assign(gate, line);
      number_ = line->lane.load();
    }
    if (number_ == kNone) continue;
    Holder& holder = state->holder(gate, number_);
    held_ = std::unique_lock<std::mutex>(holder.lock);
    // Meanwhile another stream may have taken it.
    if (line->lane.load() == number_ && (number_ == kShared || holder.line.load() == line)) return;
    held_.unlock();
  }
}

bool Lane::mark_by_write(CUstream stream, uint32_t sequence) {
  void* const lanes = gate_->done(0);
  Lanes& own = state->of(gate_);
  if (own.registered.load(std::memory_order_relaxed) != lanes && !show_lanes(own, lanes)) return false;
  const auto offset = static_cast<CUdeviceptr>(reinterpret_cast<char*>(gate_->done(number_)) - static_cast<char*>(lanes));
  if (real.cuStreamWriteValue32_v2(stream, own.address + offset, sequence, 0) == CUDA_SUCCESS) return true;
  device::trace("note", "a stream cannot write to the page: the driver calls back");
  own.by_write.store(false);
  own.registered.store(nullptr);
  return false;
}

// Where the device cannot write to the page, the driver calls back once it has come this far in the stream.
bool Lane::mark_by_callback(CUstream stream, uint32_t sequence) {
  const auto packed = reinterpret_cast<void*>(uintptr_t{gate_->number()} << 48 | uintptr_t{number_} << 32 | sequence);
  const auto told = [](void* data) {
    const auto value = reinterpret_cast<uintptr_t>(data);
    if (Gate* gate = Gate::numbered(static_cast<uint32_t>(value >> 48))) {
      gate->release(static_cast<uint32_t>(value >> 32 & 0xffff), static_cast<uint32_t>(value), 0);
    }
  };
  return forward(real.cuLaunchHostFunc, stream, static_cast<CUhostFn>(told), packed) == CUDA_SUCCESS;
}

void Lane::mark(uint32_t sequence) {
  CUstream stream = stream_;
  if (number_ == kShared) {
    const Collector collector = collector_of(current_context());
    if (collector.stream != nullptr && forward(real.cuEventRecord, collector.event, stream_) == CUDA_SUCCESS &&
        forward(real.cuStreamWaitEvent, collector.stream, collector.event, 0u) == CUDA_SUCCESS) {
      stream = collector.stream;
    }
  }
  if (mark_by_write(stream, sequence) || mark_by_callback(stream, sequence)) return;
  gate_->release(number_, sequence, 0);  // none can tell its end: better forgotten than waited for
}

void Lane::mark_some_time(uint32_t sequence) {
  Holder& holder = state->holder(gate_, number_);
  const uint64_t now = gate_->slot()->last_active_ns.load(std::memory_order_relaxed);  // of this launch
  uint32_t away = state->looked_away.load(std::memory_order_relaxed);
  if (holder.left != nullptr && now > holder.left_at_ns + kAwayNs) {
    away = std::min(away + kForgiven, 2 * kForgiven + kForgiven);
  } else if (away > 0) {
    away--;
  }
  state->looked_away.store(away, std::memory_order_relaxed);
  // A per-thread stream can be marked by its thread only, and the last lane is many streams'.
  const bool alone = number_ == kShared || stream_ == kPerThreadStream || away >= 2 * kForgiven;
  if (alone || sequence - holder.marked >= kBatch) {
    leave_none(holder);
    holder.marked = sequence;
    mark(sequence);
    return;
  }
  if (holder.left == nullptr) left_unmarked.fetch_add(1, std::memory_order_relaxed);
  holder.left = stream_;
  holder.left_at_ns = now;
}

void mark_left_on(CUstream stream) {
  Line* line = line_of(stream);
  if (line->gate == nullptr || is_capturing(stream)) return;
  const uint32_t number = line->lane.load(std::memory_order_acquire);
  if (number >= kShared || state->holder(line->gate, number).left == nullptr) return;
  Lane lane(line->gate, stream);
  lane.mark_left();
}

void Lane::mark_left() {
  Holder& holder = state->holder(gate_, number_);
  if (holder.left == nullptr) return;
  leave_none(holder);
  holder.marked = gate_->slot()->lane[number_].submitted.load(std::memory_order_relaxed);
  mark(holder.marked);
}

void mark_left_everywhere() {
  const CUcontext context = current_context();
  std::vector<std::pair<CUstream, Line*>> all;
  {
    const std::lock_guard<std::mutex> held(state->lock);
    for (const auto& [key, line] : state->lines) {
      if (line->context == context && key.stream != kPerThreadStream) all.emplace_back(key.stream, line);
    }
  }
  for (const auto& [stream, line] : all) {
    const uint32_t number = line->lane.load(std::memory_order_acquire);
    if (line->gate != nullptr && number < kShared && state->holder(line->gate, number).left == stream) mark_left_on(stream);
  }
}

}  // namespace shoal::cuda

using namespace shoal::cuda;

CUresult cuStreamDestroy(CUstream stream) {
  mark_left(stream);
  forget(stream);
  return forward(real.cuStreamDestroy, stream);
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  mark_left(stream);
  forget(stream);
  return forward(real.cuStreamDestroy_v2, stream);
}

#define FLAVOUR(suffix)                                                                                                    \
  CUresult cuStreamBeginCapture##suffix(CUstream stream) {                                                                 \
    expect_capture();                                                                                                      \
    return forward(real.cuStreamBeginCapture##suffix, stream);                                                             \
  }                                                                                                                        \
  CUresult cuStreamBeginCapture_v2##suffix(CUstream stream, int mode) {                                                    \
    expect_capture();                                                                                                      \
    return forward(real.cuStreamBeginCapture_v2##suffix, stream, mode);                                                    \
  }                                                                                                                        \
  CUresult cuStreamBeginCaptureToGraph##suffix(CUstream stream, CUgraph graph, const CUgraphNode* after,                   \
                                               const CUgraphEdgeData* edges, size_t count, int mode) {                     \
    expect_capture();                                                                                                      \
    return forward(real.cuStreamBeginCaptureToGraph##suffix, stream, graph, after, edges, count, mode);                    \
  }
FLAVOUR()
FLAVOUR(_ptsz)

namespace {

// A context has ended, and with it its streams and its memory.
CUresult ended(CUresult result, CUcontext context) {
  if (result == CUDA_SUCCESS && context != nullptr) {
    forget_context(context);
    forget_memory(context);
    forget_tickets(context);
    Timing::forget(context);
  }
  return result;
}

bool has_primary(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return forward(real.cuDevicePrimaryCtxGetState, device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

CUcontext primary(CUdevice device) {
  CUcontext context = nullptr;
  if (has_primary(device) && forward(real.cuDevicePrimaryCtxRetain, &context, device) == CUDA_SUCCESS) {
    forward(real.cuDevicePrimaryCtxRelease_v2, device);
  }
  return context;
}

template <class Function>
CUresult leave_primary(Function function, CUdevice device) {
  const CUcontext context = Gate::get() != nullptr ? primary(device) : nullptr;
  const CUresult result = forward(function, device);
  return context == nullptr || has_primary(device) ? result : ended(result, context);
}

}  // namespace

CUresult cuCtxDestroy(CUcontext context) { return ended(forward(real.cuCtxDestroy, context), context); }
CUresult cuCtxDestroy_v2(CUcontext context) { return ended(forward(real.cuCtxDestroy_v2, context), context); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return leave_primary(real.cuDevicePrimaryCtxReset, device); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return leave_primary(real.cuDevicePrimaryCtxReset_v2, device); }
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return leave_primary(real.cuDevicePrimaryCtxRelease, device); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return leave_primary(real.cuDevicePrimaryCtxRelease_v2, device); }
