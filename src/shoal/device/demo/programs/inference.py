"""A small network behind an open loop of requests: inference.py RATE. Plain OpenCL; it knows of no other program.

Requests arrive at random, RATE a second on average, whether or not those before them have been answered. Prints the
latency of each in milliseconds, from arrival to answer. Ends when its input does.
"""

import sys
import threading
import time

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void layer(global const float *weights, global const float *in, global float *out, int width) {
  int row = get_global_id(0);
  float sum = 0;
  for (int i = 0; i < width; i++) sum += weights[row * width + i] * in[i];
  out[row] = fmax(sum, 0.0f);
}
"""
WIDTH, LAYERS = 256, 4


def main(rate: float) -> None:
    random = np.random.default_rng(1)
    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    layer = cl.Kernel(cl.Program(context, SOURCE).build(), "layer")
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    weights = cl.Buffer(context, flags, hostbuf=(random.random((WIDTH, WIDTH), np.float32) - 0.4) / WIDTH)
    ends = [cl.Buffer(context, flags, hostbuf=np.ones(WIDTH, np.float32)) for _ in range(2)]
    answer = np.empty(WIDTH, np.float32)

    def serve() -> None:
        cl.enqueue_copy(queue, ends[0], random.random(WIDTH, np.float32), is_blocking=False)
        for step in range(LAYERS):
            layer(queue, (WIDTH,), (64,), weights, ends[step % 2], ends[1 - step % 2], np.int32(WIDTH))
        cl.enqueue_copy(queue, answer, ends[LAYERS % 2])

    for _ in range(3):
        serve()
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    arrival = time.monotonic()
    while not over.is_set():
        arrival += random.exponential(1 / rate)
        time.sleep(max(0.0, arrival - time.monotonic()))
        serve()
        print(f"{(time.monotonic() - arrival) * 1e3:.3f}", flush=True)


main(float(sys.argv[1]))
