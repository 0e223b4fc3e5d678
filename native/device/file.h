// Files of fixed size that many processes map: made whole or not at all, opened with care.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal::device {

// Maps the file of `size` bytes at `path`; null and errno on error (see page_error). Its first word must be `magic`, its
// second `version`.
void* map_file(const char* path, size_t size, uint32_t magic, uint32_t version);

// Makes it with `contents` of `size` bytes, unless there is one: complete from the moment that it has its name. False and
// errno on error.
bool make_file(const char* path, const void* contents, size_t size);

}  // namespace shoal::device
