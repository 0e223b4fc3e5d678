"""Guaranteed processes go first: what the device ran, in order, for processes of their own. Counts, no times."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

from tests.device.cuda.kit import EAGER, Device, finish, line_of, needs_fake, resume, tenant
from tests.device.kit import until

pytestmark = needs_fake

# Keeps the device busy for as long as the test wants: a kernel that waits for a word of the host's memory.
HOLDS = """
s = setup()
flag = memory(4)
write(flag, bytes(4))
on = stream()
launch(s["wait"], 1, 1, flag, stream=on)
say("holds")
sys.stdin.readline()
c.c_uint32.from_address(flag.value).value = 1
check(cu.cuStreamSynchronize(on))
"""

TRAINS = """
s = setup()
out = memory(8 * 64)
write(out, bytes(8 * 64))
say("ready")
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    launch(s[sys.argv[2]], (8, 8), 32, out)
    say("launched")
check(cu.cuCtxSynchronize())
say(sorted(set(words(out, 64)))[::63])
sys.stdin.readline()
"""

# A request: the first kernel waits until all are submitted.
SERVES = """
s = setup()
on = stream()
flag = memory(4)
say("ready")
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    c.c_uint32.from_address(flag.value).value = 0
    launch(s["wait"], 1, 1, flag, stream=on)
    for _ in range(5):
        launch(s["nothing_us50"], 2, 1, stream=on)
    c.c_uint32.from_address(flag.value).value = 1
    check(cu.cuStreamSynchronize(on))
    time.sleep(float(sys.argv[2]))
"""


def go(process: object) -> None:
    process.stdin.write("\n")  # type: ignore[attr-defined]
    process.stdin.flush()  # type: ignore[attr-defined]


def test_best_effort_work_waits_while_a_guaranteed_kernel_runs_and_goes_when_it_has_ended(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page() as page:
        train = device.start(TRAINS, "best-effort", "3", "blocks", ways="slice")
        assert line_of(train) == "ready\n"
        serve = device.start(HOLDS, "guaranteed")
        assert line_of(serve) == "holds\n"
        until(lambda: tenant(page, serve).pending == 1, "the kernel is on the device")
        go(train)
        until(lambda: tenant(page, train).waiting, "best-effort work waits")
        assert tenant(page, train).pieces == 0
        resume(serve)
        assert [line_of(train) for _ in range(3)] == ["launched\n"] * 3
        assert line_of(train) == "[192000000003, 192000021024]\n"
        resume(train)
    names = device.kernels()
    assert names[0] == "wait"
    assert set(names[1:]) == {"blocks"}
    assert device.log()[1][1] == "blocks__shoal_slice"  # a kernel that nobody knows is taken for a long one


def test_a_guaranteed_process_that_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page() as page:
        serve = device.start(HOLDS, "guaranteed")
        assert line_of(serve) == "holds\n"
        train = device.start(TRAINS, "best-effort", "2", "blocks")
        assert line_of(train) == "ready\n"
        go(train)
        until(lambda: tenant(page, train).waiting, "best-effort work waits")
        os.kill(serve.pid, signal.SIGKILL)
        serve.communicate()
        assert [line_of(train) for _ in range(3)][-1] == "[128000000002, 128000014016]\n"
        resume(train)


def test_at_most_what_was_on_the_device_comes_between_the_kernels_of_a_guaranteed_process(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page(replace(EAGER, bound_ns=500_000)) as page:
        train = device.start(TRAINS, "best-effort", "12", "blocks_us100", ways="slice")
        serve = device.start(SERVES, "guaranteed", "40", "0")
        assert line_of(train) == line_of(serve) == "ready\n"
        go(train)
        until(lambda: tenant(page, train).pieces > 2, "best-effort work runs")
        go(serve)
        finish(serve)
        while (line := line_of(train)) == "launched\n":
            pass
        assert line == "[768000000012, 768000084096]\n"  # each block ran once for each launch
        pieces = tenant(page, train).pieces
        resume(train)
    order = device.kernels()
    assert len(order) == 40 * 6 + pieces
    requests = "".join({"wait": "<", "nothing_us50": "g"}.get(name, "b") for name in order)
    # A piece takes 100 us or more, and 500 us may be outstanding.
    for request in requests.split("<")[1:]:
        last = [index for index, kind in enumerate(request) if kind == "g"][4]
        assert request[:last].count("b") <= 5


def test_a_best_effort_process_that_waits_for_itself_is_let_go(tmp_path: Path) -> None:
    """The host sets the flag only after a second launch, which the gate would hold until the first has ended."""
    device = Device(tmp_path)
    program = """
