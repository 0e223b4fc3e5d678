// What the layer tells: messages for people, and a trace of launches for tests and benchmarks.
//
//   SHOAL_DEVICE_LOG    a file for messages; none: stderr
//   SHOAL_DEVICE_TRACE  a file that gets one line for each launch, piece and end, from all processes that name it, in order
#pragma once

#include <cstdint>
#include <string>

namespace shoal::device::opencl {

// A launch that could not be sliced, or not be gated at all. Counted by reason; told once for each kernel and reason.
void fall_back(const std::string& kernel, const std::string& reason);

bool tracing();
void trace(const char* what, const std::string& kernel, uint64_t first = 0, uint64_t blocks = 0, uint64_t of = 0);

}  // namespace shoal::device::opencl
