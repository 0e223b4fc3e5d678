// How one NDRange is divided into work-groups. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace shoal::device::opencl {

struct Grid {
  uint32_t dimensions = 1;
  uint64_t groups[3] = {1, 1, 1};
  size_t local[3] = {1, 1, 1};

  uint64_t blocks() const { return groups[0] * groups[1] * groups[2]; }
};

// Fills in `grid`, as well as it can. Returns why the range cannot be launched in slices; empty when it can.
std::string lay_out(uint32_t dimensions, const size_t* offset, const size_t* global, const size_t* local, Grid* grid);

// A local size for a program that leaves it to the runtime: divides `global`, at most `most` work-items. False when the
// groups would be too small to be of use.
bool choose_local(uint32_t dimensions, const size_t* global, size_t most, size_t local[3]);

}  // namespace shoal::device::opencl
