// Which of the machine's OpenCL devices the page is for.
//
//   SHOAL_DEVICE_OPENCL  the device's name as src/shoal/device/opencl.py tells it; none: all devices
#pragma once

#include <string>

#include "layer.h"

namespace shoal::device::opencl {

// The UUID where the driver tells one; else its name and its place among its platform's devices of that name: "name#0".
std::string name_of(cl_device_id device);

bool is_target(cl_device_id device);

}  // namespace shoal::device::opencl
