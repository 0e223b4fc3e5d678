// The part of CUDA's driver API that the shim and the fake driver use, declared anew because few machines have cuda.h.
// Layouts and numbers are those of CUDA 13.0, the same since 12.0; tests/device/cuda compares them with cuda.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

using CUresult = int;
constexpr CUresult CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2,
                   CUDA_ERROR_NOT_INITIALIZED = 3, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_INVALID_DEVICE = 101,
                   CUDA_ERROR_INVALID_CONTEXT = 201, CUDA_ERROR_INVALID_PTX = 218, CUDA_ERROR_FILE_NOT_FOUND = 301,
                   CUDA_ERROR_INVALID_HANDLE = 400, CUDA_ERROR_NOT_FOUND = 500, CUDA_ERROR_NOT_READY = 600,
                   CUDA_ERROR_NOT_SUPPORTED = 801, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
                   CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
                   CUDA_ERROR_ILLEGAL_STATE = 401;

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemHandle = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUhostFn = void (*)(void*);
using CUstreamCallback = void (*)(CUstream, CUresult, void*);

inline CUstream const kLegacyStream = reinterpret_cast<CUstream>(uintptr_t{1});
inline CUstream const kPerThreadStream = reinterpret_cast<CUstream>(uintptr_t{2});

constexpr uint64_t kProcLegacyStream = 1, kProcPerThreadStream = 2;  // flags of cuGetProcAddress

enum : int { kAttrSharedBytes = 1, kAttrConstBytes = 2, kAttrLocalBytes = 3, kAttrRegisters = 4, kAttrBinaryVersion = 6,
             kAttrMaxDynamicShared = 8, kAttrCarveout = 9, kAttrClusterMustBeSet = 10, kAttrClusterWidth = 11 };

constexpr int kDeviceMultiprocessors = 16;

enum : int { kNodeKernel = 0, kNodeMemcpy = 1, kNodeMemset = 2, kNodeHost = 3, kNodeGraph = 4, kNodeEmpty = 5,
             kNodeWaitEvent = 6, kNodeEventRecord = 7 };

enum : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };
enum : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };

enum : int { kLaunchCooperative = 2, kLaunchClusterDimension = 4, kLaunchProgrammaticSerialization = 6,
             kLaunchProgrammaticEvent = 7, kLaunchPreferredCluster = 11, kLaunchCompletionEvent = 12,
             kLaunchDeviceUpdatable = 13 };

constexpr unsigned kEventDefault = 0, kEventDisableTiming = 2, kStreamNonBlocking = 1;
constexpr unsigned kHostRegisterPortable = 1, kHostRegisterDeviceMap = 2;
inline void* const kParamEnd = nullptr;
inline void* const kParamBufferPointer = reinterpret_cast<void*>(uintptr_t{1});
inline void* const kParamBufferSize = reinterpret_cast<void*>(uintptr_t{2});

struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int number;
    unsigned dims[3];
  } value;
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

struct CUDA_KERNEL_NODE_PARAMS {  // _v2; the first version ends after `extra`
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};

struct CUDA_MEMSET_NODE_PARAMS {
  CUdeviceptr dst;
  size_t pitch;
  unsigned value, elementSize;
  size_t width, height;
};

struct CUDA_MEMCPY3D {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  int srcMemoryType;  // 1 host, 2 device, 3 array, 4 unified
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  void* reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  void* reserved1;
  size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;
};

struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  uint64_t flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  int result_out;
};

struct CUgraphExecUpdateResultInfo {
  int result;
  CUgraphNode errorNode, errorFromNode;
};

struct CUgraphEdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};

static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56 && sizeof(CUDA_KERNEL_NODE_PARAMS) == 72 &&
                  sizeof(CUDA_MEMSET_NODE_PARAMS) == 40 && sizeof(CUDA_MEMCPY3D) == 200 &&
                  sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == 32 && sizeof(CUgraphExecUpdateResultInfo) == 24 &&
                  sizeof(CUgraphEdgeData) == 8,
              "layouts of the driver API");

