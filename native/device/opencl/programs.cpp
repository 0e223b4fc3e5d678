#include "programs.h"

#include <cstring>
#include <optional>
#include <tuple>

#include "source.h"

namespace shoal::device::opencl {

constexpr size_t kMostBuilds = 8;  // of one program; a new depth of a 3-D grid needs another

struct Program {
  cl_context context = nullptr;
  std::string source, options;
  std::string why_not;  // it has no source that could be changed
  uint64_t hash = 0;
  std::mutex lock;
  std::optional<std::string> refused;  // once looked at
  using Kind = std::tuple<cl_device_id, uint32_t, uint64_t>;
  struct Build {
    cl_program program = nullptr;
    std::string reason;
  };
  std::map<Kind, Build> builds;

  // A program is built anew only while it has no kernels, so none uses these.
  void forget_builds() {
    for (const auto& [kind, build] : builds)
      if (build.program != nullptr) next->clReleaseProgram(build.program);
    builds.clear();
    refused.reset();
  }
  ~Program() { forget_builds(); }
};

Kernel::~Kernel() {
  for (const auto& [build, handle] : sliced) next->clReleaseKernel(handle);
}

namespace {

Registry<cl_program, Program>& programs() {
  static auto* all = new Registry<cl_program, Program>;
  return *all;
}

Registry<cl_kernel, Kernel>& kernels() {
  static auto* all = new Registry<cl_kernel, Kernel>;
  return *all;
}

std::shared_ptr<Program> remember(cl_program handle, cl_context context, std::string source, std::string why_not) {
  auto program = std::make_shared<Program>();
  program->context = context;
  program->hash = hash_bytes(source.data(), source.size(), 1);
  program->source = std::move(source);
  program->why_not = std::move(why_not);
  programs().add(handle, program);
  return program;
}

cl_program CL_API_CALL from_source(cl_context context, cl_uint count, const char** strings, const size_t* lengths, cl_int* error) {
  const cl_program made = next->clCreateProgramWithSource(context, count, strings, lengths, error);
  if (made == nullptr) return made;
  std::string source;
  for (cl_uint i = 0; i < count; ++i) {
    if (lengths != nullptr && lengths[i] != 0)
      source.append(strings[i], lengths[i]);
    else
      source.append(strings[i]);
  }
  remember(made, context, std::move(source), "");
  return made;
}

cl_program CL_API_CALL from_binary(cl_context context, cl_uint count, const cl_device_id* devices, const size_t* lengths,
                                   const unsigned char** binaries, cl_int* status, cl_int* error) {
  const cl_program made = next->clCreateProgramWithBinary(context, count, devices, lengths, binaries, status, error);
  if (made != nullptr) remember(made, context, "", "it is a binary")->hash = hash_bytes(binaries[0], lengths[0], 2);
  return made;
}

cl_program CL_API_CALL from_il(cl_context context, const void* il, size_t length, cl_int* error) {
  const cl_program made = next->clCreateProgramWithIL(context, il, length, error);
  if (made != nullptr) remember(made, context, "", "it is in an intermediate language")->hash = hash_bytes(il, length, 3);
  return made;
}

cl_program CL_API_CALL from_built_in(cl_context context, cl_uint count, const cl_device_id* devices, const char* names, cl_int* error) {
  const cl_program made = next->clCreateProgramWithBuiltInKernels(context, count, devices, names, error);
  if (made != nullptr) remember(made, context, "", "it is built into the device")->hash = hash_bytes(names, std::strlen(names), 4);
  return made;
}

cl_program CL_API_CALL link(cl_context context, cl_uint count, const cl_device_id* devices, const char* options, cl_uint inputs,
                            const cl_program* programs_in, void(CL_CALLBACK* notify)(cl_program, void*), void* data, cl_int* error) {
  const cl_program made = next->clLinkProgram(context, count, devices, options, inputs, programs_in, notify, data, error);
  if (made == nullptr) return made;
  const auto program = remember(made, context, "", "it is linked from several");
  for (cl_uint i = 0; i < inputs; ++i)
    if (const auto part = programs().find(programs_in[i])) program->hash = hash_bytes(&part->hash, sizeof part->hash, program->hash);
  return made;
}

cl_int CL_API_CALL build(cl_program handle, cl_uint count, const cl_device_id* devices, const char* options,
                         void(CL_CALLBACK* notify)(cl_program, void*), void* data) {
  const cl_int error = next->clBuildProgram(handle, count, devices, options, notify, data);
  const auto program = programs().find(handle);
  if (error != CL_SUCCESS || !program) return error;
  const std::lock_guard<std::mutex> guard(program->lock);
  program->options = options == nullptr ? "" : options;
  program->forget_builds();
  return error;
}

cl_int CL_API_CALL retain_program(cl_program handle) {
  const cl_int error = next->clRetainProgram(handle);
  if (error == CL_SUCCESS) programs().retain(handle);
  return error;
}

cl_int CL_API_CALL release_program(cl_program handle) {
  const auto last = programs().release(handle);
  return next->clReleaseProgram(handle);
}

std::shared_ptr<Kernel> remember_kernel(cl_kernel handle, std::shared_ptr<Program> program) {
  auto kernel = std::make_shared<Kernel>();
  char name[256] = "";
  next->clGetKernelInfo(handle, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, nullptr);
  kernel->name = name;
  kernel->program = std::move(program);
  kernels().add(handle, kernel);
  return kernel;
}

cl_kernel CL_API_CALL create_kernel(cl_program handle, const char* name, cl_int* error) {
  const cl_kernel made = next->clCreateKernel(handle, name, error);
  if (made != nullptr) remember_kernel(made, programs().find(handle));
  return made;
}

cl_int CL_API_CALL create_kernels(cl_program handle, cl_uint count, cl_kernel* made, cl_uint* count_ret) {
  cl_uint found = 0;
  const cl_int error = next->clCreateKernelsInProgram(handle, count, made, &found);
  if (error == CL_SUCCESS && made != nullptr)
    for (cl_uint i = 0; i < std::min(count, found); ++i) remember_kernel(made[i], programs().find(handle));
  if (count_ret != nullptr) *count_ret = found;
  return error;
}

cl_kernel CL_API_CALL clone(cl_kernel handle, cl_int* error) {
  const cl_kernel made = next->clCloneKernel(handle, error);
  const auto from = kernels().find(handle);
  if (made == nullptr || !from) return made;
  const auto to = remember_kernel(made, from->program);
  to->arguments = from->arguments;
  to->execution = from->execution;
  return made;
}

cl_int CL_API_CALL retain_kernel(cl_kernel handle) {
  const cl_int error = next->clRetainKernel(handle);
  if (error == CL_SUCCESS) kernels().retain(handle);
  return error;
}

cl_int CL_API_CALL release_kernel(cl_kernel handle) {
  const auto last = kernels().release(handle);
  return next->clReleaseKernel(handle);
}

cl_int CL_API_CALL set_argument(cl_kernel handle, cl_uint index, size_t size, const void* value) {
  const cl_int error = next->clSetKernelArg(handle, index, size, value);
  if (error != CL_SUCCESS) return error;
  if (const auto kernel = kernels().find(handle)) {
    Argument& argument = kernel->arguments[index];
    argument.svm = false;
    argument.null = value == nullptr;
    argument.size = size;
    argument.bytes.clear();
    if (value != nullptr) argument.bytes.assign(static_cast<const unsigned char*>(value), static_cast<const unsigned char*>(value) + size);
  }
  return error;
}

cl_int CL_API_CALL set_argument_svm(cl_kernel handle, cl_uint index, const void* address) {
  const cl_int error = next->clSetKernelArgSVMPointer(handle, index, address);
  if (error != CL_SUCCESS) return error;
  if (const auto kernel = kernels().find(handle)) {
    Argument& argument = kernel->arguments[index];
    argument.svm = true;
    argument.address = address;
  }
  return error;
}

cl_int CL_API_CALL set_execution(cl_kernel handle, cl_kernel_exec_info name, size_t size, const void* value) {
  const cl_int error = next->clSetKernelExecInfo(handle, name, size, value);
  const auto kernel = kernels().find(handle);
  if (error == CL_SUCCESS && kernel)
    kernel->execution[name].assign(static_cast<const unsigned char*>(value), static_cast<const unsigned char*>(value) + size);
  return error;
}

Program::Build make(Program* program, cl_device_id device, const Grid& grid) {
  Program::Build made;
  if (program->builds.size() >= kMostBuilds) {
    made.reason = "its program has been built for too many kinds of grids";
    return made;
  }
  const std::string text = specialise(program->source, grid.dimensions, grid.groups[2]);
  const char* string = text.c_str();
  const size_t length = text.size();
  made.program = next->clCreateProgramWithSource(program->context, 1, &string, &length, nullptr);
  if (made.program != nullptr &&
      next->clBuildProgram(made.program, 1, &device, program->options.c_str(), nullptr, nullptr) != CL_SUCCESS) {
    next->clReleaseProgram(made.program);
    made.program = nullptr;
  }
  if (made.program == nullptr) made.reason = "its program does not build with replaced ids";
  return made;
}

bool copy_arguments(const Kernel& from, cl_kernel to) {
  for (const auto& [index, argument] : from.arguments) {
    const cl_int error = argument.svm ? next->clSetKernelArgSVMPointer(to, index, argument.address)
                                      : next->clSetKernelArg(to, index, argument.size, argument.null ? nullptr : argument.bytes.data());
    if (error != CL_SUCCESS) return false;
  }
  for (const auto& [name, value] : from.execution)
    if (next->clSetKernelExecInfo(to, name, value.size(), value.data()) != CL_SUCCESS) return false;
  return true;
}

}  // namespace

std::shared_ptr<Kernel> kernel_of(cl_kernel handle) { return kernels().find(handle); }

uint64_t hash_of(const Kernel& kernel) {
  return hash_bytes(kernel.name.data(), kernel.name.size(), kernel.program ? kernel.program->hash : 0);
}

cl_kernel sliced(Kernel* kernel, cl_device_id device, const Grid& grid, std::string* reason) {
  if (!kernel->program) {
    *reason = "its program is not known";
    return nullptr;
  }
  Program& program = *kernel->program;
  const std::lock_guard<std::mutex> guard(program.lock);
  if (!program.refused) program.refused = program.why_not.empty() ? refusal(program.source, program.options) : program.why_not;
  if (!program.refused->empty()) {
    *reason = *program.refused;
    return nullptr;
  }
  const Program::Kind kind{device, grid.dimensions, grid.groups[2]};
  auto at = program.builds.find(kind);
  if (at == program.builds.end()) at = program.builds.emplace(kind, make(&program, device, grid)).first;
  if (at->second.program == nullptr) {
    *reason = at->second.reason;
    return nullptr;
  }
  cl_kernel& twin = kernel->sliced[at->second.program];
  if (twin == nullptr) twin = next->clCreateKernel(at->second.program, kernel->name.c_str(), nullptr);
  if (twin == nullptr || !copy_arguments(*kernel, twin)) {
    *reason = "its arguments cannot be set on the build for slices";
    return nullptr;
  }
  return twin;
}

void hook_programs(cl_icd_dispatch* table) {
  table->clCreateProgramWithSource = from_source;
  table->clCreateProgramWithBinary = from_binary;
  table->clCreateProgramWithIL = from_il;
  table->clCreateProgramWithBuiltInKernels = from_built_in;
  table->clLinkProgram = link;
  table->clBuildProgram = build;
  table->clRetainProgram = retain_program;
  table->clReleaseProgram = release_program;
  table->clCreateKernel = create_kernel;
  table->clCreateKernelsInProgram = create_kernels;
  table->clCloneKernel = clone;
  table->clRetainKernel = retain_kernel;
  table->clReleaseKernel = release_kernel;
  table->clSetKernelArg = set_argument;
  table->clSetKernelArgSVMPointer = set_argument_svm;
  table->clSetKernelExecInfo = set_execution;
}

}  // namespace shoal::device::opencl
