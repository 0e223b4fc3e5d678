// shoal-pace: leaves cores to the work on them for a few tens of microseconds at a time.
//
// One real-time thread per core spins for all but R of every period P, then sleeps, so that whatever runs there gets R
// out of P. A core that streams through memory for 50 us of every 500 hurts its neighbours as little in their slowest
// step as in their mean one, where a CPU quota at the same bandwidth lets it run for milliseconds on end.
//
//   shoal-pace PAGE                    pace as the page says (pace_page.h), until its owner ends
//   shoal-pace --check [CPU]           can it? One line of JSON
//   shoal-pace --calibrate CPU         what of R goes to the switches? One line of JSON
//
// Settings arrive through the page. It stops pacing when the page's heartbeat is older than its lease (a daemon that
// hangs), while nothing runs on the core (by the idle time in cpuidle's statistics), and ends with its parent.

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "clock.h"
#include "pace_page.h"

namespace shoal {
namespace {

constexpr int kPriority = 2;                      // of SCHED_FIFO: above nothing but ordinary work
constexpr uint64_t kMinPeriodNs = 50'000;
constexpr uint64_t kMaxPeriodNs = 100'000'000;
constexpr uint64_t kRestPollNs = 5'000'000;       // how often a thread that does not pace looks at the page
constexpr uint64_t kIdlePollNs = 1'000'000;       // and at its core, while that is idle
constexpr uint64_t kIdleLookNs = 10'000'000;      // how often a thread that paces looks whether its core is idle
constexpr uint64_t kIdleAfterNs = 250'000'000;    // long against kIdlePollNs: work that comes and goes stays paced
constexpr uint64_t kLateNs = 100'000;
constexpr double kUsed = 0.7;                     // of what is given: less, and the work was not waiting for more
constexpr double kReturned = 0.5;                 // of its share: what an idle core may be used for and stay idle

// Nanoseconds that a core spent idle, from all of its cpuidle states; nothing where there is no cpuidle driver.
class IdleTime {
 public:
  explicit IdleTime(uint32_t cpu) {
    const std::string states = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpuidle";
    for (int state = 0;; ++state) {
      const int fd = open((states + "/state" + std::to_string(state) + "/time").c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) break;
      fds_.push_back(fd);
    }
  }
  ~IdleTime() {
    for (int fd : fds_) close(fd);
  }
  IdleTime(const IdleTime &) = delete;
  IdleTime &operator=(const IdleTime &) = delete;

  bool known() const { return !fds_.empty(); }

  uint64_t ns() const {
    uint64_t us = 0;
    for (int fd : fds_) {
      char text[32];
      const ssize_t got = pread(fd, text, sizeof text - 1, 0);
      if (got <= 0) continue;
      text[got] = 0;
      us += std::strtoull(text, nullptr, 10);
    }
    return us * 1000;
  }