s = setup()
flag, out = memory(4), memory(8 * 64)
write(flag, bytes(4))
launch(s["wait"], 1, 1, flag, stream=stream())
launch(s["nothing"], 1, 1, stream=stream())
c.c_uint32.from_address(flag.value).value = 1
check(cu.cuCtxSynchronize())
say("done")
"""
    with device.page(replace(EAGER, stuck_ns=1 << 60)):
        assert device.run(program, "best-effort", ways="slice") == "done\n"


def test_large_copies_and_fills_on_the_device_wait_and_those_from_and_to_the_host_do_not(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = """
s = setup()
small, large = 1 << 16, 1 << 21
a, b = memory(large), memory(large)
on = stream()
host = c.create_string_buffer(large)
say("ready")
sys.stdin.readline()
check(cu.cuMemcpyHtoDAsync_v2(a, host, c.c_size_t(large), on))
check(cu.cuMemcpyAsync(b, c.c_uint64(c.addressof(host)), c.c_size_t(large), on))
check(cu.cuMemcpyDtoDAsync_v2(a, b, c.c_size_t(small), on))
check(cu.cuMemsetD8Async(a, 1, c.c_size_t(small), on))
say("passed")
calls = {
    "memset": lambda: cu.cuMemsetD32Async(a, 1, c.c_size_t(large // 4), on),
    "copy": lambda: cu.cuMemcpyDtoDAsync_v2(a, b, c.c_size_t(large), on),
    "any": lambda: cu.cuMemcpy(a, b, c.c_size_t(large)),
    "ptsz": lambda: cu.cuMemsetD8Async_ptsz(a, 1, c.c_size_t(large), None),
}
check(calls[sys.argv[1]]())
say("went")
check(cu.cuCtxSynchronize())
"""
    with device.page() as page:
        for call in ("memset", "copy", "any", "ptsz"):
            train = device.start(program, "best-effort", call)
            assert line_of(train) == "ready\n"
            serve = device.start(HOLDS, "guaranteed")
            assert line_of(serve) == "holds\n"
            go(train)
            assert line_of(train) == "passed\n"
            until(lambda one=train: tenant(page, one).waiting, "the large one waits")
            resume(serve)
            assert line_of(train) == "went\n"
            assert finish(train) == ""


def test_ways_can_be_limited_to_whole_kernels(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page() as page:
        train = device.start(TRAINS, "best-effort", "4", "blocks_us100", ways="whole")
        line_of(train)
        go(train)
        while line_of(train) == "launched\n":
            pass
        assert tenant(page, train).pieces == 4
        assert tenant(page, train).violations == 4
        resume(train)
    assert [(name, count) for _, name, count, _ in device.log()] == [("blocks_us100", 64)] * 4


def test_a_kernel_by_ticket_stops_for_guaranteed_work_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    device = Device(tmp_path)
    tickets = "import re\nPTX = re.sub(r'[^\\n]*__shoal_slice.*\\n.*\\n', '', PTX)\n" + TRAINS.replace(
        'say("launched")', 'check(cu.cuCtxSynchronize()); say("launched")'
    ).replace("setup()", "setup(PTX)")
    # 64 blocks of 1 ms are over the bound, and after the first launch the profile knows.
    with device.page(replace(EAGER, bound_ns=10_000_000, idle_bound_ns=10_000_000)):
        serve = device.start(SERVES, "guaranteed", "10", "0.02")
        train = device.start(tickets, "best-effort", "25", "blocks_us1000")
        assert line_of(train) == line_of(serve) == "ready\n"
        go(train)
        until(lambda: any(name.endswith("__shoal_ticket") for _, name, *_ in device.log()), "a kernel runs by ticket")
        go(serve)
        finish(serve)
        while (line := line_of(train)) == "launched\n":
            pass
        assert line == "[1600000000025, 1600000175200]\n"  # each block ran once for each launch
        resume(train)
    counts = [count for _, name, count, _ in device.log() if name == "blocks_us1000__shoal_ticket"]
    assert any(count < 64 for count in counts)  # launched again with what was left
    assert counts.count(64) + [name for _, name, *_ in device.log()].count("blocks_us1000") == 25


def test_a_kernel_by_ticket_is_charged_for_all_that_it_ran(tmp_path: Path) -> None:
    """At the gate it costs what it takes to stop it, at most the bound."""
    device = Device(tmp_path)
    tickets = "import re\nPTX = re.sub(r'[^\\n]*__shoal_slice.*\\n.*\\n', '', PTX)\n" + TRAINS.replace(
        "setup()", "setup(PTX)"
    )
    with device.page() as page:
        trains = device.start(tickets, "best-effort", "1", "blocks_us1000")
        assert line_of(trains) == "ready\n"
        go(trains)
        assert line_of(trains) == "launched\n"
        assert [name for _, name, *_ in device.log()] == ["blocks_us1000__shoal_ticket"]
        (slot,) = [slot for slot in page.struct.slot if slot.owner & 0xFFFFFFFF == trains.pid]
        assert min(slot.ran_ns, slot.used_ns) > 60_000_000, "64 blocks of a millisecond"
        resume(trains)


IDLES = """
s = setup()
out = memory(8 * 64)
write(out, bytes(8 * 64))
for _ in range(int(sys.argv[1])):
    launch(s[sys.argv[2]], (8, 8), 32, out)
check(cu.cuCtxSynchronize())
say("idles")
sys.stdin.readline()
"""


def test_a_program_that_idles_after_its_last_kernel_holds_no_other_up(tmp_path: Path) -> None:
    """Its kernels ended on the device, and it never comes back to the gate."""
    device = Device(tmp_path)
    never = 1 << 60
    for rules in (replace(EAGER, stuck_ns=never), replace(EAGER, stuck_ns=never, idle_ns=0, idle_bound_ns=2_000_000)):
        with device.page(rules) as page:
            for kernel in ("blocks_us100", "blocks_us1000"):
                idle = device.start(IDLES, "best-effort", "3", "blocks_us100", ways="whole")
                assert line_of(idle) == "idles\n"
                slot = page.struct.slot[tenant(page, idle).slot]
                assert slot.outstanding_ns > 0, "it shows what it has not collected yet"
                assert finish(device.start(IDLES, "best-effort", "2", kernel, ways="whole")) == "idles\n"
                resume(idle)
