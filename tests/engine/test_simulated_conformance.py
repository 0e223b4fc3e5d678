"""The simulated engine passes the suite that every engine passes, in virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core import Device, Node
from shoal.engine import Gang, GangStatus, RankSpec
from shoal.engine.simulated import POOL, Line, Script, SimulatedCluster, SimulatedEngine, VirtualClock
from tests.engine.conformance import (
    Behaviour,
    Cooperate,
    EngineConformance,
    EngineKit,
    Fail,
    IgnoreTerm,
    Missing,
    Print,
    RunForever,
    Succeed,
)


def script_of(behaviour: Behaviour) -> Script:
    match behaviour:
        case Succeed(after_s):
            return Script(run_s=after_s)
        case Fail(code, after_s):
            return Script(run_s=after_s, code=code)
        case RunForever():
            return Script(run_s=math.inf)
        case IgnoreTerm():
            return Script(run_s=math.inf, term_s=None)
        case Cooperate(code):
            return Script(run_s=math.inf, checkpoint_s=0.1, checkpoint_code=code, term_s=None)
        case Print(lines, after_s):
            return Script(run_s=after_s, lines=tuple(Line(0, line) for line in lines))
        case Missing():
            return Script(launch_error="no such file: missing")


class SimulatedKit(EngineKit):
    ahead: float | None = None

    def __init__(self) -> None:
        devices = tuple(Device(f"gpu{index}", "a100", index) for index in range(4))
        nodes = [Node(f"node{number}", devices, 8000, 1 << 34) for number in range(2)]
        self.scripts: dict[str, Script] = {}
        self.cluster = SimulatedCluster(
            nodes, clock=VirtualClock(), behaviour=lambda gang: self.scripts[gang.name], ahead=self.ahead
        )
        self.engine = SimulatedEngine(self.cluster)

    def gang(
        self,
        name: str,
        behaviour: Behaviour,
        *,
        ranks: int = 1,
        by_rank: Mapping[int, Behaviour] | None = None,
        grace_s: float = 10.0,
    ) -> Gang:
        own = {rank: script_of(other) for rank, other in (by_rank or {}).items()}
        everyone = script_of(behaviour)
        error = everyone.launch_error or next((s.launch_error for s in own.values() if s.launch_error), None)
        self.scripts[name] = Script(
            run_s=everyone.run_s,
            code=everyone.code,
            launch_s=1.0,
            launch_error=error,
            checkpoint_s=everyone.checkpoint_s,
            checkpoint_code=everyone.checkpoint_code,
            term_s=everyone.term_s,
            lines=everyone.lines,
            by_rank=own,
        )
        specs = tuple(RankSpec(rank, f"node{rank % 2}") for rank in range(ranks))
        return Gang(name, ("train",), specs, Path("/nowhere"), grace_s=grace_s)

    async def in_effect(self, name: str) -> None:
        pass

    async def settle(self, name: str) -> GangStatus:
        async with asyncio.timeout(86400):
            async for status in self.engine.changes():
                if status.name == name and status.ended:
                    return status
        raise AssertionError(f"{name} never ended")

    async def lose_device(self) -> None:
        self.cluster.lose_device("node1", "gpu3")

    async def restore_devices(self) -> None:
        self.cluster.restore_node("node1")

    async def restart(self, down_s: float = 0.0) -> None:
        await self.engine.close()
        await asyncio.sleep(down_s)
        self.engine = SimulatedEngine(self.cluster)
        await self.engine.open()


@pytest.mark.virtual_time
class TestSimulated(EngineConformance):
    @pytest.fixture
    async def kit(self) -> AsyncIterator[SimulatedKit]:
        kit = SimulatedKit()
        await kit.engine.open()
        yield kit
        await kit.engine.close()


class DelegatedKit(SimulatedKit):
    """The same machines behind a scheduler of the cluster's own."""

    ahead = 0.25

    def gang(
        self,
        name: str,
        behaviour: Behaviour,
        *,
        ranks: int = 1,
        by_rank: Mapping[int, Behaviour] | None = None,
        grace_s: float = 10.0,
    ) -> Gang:
        placed = super().gang(name, behaviour, ranks=ranks, by_rank=by_rank, grace_s=grace_s)
        return replace(placed, ranks=tuple(RankSpec(rank, POOL) for rank in range(ranks)))


@pytest.mark.virtual_time
class TestDelegated(EngineConformance):
    @pytest.fixture
    async def kit(self) -> AsyncIterator[DelegatedKit]:
        kit = DelegatedKit()
        await kit.engine.open()
        yield kit
        await kit.engine.close()
