// Events that stand for several pieces.
#pragma once

#include "layer.h"

namespace shoal::device::opencl {

// The program has `last`, which is to tell the times from the beginning of `first` on.
void span(cl_event first, cl_event last);

}  // namespace shoal::device::opencl
