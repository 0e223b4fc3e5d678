"""Graphs and capture: the same results whole or node by node, and nothing of the shim's in what is captured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.device.cuda.kit import EAGER, Device, line_of, needs_fake, resume, tenant

pytestmark = needs_fake
CLASSES = (None, "guaranteed", "best-effort")

# Two branches that join, with a fill and a copy; captured over two streams. The result depends on the order.
CAPTURED = """
s = setup()
a, b, x = floats(64), floats(64), floats(64, 1.0)
one, two = stream(), stream()
fork, join = c.c_void_p(), c.c_void_p()
check(cu.cuEventCreate(byref(fork), 2)); check(cu.cuEventCreate(byref(join), 2))
n = c.c_uint32(64)
def body():
    check(cu.cuMemsetD32Async(a, 0x40000000, c.c_size_t(64), one))
    launch(s["axpy_us20"], 2, 32, a, x, c.c_float(1), n, stream=one)
    check(cu.cuEventRecord(fork, one)); check(cu.cuStreamWaitEvent(two, fork, 0))
    launch(s["axpy_us20"], 2, 32, b, a, c.c_float(1), n, stream=two)
    launch(s["axpy_us20"], 2, 32, a, x, c.c_float(5), n, stream=one)
    check(cu.cuEventRecord(join, two)); check(cu.cuStreamWaitEvent(one, join, 0))
    launch(s["axpy_us20"], 2, 32, b, a, c.c_float(1), n, stream=one)
    check(cu.cuMemcpyDtoDAsync_v2(a, b, c.c_size_t(256), one))
check(cu.cuCtxSynchronize())
graph = Graph(one, body)
count, edges = c.c_size_t(), c.c_size_t()
check(cu.cuGraphGetNodes(graph.graph, None, byref(count)))
check(cu.cuGraphGetEdges(graph.graph, None, None, byref(edges)))
for turn in range(6):
    graph.launch((one, two)[turn % 2])
check(cu.cuCtxSynchronize())
say(count.value, edges.value, *(sum((c.c_float * 64).from_buffer_copy(read(at, 256))) for at in (a, b)))
sys.stdin.readline()
"""


def test_a_graph_gives_the_same_whole_and_node_by_node(tmp_path: Path) -> None:
    device = Device(tmp_path)
    told, ran = [], []
    with device.page() as page:
        for cls in CLASSES:
            device.forget()
            process = device.start(CAPTURED, cls)
            told.append(line_of(process))
            if cls == "guaranteed":
                assert tenant(page, process).launches == 6  # a graph is one launch
            if cls == "best-effort":
                assert tenant(page, process).pieces >= 6 * 4  # and here each of its kernels
            resume(process)
            ran.append(device.kernels())
    assert told[0] == told[1] == told[2] != ""
    assert told[0].startswith("6 6 ")
    assert ran[0] == ran[1] == ["axpy_us20"] * 24


def test_a_graph_that_is_short_enough_goes_whole(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page(replace(EAGER, bound_ns=10**10, idle_bound_ns=10**10)) as page:
        process = device.start(CAPTURED, "best-effort")
        line_of(process)
        assert tenant(page, process).pieces == 6
        resume(process)


BY_HAND = """
s = setup()
a, x = floats(64), floats(64, 1.0)
on = stream()
graph, exec_ = c.c_void_p(), c.c_void_p()
check(cu.cuGraphCreate(byref(graph), 0))
class KernelNode(c.Structure):
    _fields_ = [("f", c.c_void_p), ("grid", c.c_uint * 3), ("block", c.c_uint * 3), ("shared", c.c_uint),
                ("params", c.c_void_p), ("extra", c.c_void_p), ("kern", c.c_void_p), ("ctx", c.c_void_p)]
class MemsetNode(c.Structure):
    _fields_ = [("dst", c.c_uint64), ("pitch", c.c_size_t), ("value", c.c_uint), ("element", c.c_uint),
                ("width", c.c_size_t), ("height", c.c_size_t)]
class HostNode(c.Structure):
    _fields_ = [("f", c.CFUNCTYPE(None, c.c_void_p)), ("data", c.c_void_p)]
def kernel(after, factor):
    arguments = [a, x, c.c_float(factor), c.c_uint32(64)]
    pointers = (c.c_void_p * 4)(*(c.addressof(one) for one in arguments))
    params = KernelNode(s["axpy"].value, (2, 1, 1), (32, 1, 1), 0, c.addressof(pointers), None, None, None)
    node = c.c_void_p()
    given = (c.c_void_p * len(after))(*after)
    check(cu.cuGraphAddKernelNode_v2(byref(node), graph, given, c.c_size_t(len(after)), byref(params)))
    return node
