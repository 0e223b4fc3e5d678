// Where the host looks at what it launched, or hands a stream on: before each, guaranteed launches whose end is not marked yet get
// a mark (streams.h), so that best-effort work does not wait for what is over.
#include "streams.h"

using namespace shoal::cuda;

CUresult cuCtxSynchronize() {
  mark_all_left();
  return forward(real.cuCtxSynchronize);
}
CUresult cuCtxSynchronize_v2(CUcontext context) {
  mark_all_left();
  return forward(real.cuCtxSynchronize_v2, context);
}

#define FLAVOUR(suffix, per_thread)                                                                                 \
  CUresult cuStreamSynchronize##suffix(CUstream stream) {                                                           \
    mark_left(explicit_stream(stream, per_thread));                                                                 \
    if (stream == nullptr) mark_all_left();                                                                         \
    return forward(real.cuStreamSynchronize##suffix, stream);                                                       \
  }                                                                                                                 \
  CUresult cuStreamQuery##suffix(CUstream stream) {                                                                 \
    mark_left(explicit_stream(stream, per_thread));                                                                 \
    return forward(real.cuStreamQuery##suffix, stream);                                                             \
  }                                                                                                                 \
  CUresult cuEventRecord##suffix(CUevent event, CUstream stream) {                                                  \
    mark_left(explicit_stream(stream, per_thread));                                                                 \
    return forward(real.cuEventRecord##suffix, event, stream);                                                      \
  }                                                                                                                 \
  CUresult cuEventRecordWithFlags##suffix(CUevent event, CUstream stream, unsigned flags) {                         \
    mark_left(explicit_stream(stream, per_thread));                                                                 \
    return forward(real.cuEventRecordWithFlags##suffix, event, stream, flags);                                      \
  }                                                                                                                 \
  CUresult cuLaunchHostFunc##suffix(CUstream stream, CUhostFn function, void* data) {                               \
    mark_left(explicit_stream(stream, per_thread));                                                                 \
    return forward(real.cuLaunchHostFunc##suffix, stream, function, data);                                          \
  }                                                                                                                 \
  CUresult cuStreamAddCallback##suffix(CUstream stream, CUstreamCallback function, void* data, unsigned flags) {    \
    mark_left(explicit_stream(stream, per_thread));                                                                 \
    return forward(real.cuStreamAddCallback##suffix, stream, function, data, flags);                                \
  }                                                                                                                 \
  CUresult cuMemcpyDtoHAsync_v2##suffix(void* to, CUdeviceptr from, size_t size, CUstream stream) {                 \
    mark_left(explicit_stream(stream, per_thread));                                                                 \
    return forward(real.cuMemcpyDtoHAsync_v2##suffix, to, from, size, stream);                                      \
  }
FLAVOUR(, false)
FLAVOUR(_ptsz, true)

#define SYNC_FLAVOUR(suffix)                                                          \
  CUresult cuMemcpyDtoH_v2##suffix(void* to, CUdeviceptr from, size_t size) {         \
    mark_all_left();                                                                  \
    return forward(real.cuMemcpyDtoH_v2##suffix, to, from, size);                     \
  }
SYNC_FLAVOUR()
SYNC_FLAVOUR(_ptds)
