// Commands that wait, straight or through others, for user events which the program has not set yet.
#pragma once

#include "flight.h"

namespace shoal::device::opencl {

// The user events that a command put on `queue` now, waiting for `list`, would wait for: straight, or since it comes after a
// barrier; for `all` that is on the queue. Costs one load when none is unset.
Users users_of(cl_command_queue queue, cl_uint count, const cl_event* list, bool all = false);

// What waits for `event`, and what comes after it on `queue` when `blocks_queue`, waits for `users` as well.
void spread(cl_command_queue queue, bool blocks_queue, cl_event event, const Users& users);

// `flight` is counted when the last of `users` is set. False: all of them have been.
bool hold(const std::shared_ptr<Flight>& flight, const Users& users);
void let_go(const std::shared_ptr<Flight>& flight);

}  // namespace shoal::device::opencl
