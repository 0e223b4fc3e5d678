// Text of OpenCL C programs: which may be launched in slices, and how they are changed for it. Pure; needs no OpenCL.
#pragma once

#include <cstdint>
#include <string>

namespace shoal::device::opencl {

// Why a program cannot be launched in slices; empty when it can. Looks at tokens, not at what they mean: what looks like a
// wait for another work-group is refused, since that group may be in a slice that has not begun.
std::string refusal(const std::string& source, const std::string& options);

// The program for launches in slices of a grid of `dimensions` dimensions, whose third one has `depth` groups.
//
// A slice is launched as a row of groups, in order of their linear number. Its global offset carries what ids are made
// of: the first group's number, and the grid's groups in x and y. Offsets of 32 bits are enough, and one build serves
// every grid of a kind. The changed text ends with a check that the program has not renamed what was put before it.
std::string specialise(const std::string& source, uint32_t dimensions, uint64_t depth);

}  // namespace shoal::device::opencl
