// A plain C program on the system's OpenCL loader. Prints facts, one a line.
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(call) do { cl_int error_ = (call); if (error_) { printf("%s: %d\n", #call, error_); exit(1); } } while (0)

static const char *source =
    "kernel void burn(global int *ran, int rounds) {\n"
    "  float x = get_local_id(0);\n"
    "  for (int i = 0; i < rounds; i++) x = x * 1.0001f + 0.5f;\n"
    "  if (get_local_id(0) == 0) ran[get_group_id(0)] += x >= 0;\n"
    "}\n"
    "kernel void once(global int *ran) { ran[0] += get_global_size(0) == 1; }\n"
    "kernel void late(global int *ran) { if (get_local_id(0) == 0) ran[get_group_id(0)] += 100; }\n";

enum { GROUPS = 40, LOCAL = 16 };
static const size_t global = GROUPS * LOCAL, local = LOCAL;
static cl_command_queue other;
static cl_kernel late;
static cl_event late_event;
static atomic_int called;

static void CL_CALLBACK on_end(cl_event event, cl_int status, void *data) {
  (void)event, (void)data;
  if (status == CL_COMPLETE) CHECK(clEnqueueNDRangeKernel(other, late, 1, NULL, &global, &local, 0, NULL, &late_event));
  CHECK(clFlush(other));
  atomic_store(&called, 1);
}

static cl_ulong told(cl_event event, cl_profiling_info name) {
  cl_ulong value = 0;
  CHECK(clGetEventProfilingInfo(event, name, sizeof value, &value, NULL));
  return value;
}

int main(void) {
  cl_platform_id platform;
  cl_device_id device;
  CHECK(clGetPlatformIDs(1, &platform, NULL));
  CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  cl_queue_properties asked[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0}, found[8] = {0};
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, asked, NULL);
  other = clCreateCommandQueueWithProperties(context, device, NULL, NULL);
  size_t length = 0;
  CHECK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, sizeof found, found, &length));
  printf("properties %zu %d\n", length / sizeof *found, (int)found[1]);
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
  CHECK(clBuildProgram(program, 1, &device, "", NULL, NULL));
  cl_kernel burn = clCreateKernel(program, "burn", NULL), once = clCreateKernel(program, "once", NULL);
  late = clCreateKernel(program, "late", NULL);
  CHECK(clReleaseProgram(program));

  int ran[GROUPS] = {0}, rounds = 20000, few = 10;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof ran, ran, NULL);
  CHECK(clSetKernelArg(burn, 0, sizeof buffer, &buffer));
  CHECK(clSetKernelArg(once, 0, sizeof buffer, &buffer));
  CHECK(clSetKernelArg(late, 0, sizeof buffer, &buffer));

  // A kernel's times span all of its pieces: it begins soon after the one before it has ended. Between the two the system
  // may run others, so it is tried again, on other memory. Of its last piece alone the times would never span so much.
  cl_event before, event, task;
  CHECK(clSetKernelArg(burn, 1, sizeof few, &few));
  for (int i = 0; i < 3; ++i) {  // built by then
    CHECK(clEnqueueNDRangeKernel(queue, burn, 1, NULL, &global, &local, 0, NULL, &before));
    if (i < 2) CHECK(clReleaseEvent(before));
  }
  CHECK(clSetKernelArg(burn, 1, sizeof rounds, &rounds));
  CHECK(clEnqueueNDRangeKernel(queue, burn, 1, NULL, &global, &local, 0, NULL, &event));
  CHECK(clRetainEvent(event));
  CHECK(clWaitForEvents(1, &event));
  cl_ulong start = told(event, CL_PROFILING_COMMAND_START), end = told(event, CL_PROFILING_COMMAND_END);
  int spans = start - told(before, CL_PROFILING_COMMAND_END) < end - start;
  cl_mem scratch = clCreateBuffer(context, 0, sizeof ran, NULL, NULL);
  CHECK(clSetKernelArg(burn, 0, sizeof scratch, &scratch));
  int again = 0;
  for (; again < 50 && !spans; ++again) {
    cl_event first, second;
    CHECK(clSetKernelArg(burn, 1, sizeof few, &few));
    CHECK(clEnqueueNDRangeKernel(queue, burn, 1, NULL, &global, &local, 0, NULL, &first));
    CHECK(clSetKernelArg(burn, 1, sizeof rounds, &rounds));
    CHECK(clEnqueueNDRangeKernel(queue, burn, 1, NULL, &global, &local, 0, NULL, &second));
    CHECK(clWaitForEvents(1, &second));
    cl_ulong began = told(second, CL_PROFILING_COMMAND_START), ended = told(second, CL_PROFILING_COMMAND_END);
    spans = began - told(first, CL_PROFILING_COMMAND_END) < ended - began;
    CHECK(clReleaseEvent(first));
    CHECK(clReleaseEvent(second));
  }
  CHECK(clReleaseMemObject(scratch));
  CHECK(clSetKernelArg(burn, 0, sizeof buffer, &buffer));
  printf("spans %d\n", spans);
  CHECK(clReleaseEvent(event));
  printf("still spans %d\n", told(event, CL_PROFILING_COMMAND_START) == start);
  CHECK(clReleaseEvent(event));
  CHECK(clReleaseEvent(before));

  CHECK(clEnqueueTask(queue, once, 0, NULL, &task));
  CHECK(clSetEventCallback(task, CL_COMPLETE, on_end, NULL));
  CHECK(clFlush(queue));
  while (!atomic_load(&called)) usleep(1000);
  CHECK(clWaitForEvents(1, &late_event));
  CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof ran, ran, 0, NULL, NULL));
  printf("ran %d %d %d\n", ran[0], ran[1], ran[GROUPS - 1]);

  int *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, sizeof ran, 0, NULL, NULL, NULL);
  mapped[0] = 7;
  CHECK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
  int pattern = 3;
  CHECK(clEnqueueFillBuffer(queue, buffer, &pattern, sizeof pattern, sizeof pattern, sizeof ran - sizeof pattern, 0, NULL, NULL));
  CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof ran, ran, 0, NULL, NULL));
  printf("filled %d %d %d\n", ran[0], ran[1], ran[GROUPS - 1]);

  // A recorded launch, twice.
  clCreateCommandBufferKHR_fn record = clGetExtensionFunctionAddressForPlatform(platform, "clCreateCommandBufferKHR");
  clCommandNDRangeKernelKHR_fn add = clGetExtensionFunctionAddressForPlatform(platform, "clCommandNDRangeKernelKHR");
  clFinalizeCommandBufferKHR_fn finish = clGetExtensionFunctionAddressForPlatform(platform, "clFinalizeCommandBufferKHR");
  clEnqueueCommandBufferKHR_fn replay = clGetExtensionFunctionAddressForPlatform(platform, "clEnqueueCommandBufferKHR");
  cl_int error;
  int step = few;
  CHECK(clSetKernelArg(burn, 1, sizeof step, &step));
  cl_command_buffer_khr recorded = record(1, &queue, NULL, &error);
  CHECK(error);
  CHECK(add(recorded, NULL, NULL, burn, 1, NULL, &global, &local, 0, NULL, NULL, NULL));
  CHECK(finish(recorded));
  for (int i = 0; i < 2; ++i) {
    CHECK(replay(0, NULL, recorded, 0, NULL, &event));
    CHECK(clWaitForEvents(1, &event));
    CHECK(clReleaseEvent(event));
  }
  CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof ran, ran, 0, NULL, NULL));
  printf("recorded %d %d\n", ran[0], ran[GROUPS - 1]);
  void *shared = clSVMAlloc(context, CL_MEM_READ_WRITE, 48 << 20, 0), *more = clSVMAlloc(context, CL_MEM_READ_WRITE, 48 << 20, 0);
  printf("shared %d %d\n", shared != NULL, more != NULL);
  clSVMFree(context, shared);
  clSVMFree(context, more);
  CHECK(clFinish(queue));
  printf("again %d\n", again);
  fflush(stdout);
  return getchar() == 0;
}
