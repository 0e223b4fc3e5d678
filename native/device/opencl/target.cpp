#include "target.h"

#include <CL/cl_ext.h>

#include <cstdlib>
#include <map>

namespace shoal::device::opencl {
namespace {

#ifndef CL_DEVICE_UUID_KHR
#define CL_DEVICE_UUID_KHR 0x106A
#endif

std::string plain_name(cl_device_id device) {
  char text[256] = "";
  next->clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof text - 1, text, nullptr);
  return text;
}

bool tells_uuid(cl_device_id device) {
  size_t size = 0;
  if (next->clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, nullptr, &size) != CL_SUCCESS) return false;
  std::string all(size, '\0');
  next->clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, size, all.data(), nullptr);
  return all.find("cl_khr_device_uuid") != all.npos;
}

}  // namespace

std::string name_of(cl_device_id device) {
  unsigned char uuid[16];
  if (tells_uuid(device) && next->clGetDeviceInfo(device, CL_DEVICE_UUID_KHR, sizeof uuid, uuid, nullptr) == CL_SUCCESS) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : uuid) text += {kDigits[byte >> 4], kDigits[byte & 15]};
    return text;
  }
  const std::string name = plain_name(device);
  cl_platform_id platform = nullptr;
  cl_device_id all[64];
  cl_uint count = 0;
  next->clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, nullptr);
  next->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, all, &count);
  uint32_t place = 0;
  for (cl_uint i = 0; i < std::min(count, 64u) && all[i] != device; ++i)
    if (plain_name(all[i]) == name) ++place;
  return name + "#" + std::to_string(place);
}

bool is_target(cl_device_id device) {
  // A part of a device is of the device.
  cl_device_id whole = nullptr;
  while (next->clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof whole, &whole, nullptr) == CL_SUCCESS && whole != nullptr)
    device = whole;
  static const char* const wanted = std::getenv("SHOAL_DEVICE_OPENCL");
  if (wanted == nullptr || *wanted == '\0') return true;
  static std::mutex lock;
  static auto* known = new std::map<cl_device_id, bool>;
  const std::lock_guard<std::mutex> guard(lock);
  const auto at = known->find(device);
  if (at != known->end()) return at->second;
  return known->emplace(device, name_of(device) == wanted).first->second;
}

}  // namespace shoal::device::opencl
