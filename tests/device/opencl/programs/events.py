"""What a program may find out about its commands by events, queues, callbacks and errors: one JSON object of facts."""

import json
import sys
import threading

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void add(global int *x, int by) {
  int v = x[get_global_id(0)];
  for (int i = 0; i < 200; ++i) v ^= i;
  for (int i = 0; i < 200; ++i) v ^= i;
  x[get_global_id(0)] = v + by;
}
kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }
kernel __attribute__((reqd_work_group_size(32, 1, 1))) void fixed(global int *x) { x[get_global_id(0)] += 1; }
"""
N = 2048
facts: dict[str, object] = {}
context = cl.create_some_context(interactive=False)
program = cl.Program(context, SOURCE).build()
status = cl.command_execution_status


def fresh() -> cl.Buffer:
    return cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(N, np.int32))


def content(queue: cl.CommandQueue, buffer: cl.Buffer) -> list[int]:
    out = np.empty(N, np.int32)
    cl.enqueue_copy(queue, out, buffer)
    return sorted(set(out.tolist()))


def add(queue: cl.CommandQueue, buffer: cl.Buffer, by: int, wait_for: list | None = None) -> cl.Event:
    return program.add(queue, (N,), (32,), buffer, np.int32(by), wait_for=wait_for)


def error(action) -> str:
    try:
        action()
    except cl.Error as problem:
        return str(problem.code) + " " + str(problem.routine)
    return "none"


def profiled() -> None:
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    x = fresh()
    event = add(queue, x, 1)
    event.wait()
    times = event.profile
    facts["times in order"] = 0 < times.queued <= times.submit <= times.start <= times.end
    facts["type"] = event.command_type
    facts["status"] = event.command_execution_status
    facts["its queue"] = event.command_queue == queue
    facts["properties"] = int(queue.properties)
    facts["result"] = content(queue, x)


def not_profiled() -> None:
    queue = cl.CommandQueue(context)
    event = add(queue, fresh(), 1)
    event.wait()
    facts["no times"] = error(lambda: event.profile.start)
    facts["plain properties"] = int(queue.properties)


def user_events() -> None:
    queue, other, x = cl.CommandQueue(context), cl.CommandQueue(context), fresh()
    gate, second = cl.UserEvent(context), cl.UserEvent(context)
    first = add(queue, x, 5, [gate])
    then = program.twice(queue, (N,), (32,), x)  # behind it, in order
    across = add(other, x, 1, [then, second])  # on another queue, behind it and another
    marker = cl.enqueue_marker(other)
    facts["held"] = [one.command_execution_status > status.COMPLETE for one in (first, then, across)]
    gate.set_status(status.COMPLETE)
    then.wait()
    facts["still held"] = across.command_execution_status > status.COMPLETE
    threading.Timer(0.05, lambda: second.set_status(status.COMPLETE)).start()
    marker.wait()
    facts["after user events"] = content(other, x)


def failing() -> None:
    queue, x = cl.CommandQueue(context), fresh()
    gate = cl.UserEvent(context)
    held = add(queue, x, 5, [gate])
    gate.set_status(-7)
    facts["failed wait"] = error(held.wait)
    facts["failed status"] = held.command_execution_status < 0
    facts["after failure"] = content(cl.CommandQueue(context), x)


def out_of_order() -> None:
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    x, last = fresh(), []
    for step in range(5):
        last = [add(queue, x, step, last)]
        last = [program.twice(queue, (N,), (32,), x, wait_for=last)]
    gate = cl.UserEvent(context)
    last = [add(queue, x, 100, [*last, gate])]
    cl.enqueue_barrier(queue)
    late = program.twice(queue, (N,), (32,), x)
    facts["behind the barrier"] = late.command_execution_status > status.COMPLETE
    gate.set_status(status.COMPLETE)
    queue.finish()
    facts["out of order"] = content(queue, x)


def callbacks() -> None:
    queue, x = cl.CommandQueue(context), fresh()
    seen, again = [], threading.Event()

    def on_complete(code: int) -> None:
        seen.append(code)
        add(queue, x, 10)
        queue.flush()
        again.set()

    event = add(queue, x, 1)
    event.set_callback(status.COMPLETE, on_complete)
    again.wait(30)
    queue.finish()
    facts["callback"] = seen
    facts["after callback"] = content(queue, x)


def several_threads() -> None:
    queue, x = cl.CommandQueue(context), fresh()
    kernels = [cl.Kernel(program, "add") for _ in range(4)]

    def work(kernel: cl.Kernel) -> None:
        kernel.set_args(x, np.int32(1))
        for _ in range(5):
            cl.enqueue_nd_range_kernel(queue, kernel, (N,), (32,))

    threads = [threading.Thread(target=work, args=(kernel,)) for kernel in kernels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    facts["several threads"] = content(queue, x)


def errors() -> None:
    queue, x = cl.CommandQueue(context), fresh()
    kernel = cl.Kernel(program, "add")
    facts["arguments not set"] = error(lambda: cl.enqueue_nd_range_kernel(queue, kernel, (N,), (32,)))
    kernel.set_args(x, np.int32(1))
    facts["huge groups"] = error(lambda: cl.enqueue_nd_range_kernel(queue, kernel, (1 << 20,), (1 << 20,)))
    fixed = cl.Kernel(program, "fixed")
    fixed.set_args(x)
    facts["another local size"] = error(lambda: cl.enqueue_nd_range_kernel(queue, fixed, (N,), (64,)))
    facts["no local size"] = error(lambda: cl.enqueue_nd_range_kernel(queue, fixed, (N,), None))
    facts["uneven groups"] = error(lambda: cl.enqueue_nd_range_kernel(queue, kernel, (100,), (33,)))
    facts["unknown kernel"] = error(lambda: cl.Kernel(program, "subtract"))
    facts["bad build"] = error(lambda: cl.Program(context, "kernel void f() { nonsense }").build())
    kernel.set_args(x, np.int32(7))
    event = cl.enqueue_nd_range_kernel(queue, kernel, (N,), (32,))
    kernel.set_args(x, np.int32(1000))  # for the next launch only
    kernel = None
    event.wait()
    facts["after errors"] = content(queue, x)


for part in (profiled, not_profiled, user_events, failing, out_of_order, callbacks, several_threads, errors):
    part()
print(json.dumps(facts), flush=True)
sys.stdin.readline()