 private:
  std::vector<int> fds_;
};

int become_real_time(int priority) {
  sched_param parameter{};
  parameter.sched_priority = priority;
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
}

int move_to(uint32_t cpu) {
  if (cpu >= CPU_SETSIZE) return EINVAL;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

template <typename T>
void add(std::atomic<T> &field, T more) {  // one writer: no need for a locked instruction
  field.store(field.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

struct Window {
  uint64_t run_ns = 0, period_ns = 0;
  explicit Window(uint64_t packed) {
    if (packed == 0) return;
    period_ns = std::clamp(packed & 0xffffffff, kMinPeriodNs, kMaxPeriodNs);
    run_ns = packed >> 32;
  }
  bool limits() const { return period_ns != 0 && run_ns < period_ns; }
  double share() const { return static_cast<double>(run_ns) / static_cast<double>(period_ns); }
};

// Paces one core. Runs on a thread of its own for as long as the process.
class Pacer {
 public:
  Pacer(const Header &header, Slot &slot) : header_(header), slot_(slot), light_(has_tpause()) {}

  void run() {
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
      const uint32_t cpu = slot_.cpu.load(std::memory_order_relaxed);
      const int error = cpu == kUnused ? 0 : begin(cpu);
      if (error == 0) while (slot_.cpu.load(std::memory_order_relaxed) == cpu) step(cpu);
      slot_.error.store(error, std::memory_order_relaxed);
      slot_.state.store(kFailed, std::memory_order_relaxed);
      // Again in a tenth of a second: a core may come online.
      for (int i = 0; i < 20 && slot_.cpu.load(std::memory_order_relaxed) == cpu; ++i) rest();
    }
  }

 private:
  int begin(uint32_t cpu) {
    if (const int error = move_to(cpu)) return error;
    if (const int error = become_real_time(kPriority)) return error;
    slot_.error.store(0, std::memory_order_relaxed);
    idle_ = std::make_unique<IdleTime>(cpu);
    return 0;
  }

  void step(uint32_t cpu) {
    if (getppid() != header_.owner.load(std::memory_order_relaxed)) _exit(0);
    const Window window(slot_.window.load(std::memory_order_relaxed));
    const uint64_t now = now_ns();
    if (cpu == kUnused || !window.limits()) {
      turn(kOff);
      rest();
    } else if (lapsed(now)) {
      turn(kLapsed);
      rest();
    } else if (state_ == kIdle) {
      watch(window, now);
    } else {
      if (state_ != kPacing) look_again(now);
      turn(kPacing);
      pace(window, now);
      if (!slot_.burn_when_idle.load(std::memory_order_relaxed) && idle_->known()) look(now);
    }
  }

  bool lapsed(uint64_t now) const {
    const uint64_t lease = header_.lease_ns.load(std::memory_order_relaxed);
    return now > header_.heartbeat_ns.load(std::memory_order_relaxed) + lease;
  }

  // One period: burns until its window opens, sleeps until it closes.
  void pace(const Window &window, uint64_t now) {
    const uint64_t phase = slot_.phase_ns.load(std::memory_order_relaxed) % window.period_ns;
    uint64_t end = (now - phase) / window.period_ns * window.period_ns + phase;
    do end += window.period_ns; while (end < now + window.run_ns / 2);  // no room left in this one: the next
    const uint64_t opened = burn_until(end - window.run_ns, light_);
    sleep_until(end);
    const uint64_t woke = now_ns();
    const uint64_t late = woke > end ? woke - end : 0;
    add(slot_.periods, uint64_t{1});
    add(slot_.burned_ns, opened - now);
    add(slot_.given_ns, woke - opened);
    if (late > kLateNs) add(slot_.late, uint64_t{1});
    const uint64_t worst = slot_.worst_late_ns.load(std::memory_order_relaxed);
    if (late > worst) slot_.worst_late_ns.store(late, std::memory_order_relaxed);
    given_since_look_ += woke - opened;
  }

  // While pacing: was the time given used? If hardly any of it for long, nothing here needs pacing.
  void look(uint64_t now) {
    if (now - looked_at_ < kIdleLookNs) return;
    const uint64_t idle = idle_->ns();
    const auto used = static_cast<double>(given_since_look_) - static_cast<double>(idle - idle_before_);
    if (used > kUsed * static_cast<double>(given_since_look_)) used_at_ = now;
    looked_at_ = now;
    idle_before_ = idle;
    given_since_look_ = 0;
    if (now - used_at_ > kIdleAfterNs) turn(kIdle);
  }

  // While idle: has anything run since the last look? More than half of its share is enough to pace again.
  void watch(const Window &window, uint64_t now) {
    sleep_until(now + kIdlePollNs);
    const uint64_t idle = idle_->ns(), after = now_ns();
    const auto passed = static_cast<double>(after - now);
    const double used = passed - static_cast<double>(idle - idle_before_);
    add(slot_.idle_ns, after - now);
    idle_before_ = idle;
    if (used > std::max(kReturned * window.share(), 0.05) * passed) look_again(after), turn(kPacing);
  }

  void look_again(uint64_t now) {
    looked_at_ = used_at_ = now;
    idle_before_ = idle_->ns();
    given_since_look_ = 0;
  }

  void turn(State state) {
    if (state_ == state) return;
    state_ = state;
    slot_.state.store(state, std::memory_order_relaxed);
  }

  static void rest() { sleep_until(now_ns() + kRestPollNs); }

  const Header &header_;
  Slot &slot_;
  const bool light_;
  State state_ = kStarting;
  std::unique_ptr<IdleTime> idle_;
  uint64_t looked_at_ = 0, used_at_ = 0, idle_before_ = 0, given_since_look_ = 0;
};

int fail(const char *what, int error) {
  std::fprintf(stderr, "shoal-pace: %s: %s\n", what, std::strerror(error));
  return 1;
}

int serve(const char *path) {
  // HUP: the parent, or only that thread of it that started us, has ended. CONT: look at the page now.
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGHUP, SIGTERM, SIGINT, SIGCONT}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGHUP);

  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return fail(path, errno);
  struct stat info;
  if (fstat(fd, &info) != 0) return fail(path, errno);
  const auto size = static_cast<size_t>(info.st_size);
  if (size < sizeof(Header)) return fail(path, EINVAL);
  void *page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return fail(path, errno);
  auto &header = *static_cast<Header *>(page);
  if (header.magic != kMagic || header.version != kVersion || (size - sizeof(Header)) / sizeof(Slot) < header.slots)
    return fail("the page is of another version or too short", EPROTO);
  auto *slots = reinterpret_cast<Slot *>(&header + 1);
  mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);  // no page of it is ever fetched again; where forbidden, so be it

