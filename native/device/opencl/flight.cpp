#include "flight.h"

#include <array>
#include <cstdlib>

#include "held.h"
#include "log.h"

namespace shoal::device::opencl {
namespace {

Profiles* profiles() {
  static Profiles* const all = [] {
    const char* path = std::getenv("SHOAL_DEVICE_PROFILE");
    return path == nullptr || *path == '\0' ? nullptr : Profiles::open(path);
  }();
  return all;
}

// Several threads may use one queue, and several queues the last lane: of each, commands reach the driver as counted.
std::mutex& lane_lock(uint32_t lane) {
  static auto* all = new std::array<std::mutex, kLanes>;
  return (*all)[lane % kLanes];
}

uint64_t duration(cl_event event) {
  cl_ulong begin = 0, end = 0;
  if (next->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof begin, &begin, nullptr) != CL_SUCCESS ||
      next->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr) != CL_SUCCESS)
    return 0;
  return end > begin ? end - begin : 0;
}

void ended(cl_event event, cl_int status, const std::shared_ptr<Flight>& flight) {
  const Work& work = flight->work;
  if (flight->held) let_go(flight);  // a failed event may have ended it before the program set its own
  if (best_effort() && status == CL_COMPLETE) {
    const uint64_t took = duration(event);
    if (flight->ticket) flight->ticket->took(took);
    if (work.measured && took > 0 && profiles() != nullptr)
      profiles()->note(work.key, work.way, static_cast<uint32_t>(work.blocks), took);
  }
  trace("ended", work.kernel, work.first, work.blocks, work.of);
  next->clReleaseEvent(event);
}

void CL_CALLBACK on_end(cl_event event, cl_int status, void* data) {
  const std::unique_ptr<std::shared_ptr<Flight>> flight(static_cast<std::shared_ptr<Flight>*>(data));
  ended(event, status, *flight);  // and then goes the last count of its ticket
}

}  // namespace

Ticket::Ticket(std::shared_ptr<Lane> lane, uint64_t cost_ns) : lane_(std::move(lane)) {
  Gate* const at = gate();
  if (at != nullptr) sequence_ = best_effort() ? at->acquire(lane_->number, cost_ns) : at->submit(lane_->number);
}

Ticket::~Ticket() {
  Gate* const at = gate();
  if (at == nullptr) return;
  if (!best_effort())  // counted, not stored: commands of one lane may end in another order than they began
    at->done(lane_->number)->fetch_add(1, std::memory_order_release);
  else if (refused_)
    at->cancel(lane_->number, sequence_);
  else
    at->release(lane_->number, sequence_, took_.load());
}

cl_int fly(cl_command_queue queue, std::shared_ptr<Lane> lane, Work work, const Users& users, cl_event* out,
           const Forward& forward) {
  const auto flight = std::make_shared<Flight>();
  flight->lane = std::move(lane);
  flight->work = std::move(work);
  const bool gated = flight->lane != nullptr && !(best_effort() && in_callback());
  flight->held = gated && !users.empty() && hold(flight, users);
  std::unique_lock<std::mutex> in_turn;
  if (gated && !flight->held) {
    in_turn = std::unique_lock<std::mutex>(lane_lock(flight->lane->number));
    flight->ticket = std::make_shared<Ticket>(flight->lane, flight->work.cost_ns);
    // A guaranteed command may block in the driver, and only the count must be made by one thread at a time.
    if (!best_effort()) in_turn.unlock();
  }
  trace(flight->held ? "held" : gated ? "begins" : "ungated", flight->work.kernel, flight->work.first, flight->work.blocks,
        flight->work.of);
  cl_event event = nullptr;
  const cl_int error = forward(&event);
  if (in_turn.owns_lock()) in_turn.unlock();
  if (error != CL_SUCCESS) {
    if (flight->held) let_go(flight);
    if (flight->ticket) flight->ticket->refused();
    return error;
  }
  if (out != nullptr) {
    next->clRetainEvent(event);
    *out = event;
  }
  if (queue == nullptr) next->clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, nullptr);
  auto* followed = new std::shared_ptr<Flight>(flight);
  if (next->clSetEventCallback(event, CL_COMPLETE, on_end, followed) != CL_SUCCESS) {
    next->clWaitForEvents(1, &event);
    on_end(event, CL_COMPLETE, followed);
  }
  // Nothing that is counted may lie in a queue that the program flushes only later: all others would wait for it.
  next->clFlush(queue);
  return CL_SUCCESS;
}

void admit(const std::vector<std::shared_ptr<Flight>>& flights) {
  if (flights.empty()) return;
  if (!best_effort()) {
    for (const auto& flight : flights) flight->ticket = std::make_shared<Ticket>(flight->lane, 0);
    return;
  }
  if (in_callback()) {
    for (const auto& flight : flights) fall_back(flight->work.kernel, kNotGated, "a callback set its user event");
    return;
  }
  uint64_t cost = 0;
  for (const auto& flight : flights) cost += flight->work.cost_ns;
  const auto ticket = std::make_shared<Ticket>(flights.front()->lane, cost);
  for (const auto& flight : flights) flight->ticket = ticket;
}

ShoalPlan plan(const Key& key, uint32_t ways, uint64_t blocks, uint32_t units) {
  ShoalProfile known = profiles() == nullptr ? ShoalProfile{} : profiles()->look(key);
  known.wave_blocks = units;
  Gate* const at = gate();
  const ShoalPlan chosen = shoal_choose(&known, ways, blocks, at == nullptr ? UINT64_MAX : at->bound_ns());
  const char* const forced = std::getenv("SHOAL_DEVICE_SLICE_BLOCKS");
  const uint64_t size = forced == nullptr ? 0 : std::strtoull(forced, nullptr, 10);
  if (size == 0 || size >= blocks || (ways & 1u << SHOAL_SLICE) == 0) return chosen;
  const ShoalPlan whole = shoal_choose(&known, 1u << SHOAL_WHOLE, blocks, UINT64_MAX);
  return {SHOAL_SLICE, static_cast<uint32_t>(size), std::max<uint64_t>(whole.cost_ns * size / blocks, 1), 0, 0};
}

}  // namespace shoal::device::opencl
