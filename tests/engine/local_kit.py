"""Driving the local engine for real: a small command that behaves as its environment says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shoal.base import trees
from shoal.core import Device
from shoal.engine import Gang, GangStatus, RankSpec
from shoal.engine.local import LocalEngine
from shoal.engine.local.inventory import Accelerators
from shoal.engine.local.processes import marked
from shoal.engine.local.sightings import MISSES
from tests.engine.conformance import Behaviour, Cooperate, EngineKit, Missing, RunForever

_BEHAVE = f"""#!{os.path.realpath(sys.executable)} -IS
import os, signal, sys, time
kind, code, after_s = os.environ["KIND"], int(os.environ["CODE"]), float(os.environ["AFTER_S"])
run = os.environ["SHOAL_RUN"]
if kind in ("IgnoreTerm", "Cooperate"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if kind == "Cooperate":
    open(run + "/cooperative", "w").close()
for line in os.environ["LINES"].splitlines():
    print(line, flush=True)
open(run + "/in-effect", "w").close()
while kind == "Cooperate" and not os.path.exists(run + "/notice"):
    time.sleep(0.01)
while kind in ("RunForever", "IgnoreTerm"):
    signal.pause()
time.sleep(after_s)
sys.exit(code)
"""

ENDS_WITHIN_S = 30.0
"""Only to fail instead of hanging."""


def no_accelerators() -> Accelerators:
    return Accelerators((), "none in tests")


def two_accelerators() -> Accelerators:
    return Accelerators((Device("GPU-a", "h200", 0), Device("GPU-b", "h200", 1)), "two in name only")


@dataclass
class CardBus:
    """Eight accelerators in name only, some of which fell off their bus."""

    gone: set[str] = field(default_factory=set)
    answers: bool = True

    def probe(self) -> Accelerators:
        if not self.answers:
            return Accelerators((), "the driver says nothing", answered=False)
        cards = tuple(Device(f"cpu{index}", "h200", index) for index in range(8))
        return Accelerators(tuple(card for card in cards if card.id not in self.gone), "in name only")


class LocalKit(EngineKit):
    """`home` is the engine's; run directories and the command lie beside it."""

    engine: LocalEngine

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.home = root / "home"
        self.cards = CardBus()
        if options.get("accelerators") is CardBus.probe:
            options["accelerators"] = self.cards.probe
        self.options = {"slots": 8, "accelerators": no_accelerators, **options}
        self.bin = root / "bin"
        self.bin.mkdir()
        (self.bin / "behave").write_text(_BEHAVE)
        (self.bin / "behave").chmod(0o755)
        self.new_engine()

    def new_engine(self) -> None:
        self.engine = LocalEngine(self.home, **self.options)

    @property
    def node(self) -> str:
        return os.uname().nodename

    @property
    def device(self) -> str:
        """What devices' ids begin with."""
        return "cpu"

    def gang(
        self,
        name: str,
        behaviour: Behaviour,
        *,
        ranks: int = 1,
        by_rank: Mapping[int, Behaviour] | None = None,
        grace_s: float = 10.0,
        **more: Any,
    ) -> Gang:
        each = {rank: (by_rank or {}).get(rank, behaviour) for rank in range(ranks)}
        specs = tuple(RankSpec(rank, self.node, (f"{self.device}{rank}",), self._env(each[rank])) for rank in each)
        return Gang(name, ("behave",), specs, self.root / "run" / name, grace_s=grace_s, **more)

    def script(self, name: str, *argv: str, ranks: int = 1, **more: Any) -> Gang:
        """A gang that runs a command of the test's own."""
        specs = tuple(RankSpec(rank, self.node) for rank in range(ranks))
        return Gang(name, argv, specs, self.root / "run" / name, **more)

    def python(self, name: str, source: str, **more: Any) -> Gang:
        return self.script(name, os.path.realpath(sys.executable), "-IS", "-c", source, **more)

    def _env(self, behaviour: Behaviour) -> dict[str, str]:
        fields: dict[str, Any] = {"code": 0, "after_s": 0.0, "lines": (), **asdict(behaviour)}
        path = "/nonexistent" if isinstance(behaviour, Missing) else str(self.bin)
        return {
            "PATH": path,
            "KIND": type(behaviour).__name__,
            "CODE": str(fields["code"]),
            "AFTER_S": str(fields["after_s"]),
            "LINES": "\n".join(fields["lines"]),
        }

    def rank_dir(self, name: str, rank: int = 0) -> Path:
        return self.home / "gangs" / name / f"rank-{rank}"

    async def in_effect(self, name: str) -> None:
        status = await self.engine.status(name)
        assert status is not None
        for rank in status.ranks:
            await until_exists(self.rank_dir(name, rank.rank) / "in-effect")

    async def settle(self, name: str, *, within_s: float = ENDS_WITHIN_S) -> GangStatus:
        async with asyncio.timeout(within_s):
            async for status in self.engine.changes():
                if status.name == name and status.ended:
                    return status
        raise AssertionError(f"{name} never ended")

    async def lose_device(self) -> None:
        """Rank 0's, of a kit with `CardBus.probe`."""
        self.cards.gone.add("cpu0")
        for _ in range(MISSES):
            await self.engine.inventory()

    async def restore_devices(self) -> None:
        self.cards.gone.clear()
        await self.engine.inventory()

    async def restart(self, down_s: float = 0.0) -> None:
        await self.engine.close()
        await asyncio.sleep(down_s)
        self.new_engine()
        await self.engine.open()

    def processes(self, *names: str) -> list[int]:
        """Pids that carry the home's marks: of the named gangs, or of any."""
        return [each.process.pid for each in marked(self.home) if not names or each.gang in names]

    def record(self, name: str) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads((self.home / "gangs" / name / "gang.json").read_bytes())
        return fields


async def until_exists(path: Path) -> str:
    """The file's text once it is there (what the test's processes write is the only event they can give)."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while not path.exists():
            await asyncio.sleep(0.01)
    return path.read_text()


@contextlib.asynccontextmanager
async def local_kit(root: Path, **options: Any) -> AsyncIterator[LocalKit]:
    """An open kit that, however the test ends, leaves no process behind, and fails the test that did."""
    kit = LocalKit(root, **options)
    await kit.engine.open()
    try:
        yield kit
    finally:
        for name in await kit.engine.gangs():
            await kit.engine.forget(name)
        left = await kit.engine.sweep(frozenset())
        await kit.engine.close()
        trees.remove(str(root))  # one deeper than Python's recursion would end pytest's own removal
    assert left == ()
    assert kit.processes() == []


__all__ = ["Cooperate", "LocalKit", "RunForever", "local_kit", "no_accelerators", "two_accelerators", "until_exists"]