  std::vector<bool> started(header.slots);
  for (;;) {
    for (uint32_t i = 0; i < header.slots; ++i) {
      if (started[i] || slots[i].cpu.load() == kUnused) continue;
      started[i] = true;
      std::thread([&header, &slot = slots[i]] { Pacer(header, slot).run(); }).detach();
    }
    const timespec tick{0, 50'000'000};
    const int got = sigtimedwait(&signals, nullptr, &tick);
    if (got == SIGTERM || got == SIGINT || header.stop.load() || getppid() != header.owner.load()) _exit(0);
  }
}

int check(uint32_t cpu) {
  int error = cpu == kUnused ? 0 : move_to(cpu);
  const int moved = error;
  if (error == 0) error = become_real_time(kPriority);
  std::printf("{\"errno\": %d, \"step\": \"%s\", \"wait\": \"%s\"}\n", error, moved ? "affinity" : "real-time priority",
              has_tpause() ? "tpause" : "pause");
  return 0;
}

// What runs on the core gets less than R: timer, two switches of context. Measured from inside, by a thread in the
// place of the paced work (real-time too, just below the pacer, so that nothing else gets in between), which adds up
// the time between successive looks at the clock unless something came in between. The median window counts: some are
// disturbed.
int calibrate(uint32_t cpu) {
  constexpr uint64_t kRun = 100'000, kPeriod = 500'000, kFor = 25'000'000;
  constexpr uint64_t kInterrupted = 1'500, kBurned = (kPeriod - kRun) / 2;
  Header header{};
  Slot slot{};
  header.owner = getppid();
  header.heartbeat_ns = now_ns();
  header.lease_ns = 10 * kFor;
  slot.cpu = cpu;
  slot.burn_when_idle = 1;
  slot.window = kRun << 32 | kPeriod;
  int error = move_to(cpu);
  if (error == 0) error = become_real_time(kPriority - 1);
  if (error != 0) return fail("cannot take the core", error);
  std::thread([&] { Pacer(header, slot).run(); }).detach();
  while (slot.periods.load() < 4) sleep_until(now_ns() + kPeriod);
  std::vector<uint64_t> windows;
  uint64_t had = 0;
  const uint64_t began = now_ns();
  for (uint64_t last = began, now; (now = now_ns()) < began + kFor; last = now) {
    if (now - last < kInterrupted) {
      had += now - last;
    } else if (now - last > kBurned) {
      windows.push_back(had);
      had = 0;
    }
  }
  if (windows.size() < 5) _exit(fail("the core was not ours for long enough", EAGAIN));
  const auto middle = windows.begin() + static_cast<std::ptrdiff_t>(windows.size() / 2);
  std::nth_element(windows.begin(), middle, windows.end());
  std::printf("{\"lost_ns\": %lld, \"windows\": %zu}\n", static_cast<long long>(kRun) - static_cast<long long>(*middle),
              windows.size());
  std::fflush(stdout);
  _exit(0);
}

uint32_t cpu_of(const char *text) { return static_cast<uint32_t>(std::strtoul(text, nullptr, 10)); }

}  // namespace
}  // namespace shoal

int main(int count, char **arguments) {
  const std::string first = count > 1 ? arguments[1] : "";
  if (first == "--check" && count <= 3) return shoal::check(count == 3 ? shoal::cpu_of(arguments[2]) : shoal::kUnused);
  if (first == "--calibrate" && count == 3) return shoal::calibrate(shoal::cpu_of(arguments[2]));
  if (count == 2 && first.rfind("--", 0) != 0) return shoal::serve(arguments[1]);
  std::fprintf(stderr, "usage: shoal-pace PAGE | --check [CPU] | --calibrate CPU\n");
  return 2;
}
