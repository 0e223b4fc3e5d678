#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <system_error>
#include <thread>

#include "clock.h"
#include "shoal_host.h"

namespace {

struct alignas(128) Line {  // 128: adjacent-line prefetchers fetch pairs
  std::atomic<uint32_t> ball{0};
};

struct Game {
  Line line;
  std::atomic<bool> over{false};
  std::atomic<int> error{0};
  uint64_t limit_ns;

  bool play_to(uint32_t want) {  // waits for the ball; false when the time is over
    for (uint32_t spins = 1; line.ball.load(std::memory_order_acquire) != want; ++spins) {
      if (spins % 1024 == 0 && (over.load(std::memory_order_relaxed) || shoal::now_ns() > limit_ns)) return false;
    }
    return true;
  }
};

int pin(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return EINVAL;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

void serve(Game &game, int cpu, uint32_t rounds, uint32_t repeats, double &best_ns) {
  if (const int error = pin(cpu)) game.error = error;
  for (uint32_t r = 0; r < repeats && !game.error; ++r) {
    const uint64_t began = shoal::now_ns();
    for (uint32_t i = 0; i < rounds; ++i) {
      game.line.ball.store(1, std::memory_order_release);
      if (!game.play_to(0)) {
        game.over = true;
        return;
      }
    }
    best_ns = std::min(best_ns, static_cast<double>(shoal::now_ns() - began) / rounds / 2);
  }
  game.over = true;
}

void answer(Game &game, int cpu) {
  if (const int error = pin(cpu)) game.error = error;
  while (!game.error && game.play_to(1)) game.line.ball.store(0, std::memory_order_release);
  game.over = true;
}

}  // namespace

int shoal_pingpong(int cpu_a, int cpu_b, uint32_t rounds, uint32_t repeats, uint64_t limit_ns, double *best_ns) try {
  if (cpu_a == cpu_b || rounds == 0) return EINVAL;
  Game game;
  game.limit_ns = shoal::now_ns() + limit_ns;
  double best = std::numeric_limits<double>::infinity();
  std::thread second(answer, std::ref(game), cpu_b);
  std::thread first(serve, std::ref(game), cpu_a, rounds, repeats, std::ref(best));
  first.join();
  second.join();
  if (game.error) return game.error;
  if (best == std::numeric_limits<double>::infinity()) return ETIMEDOUT;
  *best_ns = best;
  return 0;
} catch (const std::system_error &problem) {
  return problem.code().value();
}
