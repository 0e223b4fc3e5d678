// A command on its way: counted in the page before it goes to the driver, and taken off at its end.
#pragma once

#include <functional>
#include <set>

#include "../profile.h"
#include "layer.h"

namespace shoal::device::opencl {

// One count in the page. Goes with the last command that holds it.
class Ticket {
 public:
  // Guaranteed: counted at once. Best effort: waits at the gate.
  Ticket(std::shared_ptr<Lane> lane, uint64_t cost_ns);
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  void refused() { refused_ = true; }                     // by the driver
  void took(uint64_t nanoseconds) { took_ += nanoseconds; }  // on the device

 private:
  const std::shared_ptr<Lane> lane_;
  uint32_t sequence_ = 0;
  bool refused_ = false;
  std::atomic<uint64_t> took_{0};
};

// What a command is: for the gate, the profile and the trace.
struct Work {
  std::string kernel;
  Key key{};
  ShoalWay way = SHOAL_WHOLE;
  uint64_t first = 0, blocks = 1, of = 1;
  uint64_t cost_ns = 0;
  bool measured = false;  // its time goes to the profile
};

using Users = std::set<cl_event>;
using Forward = std::function<cl_int(cl_event*)>;  // the driver's call, with an event that it fills in

struct Flight {
  std::shared_ptr<Lane> lane;
  std::shared_ptr<Ticket> ticket;  // null: waits for the program, or is not gated
  Work work;
  bool held = false;  // until the program sets its user events
};

// Sends a command and follows it. The program gets the event through `out`, where it asked for one. A command that waits
// for user events which the program has not set, `users`, is counted when it sets the last of them: until then it is not
// on the device, and to wait for it in the program's own thread would be to wait for ever.
cl_int fly(cl_command_queue queue, std::shared_ptr<Lane> lane, Work work, const Users& users, cl_event* out,
           const Forward& forward);

// Counts commands whose user events are about to be set. Best effort: waits at the gate, once for all of them.
void admit(const std::vector<std::shared_ptr<Flight>>& flights);

// The predicted time and the way of one piece: what the policy makes of the profile. SHOAL_DEVICE_SLICE_BLOCKS, for tests and
// experiments: every kernel that can be sliced is, in slices of so many blocks.
ShoalPlan plan(const Key& key, uint32_t ways, uint64_t blocks, uint32_t units);

}  // namespace shoal::device::opencl