// Each as it is exported: NAME, NAME_v2, NAME_ptsz ... `STREAM_API` declares the flavour with per-thread default streams too.
#define SHOAL_EXPORT extern "C" __attribute__((visibility("default")))
#define API(name, ...) SHOAL_EXPORT CUresult name(__VA_ARGS__);
#define STREAM_API(name, ...) API(name, __VA_ARGS__) API(name##_ptsz, __VA_ARGS__)
#define SYNC_API(name, ...) API(name, __VA_ARGS__) API(name##_ptds, __VA_ARGS__)

API(cuInit, unsigned)
API(cuDriverGetVersion, int*)
API(cuGetProcAddress, const char*, void**, int, uint64_t)
API(cuGetProcAddress_v2, const char*, void**, int, uint64_t, int*)
API(cuGetErrorName, CUresult, const char**)
API(cuGetErrorString, CUresult, const char**)
API(cuDeviceGet, CUdevice*, int)
API(cuDeviceGetCount, int*)
API(cuDeviceGetName, char*, int, CUdevice)
API(cuDeviceGetAttribute, int*, int, CUdevice)
API(cuDeviceGetUuid, char*, CUdevice)
API(cuDeviceGetUuid_v2, char*, CUdevice)
API(cuDeviceTotalMem_v2, size_t*, CUdevice)
API(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)
API(cuDevicePrimaryCtxRelease, CUdevice)
API(cuDevicePrimaryCtxRelease_v2, CUdevice)
API(cuDevicePrimaryCtxReset, CUdevice)
API(cuDevicePrimaryCtxReset_v2, CUdevice)
API(cuDevicePrimaryCtxGetState, CUdevice, unsigned*, int*)
API(cuCtxCreate_v2, CUcontext*, unsigned, CUdevice)
API(cuCtxDestroy, CUcontext)
API(cuCtxDestroy_v2, CUcontext)
API(cuCtxGetCurrent, CUcontext*)
API(cuCtxSetCurrent, CUcontext)
API(cuCtxPushCurrent_v2, CUcontext)
API(cuCtxPopCurrent_v2, CUcontext*)
API(cuCtxGetDevice, CUdevice*)
API(cuCtxSynchronize)
API(cuCtxSynchronize_v2, CUcontext)
API(cuCtxGetStreamPriorityRange, int*, int*)

API(cuModuleLoad, CUmodule*, const char*)
API(cuModuleLoadData, CUmodule*, const void*)
API(cuModuleLoadDataEx, CUmodule*, const void*, unsigned, int*, void**)
API(cuModuleUnload, CUmodule)
API(cuModuleGetFunction, CUfunction*, CUmodule, const char*)
API(cuLibraryLoadData, CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned)
API(cuLibraryUnload, CUlibrary)
API(cuLibraryGetKernel, CUkernel*, CUlibrary, const char*)
API(cuLibraryEnumerateKernels, CUkernel*, unsigned, CUlibrary)
API(cuModuleEnumerateFunctions, CUfunction*, unsigned, CUmodule)
API(cuKernelGetFunction, CUfunction*, CUkernel)
API(cuKernelGetName, const char**, CUkernel)
API(cuKernelGetLibrary, CUlibrary*, CUkernel)
API(cuKernelGetAttribute, int*, int, CUkernel, CUdevice)
API(cuKernelSetAttribute, int, int, CUkernel, CUdevice)
API(cuFuncGetModule, CUmodule*, CUfunction)
API(cuFuncGetName, const char**, CUfunction)
API(cuFuncGetAttribute, int*, int, CUfunction)
API(cuFuncSetAttribute, CUfunction, int, int)
API(cuOccupancyMaxActiveBlocksPerMultiprocessor, int*, CUfunction, int, size_t)
API(cuFuncGetParamInfo, CUfunction, size_t, size_t*, size_t*)
API(cuKernelGetParamInfo, CUkernel, size_t, size_t*, size_t*)

