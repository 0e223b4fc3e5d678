// What the layer tells people.
//
//   SHOAL_DEVICE_LOG    a file for messages; none: stderr
#pragma once

#include <cstdint>
#include <string>

#include "trace.h"

namespace shoal::device::opencl {

// A launch that could not be treated as it should: `outcome`, and why. Counted; told once for each name and reason.
constexpr const char* kNotSliced = "is not sliced";
constexpr const char* kNotGated = "is not gated";
constexpr const char* kNotCounted = "is not counted";
void fall_back(const std::string& name, const char* outcome, const std::string& reason);

}  // namespace shoal::device::opencl
