#include "log.h"

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

namespace shoal::device::opencl {
namespace {

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

}  // namespace shoal::device::opencl
