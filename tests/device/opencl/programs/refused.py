"""Launches that cannot go in slices, each of a kernel named after why; prints whether all results are right."""

import numpy as np
import pyopencl as cl

N = 1024
BODY = "(global int *x) { x[get_global_id(0)] += get_local_size(0) > 0; }"
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
wrong = []


def check(name: str, source: str, size: int = N, local: int | None = 32, offset: int = 0,
          program: cl.Program | None = None) -> None:  # fmt: skip
    program = program or cl.Program(context, source).build()
    out = np.zeros(N, np.int32)
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
    kernel = cl.Kernel(program, name)
    kernel.set_args(x)
    cl.enqueue_nd_range_kernel(queue, kernel, (size,), (local,) if local else None, (offset,) if offset else None)
    cl.enqueue_copy(queue, out, x)
    if not ((out[offset : offset + size] == 1).all() and out.sum() == size):
        wrong.append(name)


check("offset", "kernel void offset" + BODY, size=512, offset=256)
check("prime", "kernel void prime" + BODY, size=1021, local=None)
check("macro", "size_t id(uint d) { return get_global_id(d); }\n#define get_global_id id\nkernel void macro" + BODY)
check(
    "spin",
    "kernel void spin(global int *x) { while (atomic_add(&x[get_global_id(0)], 0) != 0); x[get_global_id(0)] += 1; }",
)
binary = cl.Program(context, "kernel void binary" + BODY).build().get_info(cl.program_info.BINARIES)
check("binary", "", program=cl.Program(context, context.devices, binary).build())
check("plain", "kernel void plain" + BODY)
queue.finish()
print("wrong:", wrong)
