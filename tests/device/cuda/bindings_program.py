"""A program that uses cuda-bindings, NVIDIA's Python interface, which looks functions up by cuGetProcAddress."""

import os
import sys

import numpy as np

os.environ["CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"] = sys.argv[1]
from cuda.bindings import driver

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n) { ret; }
"""
COUNT = 500


def ask(function, *arguments):
    result, *values = function(*arguments)
    if result != driver.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"{function.__name__}: {result}")
    return values[0] if len(values) == 1 else values


ask(driver.cuInit, 0)
device = ask(driver.cuDeviceGet, 0)
context = ask(driver.cuDevicePrimaryCtxRetain, device)
ask(driver.cuCtxSetCurrent, context)
print("version", ask(driver.cuDriverGetVersion), "name", ask(driver.cuDeviceGetName, 64, device).rstrip(b"\0"))
module = ask(driver.cuModuleLoadData, np.frombuffer(PTX + b"\0", np.uint8).ctypes.data)
axpy = ask(driver.cuModuleGetFunction, module, b"axpy")
x, y = (ask(driver.cuMemAlloc, 4 * COUNT) for _ in range(2))
ask(driver.cuMemsetD32, x, int(np.float32(1).view(np.uint32)), COUNT)
ask(driver.cuMemsetD32, y, 0, COUNT)
arguments = (
    np.array([int(y)], np.uint64),
    np.array([int(x)], np.uint64),
    np.array([2], np.float32),
    np.array([COUNT], np.uint32),
)
pointers = np.array([one.ctypes.data for one in arguments], np.uint64)


def launch(stream):
    ask(driver.cuLaunchKernel, axpy, 2, 1, 1, 256, 1, 1, 0, stream, pointers.ctypes.data, 0)


def total():
    host = np.zeros(COUNT, np.float32)
    ask(driver.cuMemcpyDtoH, host.ctypes.data, y, host.nbytes)
    return host.sum()


stream = ask(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
ask(driver.cuCtxSynchronize)
for _ in range(5):
    launch(stream)
ask(driver.cuStreamSynchronize, stream)
print("stream", total())
for _ in range(5):
    launch(0)
print("default stream", total())
config = driver.CUlaunchConfig()
config.gridDimX, config.gridDimY, config.gridDimZ = 2, 1, 1
config.blockDimX, config.blockDimY, config.blockDimZ = 256, 1, 1
config.hStream = stream
ask(driver.cuStreamSynchronize, 0)
ask(driver.cuLaunchKernelEx, config, axpy, pointers.ctypes.data, 0)
ask(driver.cuStreamSynchronize, stream)
print("with a configuration", total())
ask(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
launch(stream)
launch(stream)
graph = ask(driver.cuStreamEndCapture, stream)
executable = ask(driver.cuGraphInstantiate, graph, 0)
ask(driver.cuStreamSynchronize, 0)
for _ in range(3):
    ask(driver.cuGraphLaunch, executable, stream)
    ask(driver.cuStreamSynchronize, stream)
print("graph", total())
print("memory", ask(driver.cuMemGetInfo), ask(driver.cuDeviceTotalMem, device))
error, _ = driver.cuMemAlloc(1 << 40)
print("too much", error)
error = driver.cuLaunchKernel(axpy, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0)[0]
print("no grid", error)
print("waits", flush=True)
sys.stdin.readline()
