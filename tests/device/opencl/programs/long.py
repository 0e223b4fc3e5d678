"""Kernels of so many groups that take about a millisecond of a core each, one after the other: long.py KERNELS GROUPS.
Prints "ready" when it has built, waits for a line, and prints whether all groups ran once in each."""

import sys

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void burn(global int *ran, int rounds) {
  float x = get_local_id(0);
  for (int i = 0; i < rounds; i++) x = x * 1.0001f + 0.5f;
  if (get_local_id(0) == 0) ran[get_group_id(0)] += x >= 0;
}
"""
kernels, groups = int(sys.argv[1]), int(sys.argv[2])
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "burn")
ran = np.zeros(groups, np.int32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=ran)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(kernels):
    kernel(queue, (groups * 64,), (64,), buffer, np.int32(20000))
queue.finish()
cl.enqueue_copy(queue, ran, buffer)
print(f"ran {ran.min()} {ran.max()}", flush=True)
sys.stdin.readline()
