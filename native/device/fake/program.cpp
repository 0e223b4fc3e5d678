// A program that uses the driver as programs do, linked to it: tests run it with the shim and without, and compare what it
// prints. It knows nothing of either.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../cuda/driver.h"

namespace {

const char kPtx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)\n{ ret; }\n"
    ".visible .entry axpy__shoal_slice(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n, .param .align 8 .b8 e[32])\n{ ret; }\n"
    ".visible .entry blocks(.param .u64 out)\n{ ret; }\n"
    ".visible .entry blocks__shoal_slice(.param .u64 out, .param .align 8 .b8 e[32])\n{ ret; }\n";

constexpr unsigned kCount = 1000;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  printf("%s: error %d\n", what, result);
  exit(1);
}
#define MUST(call) must(call, #call)

CUdeviceptr floats(float value) {
  CUdeviceptr at;
  MUST(cuMemAlloc_v2(&at, kCount * sizeof value));
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  MUST(cuMemsetD32_v2(at, bits, kCount));
  return at;
}

double sum(CUdeviceptr at) {
  std::vector<float> values(kCount);
  MUST(cuMemcpyDtoH_v2(values.data(), at, kCount * sizeof(float)));
  double all = 0;
  for (const float value : values) all += value;
  return all;
}

struct Axpy {
  CUdeviceptr y, x;
  float a;
  unsigned n = kCount;
  void* pointers[4] = {&y, &x, &a, &n};
  Axpy(CUdeviceptr to, CUdeviceptr from, float factor) : y(to), x(from), a(factor) {}
};

}  // namespace

