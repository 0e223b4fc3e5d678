// A kernel by ticket: launched at once, and stopped when guaranteed work wants the device; what it left goes on later.
#pragma once

#include "launch.h"

namespace shoal::cuda {

// False: it cannot be launched so now, and nothing was launched. `result` is the driver's answer otherwise. The call lasts until
// the kernel has ended, because it has to be watched and no thread of the shim's own does; a kernel of seconds, which may
// wait for what the program does next, is left alone.
bool launch_by_ticket(Gate* gate, Lane& lane, const Launch& launch, const Kernel& kernel, const device::Key& key,
                      const ShoalPlan& plan, CUresult* result);

// A context has ended, and with it what was kept there.
void forget_tickets(CUcontext context);

}  // namespace shoal::cuda
