// What is known of each (kernel, grid, block): a file of fixed size that all tenants of a device map, so that it is
// persistent, shared and bounded. The least recently used entry of a bucket gives way. Entries are guarded by a sequence
// lock; a reader that meets a writer takes the entry for unknown, a writer that meets another drops its sample.
#pragma once

#include <cstdint>

#include "policy.h"

namespace shoal::device {

struct Key {
  uint64_t hash;  // of code and name of the kernel
  uint32_t grid[3], block[3];
};

class Profiles {
 public:
  static Profiles* open(const char* path);  // null on error; made when absent
  ShoalProfile look(const Key& key);
  // A piece has run: see shoal_learn. The last slice of a kernel, if it is shorter than the others, is not noted.
  void note(const Key& key, ShoalWay way, uint32_t blocks, uint64_t took_ns);

 private:
  struct File;
  explicit Profiles(File* file) : file_(file) {}
  File* file_;
};

uint64_t hash_bytes(const void* data, uint64_t size, uint64_t seed);

}  // namespace shoal::device
