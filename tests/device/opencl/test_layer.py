"""Programs get the results they would get alone, whole and in slices; what cannot be sliced goes whole and says why."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.device import opencl
from shoal.device.policy import Way
from tests.device.launching import Kernel, Profiles, hash_of
from tests.device.opencl.kit import ONE_AT_A_TIME, PROGRAMS, Line, Shared, hear, say, until


def results(path: Path) -> dict[str, bytes]:
    with np.load(path) as found:
        return {name: found[name].tobytes() for name in found}


def launches(trace: list[Line]) -> list[list[Line]]:
    """The pieces of each kernel that was launched, in order, of one process."""
    found: list[list[Line]] = []
    for line in trace:
        if line.what == "begins" and not line.kernel.startswith("clEnqueue"):
            if line.first == 0:
                found.append([])
            found[-1].append(line)
    return found


@pytest.mark.few
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_results_are_the_same_bit_for_bit(shared: Shared, size: int, tmp_path: Path) -> None:
    shared.run("corpus.py", str(tmp_path / "plain.npz"), cls=None)
    shared.run("corpus.py", str(tmp_path / "sliced.npz"), slice_blocks=str(size))
    assert results(tmp_path / "sliced.npz") == results(tmp_path / "plain.npz")
    kernels = launches(shared.trace())
    assert len(kernels) == 11
    for pieces in kernels:
        # Every group once, in order, in slices as long as asked for but the last.
        all_blocks = pieces[0].of
        assert [piece.first for piece in pieces] == list(range(0, all_blocks, size))
        assert [piece.blocks for piece in pieces] == [min(size, all_blocks - piece.first) for piece in pieces]
    ended = Counter((line.kernel, line.first) for line in shared.trace() if line.what == "ended")
    begun = Counter((line.kernel, line.first) for line in shared.trace() if line.what == "begins")
    assert ended == begun


@pytest.mark.parametrize(("cls", "ways"), [("guaranteed", "slice"), ("best-effort", "whole")])
def test_kernels_go_whole_where_they_are_to(shared: Shared, cls: str, ways: str, tmp_path: Path) -> None:
    shared.run("corpus.py", str(tmp_path / "plain.npz"), cls=None)
    shared.run("corpus.py", str(tmp_path / "whole.npz"), cls=cls, ways=ways, slice_blocks="7")
    assert results(tmp_path / "whole.npz") == results(tmp_path / "plain.npz")
    assert all(len(pieces) == 1 and pieces[0].blocks == pieces[0].of for pieces in launches(shared.trace()))


def test_the_page_counts_every_piece(shared: Shared) -> None:
    program = shared.start("long.py", "3", "20", slice_blocks="8")
    assert hear(program) == "ready"
    slot = shared.slot(program)
    assert (slot.launches, slot.pieces) == (0, 0)
    say(program)
    assert hear(program) == "ran 3 3"
    assert (slot.launches, slot.pieces) == (9, 9)  # three slices a kernel, of 8, 8 and 4 groups
    until(lambda: (slot.lane[0].submitted, slot.lane[0].done) == (9, 9))
    assert slot.outstanding_ns == 0


@pytest.mark.slow
def test_slices_that_once_took_long_are_tried_anew(shared: Shared) -> None:
    source = (PROGRAMS / "long.py").read_text().split('"""')[3]
    kernel = Kernel(hash_of(b"burn", hash_of(source.encode(), 1)), (300, 1, 1), (64, 1, 1))
    # Far apart on any machine: a group takes less than the bound, the kernel as it is known more.
    shared.page.set_rules(replace(ONE_AT_A_TIME, bound_ns=40_000_000, idle_bound_ns=40_000_000))
    profiles = Profiles(shared.folder / "profiles")
    for _ in range(20):
        profiles.note(kernel, Way.WHOLE, blocks=300, took_ns=150_000_000)
    # As if slices of two groups took a second each: longer than the whole.
    profiles.note(kernel, Way.SLICE, blocks=2, took_ns=1_000_000_000)
    assert profiles.look(kernel).slice_blocks == 2
    program = shared.start("long.py", "16", "300", profile=str(shared.folder / "profiles"))
    assert hear(program) == "ready"
    say(program)
    assert hear(program) == "ran 16 16"
    kernels = [len(pieces) for pieces in launches(shared.trace()) if pieces[0].kernel == "burn"]
    assert kernels[0] == 1
    assert max(kernels) > 1
    assert profiles.look(kernel).slice_ns < 1_000_000_000


def test_what_programs_see_of_events_is_as_without_the_layer(shared: Shared) -> None:
    plain = json.loads(shared.run("events.py", cls=None))
    assert plain["result"] == [1]
    assert json.loads(shared.run("events.py", slice_blocks="7")) == plain
    assert json.loads(shared.run("events.py", cls="guaranteed")) == plain
    assert json.loads(shared.run("events.py", ways="whole")) == plain


