// Between host and device the copy engines work, which kernels of other processes do not wait for: such copies go straight
// through, and so do cuMemcpy and cuMemcpyAsync with an end on the host, which the driver tells by the address.
#include "copies.h"

using namespace shoal::cuda;

#define FLAVOUR(suffix, per_thread)                                                                                   \
  CUresult cuMemcpyAsync##suffix(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {                    \
    return copy_on_device(explicit_stream(stream, per_thread), both_on_device(to, from, size),                        \
                          [=] { return forward(real.cuMemcpyAsync##suffix, to, from, size, stream); });               \
  }                                                                                                                   \
  CUresult cuMemcpyDtoDAsync_v2##suffix(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {             \
    return copy_on_device(explicit_stream(stream, per_thread), size,                                                  \
                          [=] { return forward(real.cuMemcpyDtoDAsync_v2##suffix, to, from, size, stream); });        \
  }                                                                                                                   \
  CUresult cuMemsetD8Async##suffix(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {              \
    return copy_on_device(explicit_stream(stream, per_thread), count,                                                 \
                          [=] { return forward(real.cuMemsetD8Async##suffix, to, value, count, stream); });           \
  }                                                                                                                   \
  CUresult cuMemsetD16Async##suffix(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {            \
    return copy_on_device(explicit_stream(stream, per_thread), count * 2,                                             \
                          [=] { return forward(real.cuMemsetD16Async##suffix, to, value, count, stream); });          \
  }                                                                                                                   \
  CUresult cuMemsetD32Async##suffix(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {                  \
    return copy_on_device(explicit_stream(stream, per_thread), count * 4,                                             \
                          [=] { return forward(real.cuMemsetD32Async##suffix, to, value, count, stream); });          \
  }

#define SYNC_FLAVOUR(suffix, per_thread)                                                                              \
  CUresult cuMemcpy##suffix(CUdeviceptr to, CUdeviceptr from, size_t size) {                                          \
    return copy_on_device(explicit_stream(nullptr, per_thread), both_on_device(to, from, size),                       \
                          [=] { return forward(real.cuMemcpy##suffix, to, from, size); });                            \
  }                                                                                                                   \
  CUresult cuMemcpyDtoD_v2##suffix(CUdeviceptr to, CUdeviceptr from, size_t size) {                                   \
    return copy_on_device(explicit_stream(nullptr, per_thread), size,                                                 \
                          [=] { return forward(real.cuMemcpyDtoD_v2##suffix, to, from, size); });                     \
  }                                                                                                                   \
  CUresult cuMemsetD8_v2##suffix(CUdeviceptr to, unsigned char value, size_t count) {                                 \
    return copy_on_device(explicit_stream(nullptr, per_thread), count,                                                \
                          [=] { return forward(real.cuMemsetD8_v2##suffix, to, value, count); });                     \
  }                                                                                                                   \
  CUresult cuMemsetD16_v2##suffix(CUdeviceptr to, unsigned short value, size_t count) {                               \
    return copy_on_device(explicit_stream(nullptr, per_thread), count * 2,                                            \
                          [=] { return forward(real.cuMemsetD16_v2##suffix, to, value, count); });                    \
  }                                                                                                                   \
  CUresult cuMemsetD32_v2##suffix(CUdeviceptr to, unsigned value, size_t count) {                                     \
    return copy_on_device(explicit_stream(nullptr, per_thread), count * 4,                                            \
                          [=] { return forward(real.cuMemsetD32_v2##suffix, to, value, count); });                    \
  }

namespace {

constexpr int kPointerMemoryType = 2, kMemoryDevice = 2;

bool on_device(CUdeviceptr at) {
  unsigned type = 0;
  return forward(real.cuPointerGetAttribute, static_cast<void*>(&type), kPointerMemoryType, at) == CUDA_SUCCESS && type == kMemoryDevice;
}

// The bytes that move on the device: none when an end is on the host.
uint64_t both_on_device(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return size >= kSmallCopy && Gate::get() != nullptr && on_device(to) && on_device(from) ? size : 0;
}

}  // namespace

FLAVOUR(, false)
FLAVOUR(_ptsz, true)
SYNC_FLAVOUR(, false)
SYNC_FLAVOUR(_ptds, true)
