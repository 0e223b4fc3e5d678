#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "launch.h"

namespace shoal::cuda {
namespace {

constexpr size_t kMostPending = 8;  // of a lane

struct Sample {
  CUevent before, after;
  uint32_t sequence, blocks;
  device::Key key;
  ShoalWay way;
  CUcontext context;
};

struct Samples {  // of one lane, guarded by it
  std::vector<Sample> pending, spare;
};

using State = std::array<Samples, device::kLanes * device::kGates>;
State* state = new State;
[[maybe_unused]] const bool watched = pthread_atfork(nullptr, nullptr, [] { state = new State; }) == 0;

CUcontext current_context() {
  CUcontext context = nullptr;
  forward(real.cuCtxGetCurrent, &context);
  return context;
}

// Takes what has ended off the list. An event that fails, as one of a destroyed context does, is dropped.
void read_ended(Gate* gate, const Lane& lane) {
  Samples& samples = (*state)[lane.index()];
  for (size_t i = 0; i < samples.pending.size();) {
    Sample sample = samples.pending[i];
    const CUresult result = forward(real.cuEventQuery, sample.after);
    if (result == CUDA_ERROR_NOT_READY) {
      i++;
      continue;
    }
    float ms = 0;
    if (result == CUDA_SUCCESS && forward(real.cuEventElapsedTime, &ms, sample.before, sample.after) == CUDA_SUCCESS) {
      const auto took = static_cast<uint64_t>(ms * 1e6f) + 1;
      if (auto* known = profiles()) known->note(sample.key, sample.way, sample.blocks, took);
      gate->release(lane.number(), sample.sequence, took);
      samples.spare.push_back(sample);
    }
    samples.pending.erase(samples.pending.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace

void Timing::forget(CUcontext context) {
  const auto of_context = [=](const Sample& sample) { return sample.context == context; };
  for (uint32_t lane = 0; lane < state->size(); lane++) {
    Samples& samples = (*state)[lane];
    const std::lock_guard<std::mutex> held(lane_lock(lane / device::kLanes, lane % device::kLanes));
    for (auto* list : {&samples.pending, &samples.spare}) {
      list->erase(std::remove_if(list->begin(), list->end(), of_context), list->end());
    }
  }
}

void Timing::read(Gate* gate, Lane& lane) {
  if ((*state)[lane.index()].pending.empty()) return;
  const Relaxed relaxed;
  read_ended(gate, lane);
}

Timing::Timing(Lane& lane, bool wanted) : lane_(lane) {
  Samples& samples = (*state)[lane.index()];
  if (!wanted || samples.pending.size() >= kMostPending) return;
  const Relaxed relaxed;
  const CUcontext context = current_context();
  for (size_t i = 0; i < samples.spare.size(); i++) {
    if (samples.spare[i].context != context) continue;
    before_ = samples.spare[i].before;
    after_ = samples.spare[i].after;
    samples.spare.erase(samples.spare.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
  if (forward(real.cuEventCreate, &before_, kEventDefault) != CUDA_SUCCESS ||
      forward(real.cuEventCreate, &after_, kEventDefault) != CUDA_SUCCESS) {
    before_ = nullptr;
  }
}

void Timing::begin() {
  if (before_ != nullptr && forward(real.cuEventRecord, before_, lane_.stream()) != CUDA_SUCCESS) before_ = nullptr;
}

void Timing::end(uint32_t sequence, const device::Key& key, ShoalWay way, uint32_t blocks) {
  if (before_ == nullptr || forward(real.cuEventRecord, after_, lane_.stream()) != CUDA_SUCCESS) return;
  (*state)[lane_.index()].pending.push_back({before_, after_, sequence, blocks, key, way, current_context()});
}

}  // namespace shoal::cuda
