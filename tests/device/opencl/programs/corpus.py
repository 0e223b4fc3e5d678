"""Kernels of many kinds, over fixed inputs; their results go to the file named. Knows nothing of who runs it."""

import sys

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void saxpy(global const float *x, global float *y, float a) {
  size_t i = get_global_id(0);
  y[i] = a * x[i] + y[i];
}
kernel void groups(global int *out) {
  size_t i = get_global_id(1) * get_global_size(0) + get_global_id(0);
  out[i] = get_group_id(1) * 1000 + get_group_id(0) + (get_num_groups(1) << 20);
}
kernel void sums(global const float *x, global float *part, local float *room) {
  int l = get_local_id(0);
  room[l] = x[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = get_local_size(0) / 2; k > 0; k >>= 1) {
    if (l < k) room[l] += room[l + k];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (l == 0) part[get_group_id(0)] = room[0];
}
kernel void strided(global float *y, int n) {
  for (int i = get_global_id(0); i < n; i += get_global_size(0)) y[i] += i;
}
int place(void) {
  return (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
}
kernel void cube(global int *out) {
  out[place()] = get_group_id(0) + 100 * get_group_id(1) + 10000 * get_group_id(2) + (get_work_dim() << 24);
}
kernel void counts(global const int *x, global int *bins) { atomic_add(&bins[x[get_global_id(0)] & 15], 1); }
kernel void early(global const float *x, global float *y, int n) {
  local float first;
  if (get_group_id(0) % 3 == 2) return;
  if (get_local_id(0) == 0) first = x[get_group_id(0) * get_local_size(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_global_id(0) < n) y[get_global_id(0)] = first + x[get_global_id(0)];
}
kernel __attribute__((reqd_work_group_size(8, 4, 1))) void fixed(global int *out) {
  out[get_global_linear_id()] = get_local_linear_id() + 64 * (get_group_id(1) * get_num_groups(0) + get_group_id(0));
}
"""


def main(path: str) -> None:
    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    program = cl.Program(context, SOURCE).build(options=["-cl-std=CL2.0"])
    random = np.random.default_rng(7)
    results: dict[str, np.ndarray] = {}

    def buffer(value: np.ndarray) -> cl.Buffer:
        return cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=value)

    def run(name: str, size: tuple, local: tuple | None, out: np.ndarray, *before: object, after: tuple = ()) -> None:
        target = buffer(out)
        getattr(program, name)(queue, size, local, *before, target, *after)
        cl.enqueue_copy(queue, out, target)
        results[f"{name}{len(results)}"] = out

    n = 4096
    x, whole = random.random(n, np.float32), random.integers(0, 99, n).astype(np.int32)
    for local in ((64,), (16,), None):
        run("saxpy", (n,), local, x.copy(), buffer(x), after=(np.float32(3),))
    run("groups", (64, 64), (8, 4), np.zeros(n, np.int32))
    run("sums", (n,), (64,), np.zeros(n // 64, np.float32), buffer(x), after=(cl.LocalMemory(256),))
    run("strided", (512,), (32,), x.copy(), after=(np.int32(n),))
    run("cube", (16, 8, 32), (4, 2, 8), np.zeros(n, np.int32))
    run("cube", (16, 16, 16), (4, 4, 2), np.zeros(n, np.int32))
    run("counts", (n,), (64,), np.zeros(16, np.int32), buffer(whole))
    run("early", (n,), (64,), np.zeros(n, np.float32), buffer(x), after=(np.int32(n - 100),))
    run("fixed", (64, 64), (8, 4), np.zeros(n, np.int32))
    queue.finish()
    np.savez(path, **results)


main(sys.argv[1])
