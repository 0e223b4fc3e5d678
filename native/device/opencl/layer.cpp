// The OpenCL layer: named in OPENCL_LAYERS, it stands between a program that knows nothing of it and the driver.
#include "layer.h"

#include <cstring>

#include "source.h"

namespace shoal::device::opencl {

const cl_icd_dispatch* next = nullptr;

namespace {
bool is_best_effort = false;
}

bool best_effort() { return is_best_effort; }

Registry<cl_command_queue, Queue>& queues() {
  // As all that the driver's threads may touch while the process ends: never destroyed.
  static auto* all = new Registry<cl_command_queue, Queue>;
  return *all;
}

}  // namespace shoal::device::opencl

using namespace shoal::device;

extern "C" {

// For src/shoal/device/opencl.py: why a program cannot be sliced; the length of the whole text, 0 when it can.
SHOAL_API size_t shoal_opencl_refusal(const char* source, const char* options, char* out, size_t size) {
  const std::string reason = opencl::refusal(source, options);
  if (size > 0) out[reason.copy(out, size - 1)] = '\0';
  return reason.size();
}

SHOAL_API CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void* value, size_t* size_ret) {
  static constexpr cl_layer_api_version kVersion = CL_LAYER_API_VERSION_100;
  static constexpr char kName[] = "shoal";
  const bool version = name == CL_LAYER_API_VERSION;
  if (!version && name != CL_LAYER_NAME) return CL_INVALID_VALUE;
  const size_t length = version ? sizeof kVersion : sizeof kName;
  if (value != nullptr && size < length) return CL_INVALID_VALUE;
  if (value != nullptr) std::memcpy(value, version ? static_cast<const void*>(&kVersion) : kName, length);
  if (size_ret != nullptr) *size_ret = length;
  return CL_SUCCESS;
}

SHOAL_API CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch* target, cl_uint* count_ret,
                                            const cl_icd_dispatch** layer) {
  static cl_icd_dispatch table{};  // what stays null goes straight to the driver
  if (target == nullptr || count_ret == nullptr || layer == nullptr) return CL_INVALID_VALUE;
  // A loader older than OpenCL 2.1 has no such calls to hook; its table is then too short to be read.
  if (count < offsetof(cl_icd_dispatch, clSetProgramSpecializationConstant) / sizeof(void*)) return CL_INVALID_VALUE;
  opencl::next = target;
  if (Gate* gate = opencl::gate()) {
    opencl::is_best_effort = gate->cls() == SHOAL_BEST_EFFORT;
    opencl::hook_queues(&table);
    opencl::hook_commands(&table);
    opencl::hook_held(&table);
    opencl::hook_launches(&table);
    opencl::hook_extensions(&table);
    opencl::hook_memory(&table);
    if (opencl::is_best_effort) {
      opencl::hook_events(&table);
      opencl::hook_programs(&table);
    }
  }
  *count_ret = sizeof table / sizeof(void*);
  *layer = &table;
  return CL_SUCCESS;
}

}  // extern "C"