def fill(after, value):
    node, given = c.c_void_p(), (c.c_void_p * len(after))(*after)
    params = MemsetNode(a.value, 0, value, 4, 64, 1)
    check(cu.cuGraphAddMemsetNode(byref(node), graph, given, c.c_size_t(len(after)), byref(params), s.context))
    return node, params
start, params = fill([], 0)
first = kernel([start], 2)
second = kernel([start, first], 3)
if sys.argv[1] == "host":
    called = []
    function = c.CFUNCTYPE(None, c.c_void_p)(lambda _: called.append(1))
    node, host = c.c_void_p(), HostNode(function, None)
    check(cu.cuGraphAddHostNode(byref(node), graph, (c.c_void_p * 1)(second), c.c_size_t(1), byref(host)))
check(cu.cuGraphInstantiateWithFlags(byref(exec_), graph, c.c_uint64(0)))
check(cu.cuCtxSynchronize())
check(cu.cuGraphLaunch(exec_, on))
check(cu.cuStreamSynchronize(on))
first_sum = sum((c.c_float * 64).from_buffer_copy(read(a, 256)))
if sys.argv[1] == "change":
    params.value = 0x40000000
    check(cu.cuGraphExecMemsetNodeSetParams(exec_, start, byref(params), s.context))
if sys.argv[1] == "update":
    other = graph
    check(cu.cuGraphCreate(byref(graph := c.c_void_p()), 0))
    start, _ = fill([], 0)
    kernel([kernel([start], 20)], 30)
    check(cu.cuGraphExecUpdate_v2(exec_, graph, None))
    check(cu.cuGraphDestroy(other))
if sys.argv[1] == "plain":
    check(cu.cuGraphDestroy(graph))  # what was instantiated lives on
check(cu.cuGraphLaunch(exec_, on))
check(cu.cuStreamSynchronize(on))
say(first_sum, sum((c.c_float * 64).from_buffer_copy(read(a, 256))))
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("how", "expected", "pieces"),
    [
        ("plain", "320.0 320.0", 4),  # twice two kernels
        ("host", "320.0 320.0", 2),  # a host function keeps it whole
        ("change", "320.0 448.0", 3),  # whole after a node was changed
        ("update", "320.0 3200.0", 4),
    ],
)
def test_a_graph_made_by_hand(tmp_path: Path, how: str, expected: str, pieces: int) -> None:
    device = Device(tmp_path)
    # One nanosecond: each kernel is longer, and as each has one piece their number tells how the graph went.
    with device.page(replace(EAGER, bound_ns=1, idle_bound_ns=1)) as page:
        for cls in CLASSES:
            process = device.start(BY_HAND, cls, how, ways="whole")
            assert line_of(process) == expected + "\n"
            if cls == "best-effort":
                assert tenant(page, process).pieces == pieces
            resume(process)


def test_a_capture_is_untouched_while_other_threads_launch(tmp_path: Path) -> None:
    """A call that could wait would break a capture in global mode; the fake driver is as strict as the real one."""
    device = Device(tmp_path)
    program = """
s = setup()
a, b, x = floats(64), floats(64), floats(64, 1.0)
on, other = stream(), stream()
n = c.c_uint32(64)
check(cu.cuCtxSynchronize())
stop, going = [], threading.Event()
def work():
    check(cu.cuCtxSetCurrent(s.context))
    count = 0
    while not stop or count < 30:
        launch(s["axpy"], 2, 32, b, x, c.c_float(1), n, stream=other)
        count += 1
        if count % 10 == 0:  # or what it has submitted would grow faster than the device is
            check(cu.cuStreamSynchronize(other))
        if count == 10:
            going.set()
    check(cu.cuStreamSynchronize(other))
    b_sum = sum((c.c_float * 64).from_buffer_copy(read(b, 256)))
    say(b_sum == 64 * count)
def body():
    for _ in range(3):
        launch(s["axpy"], 2, 32, a, x, c.c_float(1), n, stream=on)
thread = threading.Thread(target=work)
thread.start()
going.wait()
try:
    for _ in range(20):
        graph = Graph(on, body)
        count = c.c_size_t()
        check(cu.cuGraphGetNodes(graph.graph, None, byref(count)))
        assert count.value == 3, count.value
        graph.launch(on)
finally:
    stop.append(1)
    thread.join()
check(cu.cuCtxSynchronize())
say(sum((c.c_float * 64).from_buffer_copy(read(a, 256))))
"""
    with device.page():
        for cls in CLASSES:
            assert device.run(program, cls) == f"True\n{64 * 60.0}\n"
