// The memory that the process holds on the device, against its quota.
#pragma once

#include "driver.h"

namespace shoal::cuda {

// A context was destroyed, and the driver has freed what was allocated in it.
void forget_memory(CUcontext context);

}  // namespace shoal::cuda