def test_commands_behind_a_user_event_are_counted_when_it_is_set(shared: Shared) -> None:
    program = shared.start("events.py", cls="guaranteed")
    assert json.loads(hear(program))["after user events"] == [11]
    slot = shared.slot(program)
    until(lambda: all(lane.submitted == lane.done for lane in slot.lane))  # the driver tells of ends in its own thread
    held = [line.kernel for line in shared.trace() if line.what == "held"]
    assert held == ["add", "twice", "add", "add", "add", "twice"]


@pytest.mark.slow
def test_what_cannot_be_sliced_goes_whole_and_says_why_once(shared: Shared) -> None:
    assert shared.run("refused.py", slice_blocks="7").strip() == "wrong: []"
    pieces = Counter(line.kernel for line in shared.trace() if line.what == "begins")
    assert pieces == {"offset": 1, "prime": 1, "macro": 1, "spin": 1, "binary": 1, "plain": 5}
    log = (shared.folder / "log").read_text()
    for kernel, reason in {
        "offset": "it has a global offset of its own",
        "prime": "it has no local size, and none suits the global size",
        "macro": "it defines get_global_id itself",
        "spin": "a loop seems to wait for other work-groups",
        "binary": "it is a binary",
    }.items():
        assert log.count(f"{kernel} is not sliced: {reason}\n") == 1
        assert f"1 times: is not sliced: {reason}\n" in log
    assert "plain" not in log


def test_memory_is_limited_and_told(shared: Shared) -> None:
    quota = 64 << 20
    program = shared.start("memory.py", memory=str(quota))
    facts = json.loads(hear(program))
    refused = "-4"
    assert facts == {
        "memory": 64,
        "largest": 64,
        "first": "made",  # 40 MiB
        "second": refused,  # 30 more
        "small": "made",  # 20
        "again": refused,  # 5: 60 of 64 are taken; the part of a buffer counts nothing
        "after release": "made",  # 60
        "image 2048": refused,  # 16 + 64
        "images": 1,
    }
    slot = shared.slot(program)
    assert (slot.memory_quota, slot.memory_used) == (quota, 0)


@pytest.fixture(scope="session")
def plain(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program, linked with the system's loader."""
    made = tmp_path_factory.mktemp("plain") / "plain"
    command = ["cc", "-std=c11", "-Wall", "-O1", "-o", str(made), str(PROGRAMS / "plain.c"), "-lOpenCL"]
    try:
        built = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    assert built.returncode == 0, built.stderr
    return made


def test_a_c_program_on_the_loader_of_the_system(shared: Shared, plain: Path) -> None:
    facts = ["properties 3 2", "spans 1", "still spans 1", "ran 105 104 104", "filled 7 3 3", "recorded 9 5"]
    assert shared.run(plain, cls=None).splitlines()[:-1] == [*facts, "shared 1 1"]
    shared.page.set_rules(ONE_AT_A_TIME)
    sliced = shared.run(plain, slice_blocks="8", memory=str(64 << 20))
    *told, last = sliced.splitlines()
    assert told == [*facts, "shared 1 0"]
    again = int(last.removeprefix("again "))
    begun = Counter(line.kernel for line in shared.trace() if line.what == "begins")
    assert begun == {"burn": (4 + 2 * again) * 5, "once": 1, "clEnqueueFillBuffer": 1, "clEnqueueCommandBufferKHR": 2}
    assert "late is not gated: a callback launches it\n" in (shared.folder / "log").read_text()


def test_only_the_device_of_the_page_is_gated(shared: Shared) -> None:
    name = opencl.devices()[0].name
    gated = shared.start("long.py", "1", "4", opencl=name)
    other = shared.start("long.py", "1", "4", opencl="another")
    for program in (gated, other):
        assert hear(program) == "ready"
        say(program)
        assert hear(program) == "ran 1 1"
    assert shared.slot(gated).launches == 1
    assert shared.slot(other).launches == 0


@pytest.mark.slow
@given(data=st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_ids_in_slices_are_those_of_the_whole_range(teller: Teller, data: st.DataObject) -> None:
    # PoCL compiles a kernel for each local size: a few do.
    local = data.draw(st.sampled_from([[8], [3], [4, 2], [1, 5], [2, 2, 2], [4, 1, 3]]))
    groups = [data.draw(st.integers(1, 9)) for _ in local]
    blocks = int(np.prod(groups))
    slice_blocks = data.draw(st.integers(1, blocks))
    size = [a * b for a, b in zip(groups, local, strict=True)]
    assert teller.digest(size, local, slice_blocks) == teller.digest(size, local, 0)


class Teller:
    """A program that answers launch by launch."""

    def __init__(self, shared: Shared) -> None:
        self._program = shared.start("ids.py")

    def digest(self, size: list[int], local: list[int], slice_blocks: int) -> str:
        say(self._program, json.dumps({"size": size, "local": local, "slice": slice_blocks}))
        return hear(self._program)


@pytest.fixture
def teller(shared: Shared) -> Teller:
    return Teller(shared)
