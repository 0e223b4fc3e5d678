#include "log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

namespace shoal::device::opencl {
namespace {

int open_named(const char* variable, int otherwise) {
  const char* path = std::getenv(variable);
  if (path == nullptr || *path == '\0') return otherwise;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  return file < 0 ? otherwise : file;
}

// One write a line: lines of several processes stay whole and in order.
void write_line(int file, const std::string& line) {
  if (::write(file, line.data(), line.size()) < 0) return;  // a full disk stops no launch
}

int trace_file() {
  static const int file = open_named("SHOAL_DEVICE_TRACE", -1);
  return file;
}

void say(const std::string& text) {
  static const int file = open_named("SHOAL_DEVICE_LOG", STDERR_FILENO);
  write_line(file, "shoal device[" + std::to_string(::getpid()) + "]: " + text + "\n");
}

struct FallBacks {
  std::mutex lock;
  std::set<std::string> told;
  std::map<std::string, uint64_t> counts;  // by outcome and reason
};

FallBacks& fall_backs() {
  // Never destroyed: a driver's thread may come by while the process ends.
  static FallBacks* all = [] {
    std::atexit([] {
      FallBacks& known = fall_backs();
      const std::lock_guard<std::mutex> guard(known.lock);
      for (const auto& [reason, count] : known.counts) say(std::to_string(count) + " times: " + reason);
    });
    return new FallBacks;
  }();
  return *all;
}

}  // namespace

void fall_back(const std::string& name, const char* outcome, const std::string& reason) {
  const std::string said = std::string(outcome) + ": " + reason;
  FallBacks& known = fall_backs();
  const std::lock_guard<std::mutex> guard(known.lock);
  ++known.counts[said];
  if (known.told.insert(name + '\0' + said).second) say(name + " " + said);
}

bool tracing() { return trace_file() >= 0; }

void trace(const char* what, const std::string& kernel, uint64_t first, uint64_t blocks, uint64_t of) {
  if (!tracing()) return;
  char line[256];
  const int length = std::snprintf(line, sizeof line, "%d %s %.160s %llu %llu %llu\n", ::getpid(), what, kernel.c_str(),
                                   static_cast<unsigned long long>(first), static_cast<unsigned long long>(blocks),
                                   static_cast<unsigned long long>(of));
  if (length > 0) write_line(trace_file(), std::string(line, static_cast<size_t>(length)));
}

}  // namespace shoal::device::opencl
