// Programs and kernels of a best-effort process, and their builds for launches in slices.
#pragma once

#include <map>

#include "../profile.h"
#include "grid.h"
#include "layer.h"

namespace shoal::device::opencl {

struct Program;

struct Argument {
  bool svm = false;
  bool null = false;
  size_t size = 0;
  std::vector<unsigned char> bytes;
  const void* address = nullptr;  // of shared memory
};

struct Kernel {
  std::shared_ptr<Program> program;
  std::string name;
  std::map<cl_uint, Argument> arguments;
  std::map<cl_kernel_exec_info, std::vector<unsigned char>> execution;
  std::map<cl_program, cl_kernel> sliced;  // by build
  std::atomic<bool> launched{false};
  ~Kernel();
};

std::shared_ptr<Kernel> kernel_of(cl_kernel handle);

// Names the kernel's code in the profile.
uint64_t hash_of(const Kernel& kernel);

// The kernel in a build for slices of such a grid, with the arguments as they are now; null and why when there is none.
cl_kernel sliced(Kernel* kernel, cl_device_id device, const Grid& grid, std::string* reason);

}  // namespace shoal::device::opencl
