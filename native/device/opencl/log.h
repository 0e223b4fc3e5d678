// What the layer tells: messages for people, and a trace of launches for tests and benchmarks.
//
//   SHOAL_DEVICE_LOG    a file for messages; none: stderr
//   SHOAL_DEVICE_TRACE  a file that gets one line for each launch, piece and end, from all processes that name it, in order
#pragma once

#include <cstdint>
#include <string>

namespace shoal::device::opencl {

// A launch that could not be treated as it should: `outcome`, and why. Counted; told once for each name and reason.
constexpr const char* kNotSliced = "is not sliced";
constexpr const char* kNotGated = "is not gated";
constexpr const char* kNotCounted = "is not counted";
void fall_back(const std::string& name, const char* outcome, const std::string& reason);

bool tracing();
void trace(const char* what, const std::string& kernel, uint64_t first = 0, uint64_t blocks = 0, uint64_t of = 0);

}  // namespace shoal::device::opencl
