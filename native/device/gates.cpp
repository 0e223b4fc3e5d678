// The gates of this process: one for each page that its environment names.
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gate_state.h"

namespace shoal::device {

void say(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char* path = std::getenv("SHOAL_DEVICE_LOG");
  FILE* file = path != nullptr && *path != 0 ? std::fopen(path, "ae") : nullptr;
  std::fprintf(file != nullptr ? file : stderr, "shoal: %s\n", text);
  if (file != nullptr) std::fclose(file);
}

namespace {

// A whole number from the environment; false when there is one that is none.
bool read_number(const char* name, uint64_t* value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return true;
  char* end = nullptr;
  errno = 0;
  *value = std::strtoull(text, &end, 10);
  return errno == 0 && *end == 0 && *text >= '0' && *text <= '9';
}

// What the environment asks for at each device.
struct Asked {
  ShoalClass cls = SHOAL_GUARANTEED;
  uint32_t weight = 1;
  uint64_t quota = 0;
  std::string name;
};

bool read_asked(Asked* asked) {
  const char* cls = std::getenv("SHOAL_DEVICE_CLASS");
  if (cls != nullptr && std::strcmp(cls, "guaranteed") == 0) {
    asked->cls = SHOAL_GUARANTEED;
  } else if (cls != nullptr && std::strcmp(cls, "best-effort") == 0) {
    asked->cls = SHOAL_BEST_EFFORT;
  } else {
    say("SHOAL_DEVICE_CLASS is %s, not guaranteed or best-effort: launches are not gated", cls ? cls : "not set");
    return false;
  }
  uint64_t weight = 1;
  if (!read_number("SHOAL_DEVICE_WEIGHT", &weight) || weight < 1 || weight > 1'000'000) {
    say("SHOAL_DEVICE_WEIGHT is no number from 1 to 1000000: 1 is taken");
    weight = 1;
  }
  asked->weight = static_cast<uint32_t>(weight);
  if (!read_number("SHOAL_DEVICE_MEMORY", &asked->quota)) {
    say("SHOAL_DEVICE_MEMORY is no number of bytes: memory is not limited");
    asked->quota = 0;
  }
  const char* name = std::getenv("SHOAL_DEVICE_NAME");
  asked->name = name != nullptr ? name : "";
  return true;
}

bool is_uuid(const char* device) { return std::strncmp(device, "GPU-", 4) == 0; }

}  // namespace

struct Gates {
  std::atomic<bool> tried{false};
  std::atomic<uint32_t> count{0};
  std::array<std::atomic<Gate*>, kGates> gate{};
  std::mutex making;
  const char* absent_because = "no launch has asked for it yet";
  // Of the parent of this process.
  uint32_t forked = 0;
  std::array<std::array<bool, kLanes>, kGates> open{};

  // A child has neither the parent's slots nor its locks: it makes gates of its own.
  void before_fork() {
    making.lock();
    forked = count.load(relaxed);
  }
  void in_child() {
    for (uint32_t i = 0; i < forked; ++i) {
      open[i] = gate[i].load(relaxed)->state_->open;
      gate[i].store(nullptr, relaxed);
    }
    count.store(0, relaxed);
    tried.store(false, relaxed);
    making.unlock();
  }

  void make(const char* path, const Asked& asked) {
    const uint32_t number = count.load(relaxed);
    if (number == kGates) {
      say("this process has a place at %u devices, and gets none at %s: launches there are not gated", kGates, path);
      return;
    }
    auto state = std::make_unique<Gate::State>();
    state->number = number;
    state->cls = asked.cls;
    state->weight = asked.weight;
    state->quota = asked.quota;
    state->name = asked.name;
    state->page = open_page(path);
    if (state->page == nullptr) {
      absent_because = page_error(errno);
      say("the page %s cannot be used, %s: launches are not gated", path, absent_because);
      return;
    }
    if (!state->enter()) {
      say("the page %s has no free place for another process: launches are not gated", path);
      close_page(state->page);
      absent_because = "the page has no free place";
      return;
    }
    state->open = open[number];
    state->show_lanes();
    // For the life of the process: other threads may launch while it ends.
    gate[number].store(new Gate(state.release()), relaxed);
    count.store(number + 1, relaxed);
  }

  // With `making` held.
  void make_all() {
    static const bool hooked = pthread_atfork([] { all().before_fork(); }, [] { all().making.unlock(); },
                                              [] { all().in_child(); }) == 0;
    if (!hooked) say("forks of this process share its place at the device's gate");
    const char* listed = std::getenv("SHOAL_DEVICE_PAGE");
    Asked asked;
    if (listed == nullptr || *listed == 0) {
      absent_because = "SHOAL_DEVICE_PAGE is not set";
    } else if (!read_asked(&asked)) {
      absent_because = "SHOAL_DEVICE_CLASS is neither guaranteed nor best-effort";
    } else {
      const std::string paths = listed;
      for (size_t at = 0; at < paths.size();) {
        const size_t end = std::min(paths.find(':', at), paths.size());
        if (end > at) make(paths.substr(at, end - at).c_str(), asked);
        at = end + 1;
      }
    }
    tried.store(true, std::memory_order_release);
  }

  // Never destroyed, as its gates.
  static Gates& all() {
    static Gates* one = new Gates;
    return *one;
  }
};

namespace {

Gates& gates = Gates::all();

}  // namespace

Gate* Gate::get() {
  if (!gates.tried.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> guard(gates.making);
    if (!gates.tried.load(relaxed)) gates.make_all();
  }
  return gates.gate[0].load(relaxed);
}

Gate* Gate::numbered(uint32_t number) {
  get();
  return number < kGates ? gates.gate[number].load(relaxed) : nullptr;
}

Gate* Gate::of(const char* device) {
  Gate* const first = get();
  const uint32_t count = gates.count.load(relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    Gate* one = gates.gate[i].load(relaxed);
    if (std::strncmp(one->state_->page->header.device, device, sizeof Header::device) == 0) return one;
  }
  return count == 1 && !is_uuid(first->state_->page->header.device) ? first : nullptr;
}

const char* Gate::why() {
  const std::lock_guard<std::mutex> guard(gates.making);
  return gates.count.load(relaxed) != 0 ? "" : gates.absent_because;
}

namespace {

// The slots stay owned, so that no other process takes them while threads of this one still launch; they count no more.
__attribute__((destructor)) void end_of_process() {
  for (auto& each : gates.gate) {
    const Gate* gate = each.load(relaxed);
    if (gate == nullptr) continue;
    Slot* slot = gate->slot();
    if (static_cast<uint32_t>(slot->owner.load(relaxed)) == static_cast<uint32_t>(getpid())) {
      slot->ready.store(0, std::memory_order_release);
      gate->retire();
    }
  }
}

}  // namespace

}  // namespace shoal::device
