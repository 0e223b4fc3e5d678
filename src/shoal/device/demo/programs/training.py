"""Long kernels, one after the other: training.py ROUNDS. Plain OpenCL; it knows of no other program.

Prints a line for each step. Ends when its input does.
"""

import sys
import threading

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void train(global float *state, int rounds) {
  float x = state[get_global_id(0)];
  for (int i = 0; i < rounds; i++) x = x * 0.9999f + 0.0001f;
  state[get_global_id(0)] = x;
}
"""
GROUPS, LOCAL = 512, 64


def main(rounds: int) -> None:
    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "train")
    state = np.zeros(GROUPS * LOCAL, np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=state)

    def step() -> None:
        kernel(queue, state.shape, (LOCAL,), buffer, np.int32(rounds))
        queue.finish()

    for _ in range(2):
        step()
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    while not over.is_set():
        step()
        print("step", flush=True)


main(int(sys.argv[1]))
