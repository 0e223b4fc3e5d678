// Copies and fills that kernels of the driver do: on the device, large ones of best-effort processes wait at the gate.
#pragma once

#include "launch.h"

namespace shoal::cuda {

constexpr uint64_t kSmallCopy = 1 << 20;  // bytes: shorter than any bound worth the name
constexpr uint64_t kBytesPerNs = 1000;    // a guess at device memory that reads and writes, 1 TB/s

template <class Function>
CUresult copy_on_device(CUstream stream, uint64_t bytes, Function start) {
  if (bytes < kSmallCopy) return start();
  Gate* gate = gate_for(stream);
  if (gate == nullptr || gate->cls() != SHOAL_BEST_EFFORT) return start();
  Lane lane(gate, stream);
  return piece(gate, lane, bytes / kBytesPerNs, [&](uint32_t) { return start(); });
}

}  // namespace shoal::cuda