STREAM_API(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**)
STREAM_API(cuLaunchKernelEx, const CUlaunchConfig*, CUfunction, void**, void**)
STREAM_API(cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**)
STREAM_API(cuLaunchHostFunc, CUstream, CUhostFn, void*)

API(cuStreamCreate, CUstream*, unsigned)
API(cuStreamCreateWithPriority, CUstream*, unsigned, int)
API(cuStreamDestroy, CUstream)
API(cuStreamDestroy_v2, CUstream)
STREAM_API(cuStreamSynchronize, CUstream)
STREAM_API(cuStreamQuery, CUstream)
STREAM_API(cuStreamAddCallback, CUstream, CUstreamCallback, void*, unsigned)
STREAM_API(cuStreamWaitEvent, CUstream, CUevent, unsigned)
STREAM_API(cuStreamWriteValue32_v2, CUstream, CUdeviceptr, uint32_t, unsigned)
STREAM_API(cuStreamBeginCapture, CUstream)
STREAM_API(cuStreamBeginCapture_v2, CUstream, int)
STREAM_API(cuStreamBeginCaptureToGraph, CUstream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, size_t, int)
STREAM_API(cuStreamEndCapture, CUstream, CUgraph*)
STREAM_API(cuStreamIsCapturing, CUstream, int*)
API(cuThreadExchangeStreamCaptureMode, int*)
API(cuEventCreate, CUevent*, unsigned)
API(cuEventDestroy_v2, CUevent)
STREAM_API(cuEventRecord, CUevent, CUstream)
STREAM_API(cuEventRecordWithFlags, CUevent, CUstream, unsigned)
API(cuEventQuery, CUevent)
API(cuEventSynchronize, CUevent)
API(cuEventElapsedTime, float*, CUevent, CUevent)

API(cuGraphCreate, CUgraph*, unsigned)
API(cuGraphDestroy, CUgraph)
API(cuGraphAddKernelNode_v2, CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS*)
API(cuGraphAddMemcpyNode, CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_MEMCPY3D*, CUcontext)
API(cuGraphAddMemsetNode, CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_MEMSET_NODE_PARAMS*, CUcontext)
API(cuGraphAddEmptyNode, CUgraphNode*, CUgraph, const CUgraphNode*, size_t)
API(cuGraphAddHostNode, CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const void*)
API(cuGraphGetNodes, CUgraph, CUgraphNode*, size_t*)
API(cuGraphGetEdges, CUgraph, CUgraphNode*, CUgraphNode*, size_t*)
API(cuGraphGetEdges_v2, CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*, size_t*)
API(cuGraphNodeGetType, CUgraphNode, int*)
API(cuGraphKernelNodeGetParams_v2, CUgraphNode, CUDA_KERNEL_NODE_PARAMS*)
API(cuGraphKernelNodeGetAttribute, CUgraphNode, int, void*)
API(cuGraphMemcpyNodeGetParams, CUgraphNode, CUDA_MEMCPY3D*)
API(cuGraphMemsetNodeGetParams, CUgraphNode, CUDA_MEMSET_NODE_PARAMS*)
API(cuGraphEventRecordNodeGetEvent, CUgraphNode, CUevent*)
API(cuGraphEventWaitNodeGetEvent, CUgraphNode, CUevent*)
API(cuGraphInstantiate, CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t)
API(cuGraphInstantiate_v2, CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t)
API(cuGraphInstantiateWithFlags, CUgraphExec*, CUgraph, unsigned long long)
STREAM_API(cuGraphInstantiateWithParams, CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*)
STREAM_API(cuGraphLaunch, CUgraphExec, CUstream)
API(cuGraphExecDestroy, CUgraphExec)
API(cuGraphExecUpdate, CUgraphExec, CUgraph, CUgraphNode*, int*)
API(cuGraphExecUpdate_v2, CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*)
API(cuGraphExecKernelNodeSetParams, CUgraphExec, CUgraphNode, const void*)
API(cuGraphExecKernelNodeSetParams_v2, CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*)
API(cuGraphExecMemcpyNodeSetParams, CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext)
API(cuGraphExecMemsetNodeSetParams, CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*, CUcontext)
API(cuGraphExecHostNodeSetParams, CUgraphExec, CUgraphNode, const void*)
API(cuGraphExecChildGraphNodeSetParams, CUgraphExec, CUgraphNode, CUgraph)
API(cuGraphExecEventRecordNodeSetEvent, CUgraphExec, CUgraphNode, CUevent)
API(cuGraphExecEventWaitNodeSetEvent, CUgraphExec, CUgraphNode, CUevent)
API(cuGraphExecNodeSetParams, CUgraphExec, CUgraphNode, void*)
API(cuGraphNodeSetEnabled, CUgraphExec, CUgraphNode, unsigned)

