#include "trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace shoal::device {

int open_named(const char* variable, int otherwise) {
  const char* path = std::getenv(variable);
  if (path == nullptr || *path == '\0') return otherwise;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  return file < 0 ? otherwise : file;
}

void write_line(int file, const std::string& line) {
  if (::write(file, line.data(), line.size()) < 0) return;  // a full disk stops no launch
}

namespace {

int trace_file() {
  static const int file = open_named("SHOAL_DEVICE_TRACE", -1);
  return file;
}

}  // namespace

bool tracing() { return trace_file() >= 0; }

void trace(const char* what, const std::string& name, uint64_t first, uint64_t blocks, uint64_t of) {
  if (!tracing()) return;
  char line[256];
  const int length = std::snprintf(line, sizeof line, "%d %s %.160s %llu %llu %llu\n", ::getpid(), what, name.c_str(),
                                   static_cast<unsigned long long>(first), static_cast<unsigned long long>(blocks),
                                   static_cast<unsigned long long>(of));
  if (length > 0) write_line(trace_file(), std::string(line, static_cast<size_t>(length)));
}

}  // namespace shoal::device
