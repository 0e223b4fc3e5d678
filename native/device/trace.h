// A trace for tests, benchmarks and the first runs on a new machine.
//
//   SHOAL_DEVICE_TRACE  a file that gets one line for each launch, piece and end, from all processes that name it, in order
#pragma once

#include <cstdint>
#include <string>

namespace shoal::device {

bool tracing();
// One line: the process, `what`, a name and three numbers.
void trace(const char* what, const std::string& name, uint64_t first = 0, uint64_t blocks = 0, uint64_t of = 0);

// The file that a variable names, to append to; `otherwise` where there is none. One write a line keeps lines whole.
int open_named(const char* variable, int otherwise);
void write_line(int file, const std::string& line);

}  // namespace shoal::device