API(cuMemGetInfo_v2, size_t*, size_t*)
API(cuMemAlloc_v2, CUdeviceptr*, size_t)
API(cuMemAllocPitch_v2, CUdeviceptr*, size_t*, size_t, size_t, unsigned)
API(cuMemAllocManaged, CUdeviceptr*, size_t, unsigned)
STREAM_API(cuMemAllocAsync, CUdeviceptr*, size_t, CUstream)
STREAM_API(cuMemAllocFromPoolAsync, CUdeviceptr*, size_t, CUmemoryPool, CUstream)
API(cuMemFree_v2, CUdeviceptr)
STREAM_API(cuMemFreeAsync, CUdeviceptr, CUstream)
API(cuMemAllocHost_v2, void**, size_t)
API(cuMemFreeHost, void*)
API(cuMemCreate, CUmemHandle*, size_t, const void*, unsigned long long)
API(cuMemRelease, CUmemHandle)
API(cuMemRetainAllocationHandle, CUmemHandle*, void*)
API(cuMemMap, CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long)
API(cuMemUnmap, CUdeviceptr, size_t)
API(cuMemAddressReserve, CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)
API(cuMemAddressFree, CUdeviceptr, size_t)
API(cuMemHostRegister_v2, void*, size_t, unsigned)
API(cuMemHostUnregister, void*)
API(cuMemHostGetDevicePointer_v2, CUdeviceptr*, void*, unsigned)

API(cuPointerGetAttribute, void*, int, CUdeviceptr)

SYNC_API(cuMemcpy, CUdeviceptr, CUdeviceptr, size_t)
STREAM_API(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, size_t, CUstream)
SYNC_API(cuMemcpyHtoD_v2, CUdeviceptr, const void*, size_t)
STREAM_API(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void*, size_t, CUstream)
SYNC_API(cuMemcpyDtoH_v2, void*, CUdeviceptr, size_t)
STREAM_API(cuMemcpyDtoHAsync_v2, void*, CUdeviceptr, size_t, CUstream)
SYNC_API(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, size_t)
STREAM_API(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, CUstream)
STREAM_API(cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D*, CUstream)
SYNC_API(cuMemsetD8_v2, CUdeviceptr, unsigned char, size_t)
SYNC_API(cuMemsetD16_v2, CUdeviceptr, unsigned short, size_t)
SYNC_API(cuMemsetD32_v2, CUdeviceptr, unsigned, size_t)
STREAM_API(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)
STREAM_API(cuMemsetD16Async, CUdeviceptr, unsigned short, size_t, CUstream)
STREAM_API(cuMemsetD32Async, CUdeviceptr, unsigned, size_t, CUstream)
STREAM_API(cuMemsetD2D8Async, CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream)
STREAM_API(cuMemsetD2D16Async, CUdeviceptr, size_t, unsigned short, size_t, size_t, CUstream)
STREAM_API(cuMemsetD2D32Async, CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream)

#undef API
#undef STREAM_API
#undef SYNC_API
