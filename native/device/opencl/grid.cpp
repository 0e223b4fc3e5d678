#include "grid.h"

#include <algorithm>

namespace shoal::device::opencl {
namespace {

constexpr uint64_t kMostBlocks = 1u << 31;  // ids of a slice are made of 32-bit offsets
constexpr size_t kUsualLocal = 256, kLeastLocal = 16;

size_t divisor(size_t number, size_t most) {
  size_t found = std::min(number, most);
  while (found > 1 && number % found != 0) --found;
  return std::max<size_t>(found, 1);
}

}  // namespace

std::string lay_out(uint32_t dimensions, const size_t* offset, const size_t* global, const size_t* local, Grid* grid) {
  *grid = Grid{};
  grid->dimensions = dimensions;
  std::string reason;
  bool many = false;
  for (uint32_t d = 0; d < dimensions; ++d) {
    const size_t size = local == nullptr || local[d] == 0 ? 1 : local[d];
    grid->local[d] = size;
    grid->groups[d] = global[d] / size + (global[d] % size != 0);
    if (global[d] % size != 0) reason = "its work-groups are not all of one size";
    if (offset != nullptr && offset[d] != 0) reason = "it has a global offset of its own";
    many = many || grid->groups[d] >= kMostBlocks;
  }
  if (local == nullptr) reason = "it has no local size, and none suits the global size";
  // Two factors below 2^31 fit 64 bits; all three may not.
  if (many || grid->groups[0] * grid->groups[1] >= kMostBlocks || grid->blocks() >= kMostBlocks)
    reason = "it has too many work-groups";
  return reason;
}

bool choose_local(uint32_t dimensions, const size_t* global, size_t most, size_t local[3]) {
  size_t left = std::min(most, kUsualLocal), items = 1, all = 1;
  for (uint32_t d = 0; d < dimensions; ++d) {
    local[d] = divisor(global[d], left);
    left /= local[d];
    items *= local[d];
    all *= global[d];
  }
  return items >= std::min(kLeastLocal, all);
}

}  // namespace shoal::device::opencl
