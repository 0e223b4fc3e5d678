"""The simulator of a device: its physics by hand, that it repeats itself, and the order of the systems."""

from __future__ import annotations

import statistics

import pytest
from device.simulate import SERVICES, SYSTEMS, TRAININGS, System, compare, simulate
from device.simulate.device import Loop, Piece, Shared, TimeSliced
from device.simulate.workloads import US, DeviceSpec, SimulatedKernel

from shoal.core import Invalid
from shoal.device import native
from shoal.device.policy import Rules

pytestmark = pytest.mark.skipif(not native.capability().available, reason=native.capability().detail)

SPEC = DeviceSpec(start_ns=0, interference=0.5)
LONG = SimulatedKernel(0, blocks=40, block_ns=100 * US, wave=4)
SHORT = SimulatedKernel(1, blocks=2, block_ns=10 * US, wave=4)


class Ends:
    def __init__(self) -> None:
        self.at: list[tuple[int, int, int]] = []

    def piece(self, loop: Loop, owner: int, kernel: SimulatedKernel, **more: bool) -> Piece:
        return Piece(owner, kernel, kernel.blocks, lambda one, ran: self.at.append((one.owner, ran, loop.now)), **more)


def test_processes_take_turns_by_time_slices() -> None:
    loop, ends = Loop(), Ends()
    device = TimeSliced(loop, DeviceSpec(start_ns=0, timeslice_ns=2_500_000))
    for owner in (0, 0, 0, 1):
        device.put(ends.piece(loop, owner, LONG))
    loop.run(10**9)
    # A slice of 2.5 ms, 60 us to preempt, the other's millisecond, 15 us to change back, the rest.
    assert ends.at == [(0, 40, 1_000_000), (0, 40, 2_000_000), (1, 40, 3_560_000), (0, 40, 4_075_000)]


def test_a_ticket_kernel_stops_after_the_wave_that_runs() -> None:
    loop, ends = Loop(), Ends()
    device = TimeSliced(loop, SPEC)
    device.put(ends.piece(loop, 1, LONG, ticket=True))
    device.put(ends.piece(loop, 1, LONG))
    loop.run(250 * US)
    device.stop(1)
    loop.run(10**9)
    assert ends.at == [(1, 12, 300 * US), (1, 40, 1_300 * US)]


@pytest.mark.parametrize(("priority", "ended"), [(False, 1_010 * US), (True, 110 * US)])
def test_blocks_that_run_are_not_preempted(priority: bool, ended: int) -> None:
    loop, ends = Loop(), Ends()
    device = Shared(loop, SPEC, priority=priority)
    device.put(ends.piece(loop, 1, LONG))
    loop.run(50 * US)
    device.put(ends.piece(loop, 0, SHORT))
    loop.run(10**9)
    ((_, _, at),) = [one for one in ends.at if one[0] == 0]
    assert at == ended


def test_blocks_beside_those_of_another_process_take_longer() -> None:
    loop, ends = Loop(), Ends()
    device = Shared(loop, SPEC, priority=False)
    device.put(ends.piece(loop, 0, SHORT))
    device.put(ends.piece(loop, 1, SHORT))
    loop.run(10**9)
    assert ends.at == [(0, 2, 10 * US), (1, 2, 15 * US)]


def test_the_same_arguments_give_the_same_outcome() -> None:
    first = simulate("gate+slice", "bert", "gpt2-large-train", requests=20, seed=3)
    assert first == simulate("gate+slice", "bert", "gpt2-large-train", requests=20, seed=3)
    assert first != simulate("gate+slice", "bert", "gpt2-large-train", requests=20, seed=4)


def test_what_does_not_exist_is_refused() -> None:
    for arguments, words in (
        (("magic", "bert", "bert-train"), "no system 'magic'"),
        (("gate", "berta", "bert-train"), "no service 'berta'"),
        (("gate", "bert", "bert"), "no training 'bert'"),
    ):
        with pytest.raises(Invalid, match=words):
            simulate(*arguments)
    with pytest.raises(Invalid, match="does not settle"):
        simulate("gate", "bert", "bert-train", load=1.0)
    with pytest.raises(Invalid, match="no requests"):
        simulate("gate", "bert", "bert-train", requests=0)


@pytest.fixture(scope="module")
def found() -> dict[System, list[float]]:
    """Overhead of the service time and throughput, by system, on pairs and a seed on which nothing was tuned."""
    outcomes = list(compare([("resnet50", "pointnet-train"), ("bert", "bert-train")], seed=11, requests=80))
    return {
        system: [
            statistics.fmean(getattr(one, name) for one in outcomes if one.system is system)
            for name in ("p99_service_overhead", "throughput", "p99_overhead")
        ]
        for system in SYSTEMS
    }


@pytest.mark.slow
def test_systems_come_in_the_order_of_the_paper(found: dict[System, list[float]]) -> None:
    overhead = {system: values[0] for system, values in found.items()}
    assert overhead[System.ALONE] == 0
    assert overhead[System.GATE_SLICE] < overhead[System.GATE] < overhead[System.TGS] < overhead[System.MPS]
    assert overhead[System.GATE] < overhead[System.TIME_SLICING]


@pytest.mark.slow
def test_slices_keep_the_service_and_most_of_the_throughput(found: dict[System, list[float]]) -> None:
    assert found[System.GATE_SLICE][2] < 0.08
    assert found[System.GATE_SLICE][1] > 0.8 * found[System.GATE][1]
    assert found[System.GATE][1] > 0.4


def test_the_bound_is_a_trade_of_latency_for_throughput() -> None:
    tight, wide = (
        simulate("gate+slice", "bert", "pegasus-x-train", requests=60, seed=5, rules=Rules(bound_ns=bound * US))
        for bound in (40, 400)
    )
    assert tight.p99_service_ms < wide.p99_service_ms
    assert tight.pieces > 2 * wide.pieces


def test_workloads_are_drawn_by_seed() -> None:
    for model in (*SERVICES.values(), *TRAININGS.values()):
        kernels = model.draw(1)
        assert kernels == model.draw(1) != model.draw(2)
        assert len(kernels) == model.kernels
        assert all(one.blocks >= 1 and one.alone_ns <= 1.5 * model.longest_us * US + 45 * US for one in kernels)