int main() {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUlibrary library;
  CUfunction axpy, blocks, none;
  CUkernel kernel;
  int version = 0;
  MUST(cuInit(0));
  MUST(cuDriverGetVersion(&version));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&module, kPtx));
  MUST(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  MUST(cuModuleGetFunction(&axpy, module, "axpy"));
  MUST(cuModuleGetFunction(&blocks, module, "blocks"));
  MUST(cuLibraryGetKernel(&kernel, library, "axpy"));
  printf("version %d, no such function %d\n", version, cuModuleGetFunction(&none, module, "absent"));
  printf("errors: no grid %d, no function %d, too many threads %d\n",
         cuLaunchKernel(axpy, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
         cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
         cuLaunchKernel(axpy, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr));

  const CUdeviceptr x = floats(1), y = floats(0);
  Axpy one(y, x, 1), two(y, x, 2);
  CUstream stream, other;
  CUevent event, end;
  MUST(cuStreamCreate(&stream, kStreamNonBlocking));
  MUST(cuStreamCreateWithPriority(&other, 0, -1));
  MUST(cuEventCreate(&event, kEventDefault));
  MUST(cuEventCreate(&end, kEventDefault));
  MUST(cuCtxSynchronize());

  // Every way to launch, in both flavours.
  MUST(cuLaunchKernel(axpy, 4, 1, 1, 256, 1, 1, 0, stream, one.pointers, nullptr));
  MUST(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 4, 1, 1, 256, 1, 1, 0, stream, one.pointers, nullptr));
  MUST(cuEventRecord(event, stream));
  MUST(cuStreamWaitEvent(other, event, 0));
  CUlaunchConfig config{4, 1, 1, 256, 1, 1, 0, other, nullptr, 0};
  MUST(cuLaunchKernelEx(&config, axpy, two.pointers, nullptr));
  MUST(cuLaunchCooperativeKernel(axpy, 4, 1, 1, 256, 1, 1, 0, other, one.pointers));
  MUST(cuEventRecord(end, other));
  MUST(cuEventSynchronize(end));
  MUST(cuStreamSynchronize(other));
  float ms = -1;
  MUST(cuEventElapsedTime(&ms, event, end));
  printf("launches: %g, time passed %d\n", sum(y), ms >= 0);
  char packed[24];
  memcpy(packed, &y, 8), memcpy(packed + 8, &x, 8), memcpy(packed + 16, &one.a, 4), memcpy(packed + 20, &one.n, 4);
  size_t size = sizeof packed;
  void* extra[] = {kParamBufferPointer, packed, kParamBufferSize, &size, kParamEnd};
  MUST(cuLaunchKernel(axpy, 4, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  printf("packed: %g\n", sum(y));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&] {
      MUST(cuCtxSetCurrent(context));
      const CUdeviceptr own = floats(0);
      Axpy mine(own, x, 1);
      for (int launched = 0; launched < 5; launched++) {
        MUST(cuLaunchKernel_ptsz(axpy, 4, 1, 1, 256, 1, 1, 0, nullptr, mine.pointers, nullptr));
      }
      MUST(cuStreamSynchronize_ptsz(nullptr));
      if (sum(own) != 5.0 * kCount) printf("a thread has %g\n", sum(own));
      MUST(cuMemFree_v2(own));
    });
  }
  for (auto& thread : threads) thread.join();

  // A host function runs in its turn.
  double seen = 0;
  MUST(cuLaunchKernel(axpy, 4, 1, 1, 256, 1, 1, 0, stream, one.pointers, nullptr));
  MUST(cuLaunchHostFunc(stream, [](void* out) { *static_cast<double*>(out) += 1; }, &seen));
  MUST(cuStreamSynchronize(stream));
  printf("host function %g, %g\n", seen, sum(y));

  // Graphs: captured over two streams, made by hand, updated.
  CUgraph graph;
  CUgraphExec exec;
  MUST(cuStreamBeginCapture_v2(stream, kCaptureGlobal));
  MUST(cuLaunchKernel(axpy, 4, 1, 1, 256, 1, 1, 0, stream, one.pointers, nullptr));
  MUST(cuEventRecord(event, stream));
  MUST(cuStreamWaitEvent(other, event, 0));
  MUST(cuLaunchKernel(axpy, 4, 1, 1, 256, 1, 1, 0, other, two.pointers, nullptr));
  MUST(cuEventRecord(end, other));
  MUST(cuStreamWaitEvent(stream, end, 0));
  MUST(cuMemsetD32Async(x, 0x40000000, kCount, stream));
  int status = 0;
  MUST(cuStreamIsCapturing(stream, &status));
  MUST(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0, edges = 0;
  MUST(cuGraphGetNodes(graph, nullptr, &nodes));
  MUST(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuGraphLaunch(exec, other));
  MUST(cuCtxSynchronize());
  printf("captured %d: %zu nodes, %zu edges, %g\n", status, nodes, edges, sum(y));
  MUST(cuStreamBeginCapture_v2(stream, kCaptureGlobal));
  CUdeviceptr refused;
  const CUresult unsafe = cuMemAlloc_v2(&refused, 1024);
  CUgraph broken;
  printf("a capture is broken by %d: %d\n", unsafe, cuStreamEndCapture(stream, &broken));
  MUST(cuGraphExecDestroy(exec));

  // Memory.
  size_t free_bytes = 0, total = 0, device_total = 0;
  MUST(cuMemGetInfo_v2(&free_bytes, &total));
  MUST(cuDeviceTotalMem_v2(&device_total, device));
  printf("memory: %zu of %zu, %zu\n", free_bytes, total, device_total);
  CUdeviceptr large = 0, pitched;
  size_t pitch = 0;
  printf("too much: %d\n", cuMemAlloc_v2(&large, size_t{1} << 40));
  MUST(cuMemAllocAsync(&large, 1 << 24, stream));
  MUST(cuMemsetD8Async(large, 7, 1 << 24, stream));
  MUST(cuMemcpyDtoDAsync_v2(large + (1 << 23), large, 1 << 23, stream));
  MUST(cuMemFreeAsync(large, stream));
  MUST(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 10, 4));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemGetInfo_v2(&free_bytes, &total));
  printf("memory: %zu, pitch %zu, free of nothing %d\n", free_bytes, pitch, cuMemFree_v2(12345));
  MUST(cuMemFree_v2(pitched));

  MUST(cuStreamDestroy_v2(stream));
  MUST(cuLibraryUnload(library));
  MUST(cuModuleUnload(module));
  MUST(cuDevicePrimaryCtxRelease_v2(device));
  puts("done");
}
