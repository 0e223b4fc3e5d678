"""All extensions on at once, and drawn subsets of them, under every scheduling policy, in virtual time: what is held is
held, whatever the others say, and each hook of each extension is called."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.admission import Additions, Blocker, Decision, Preemption, Snapshot, Start
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobFilter, RankPlacement
from shoal.control.extensions.loaded import Chosen
from shoal.core import Affinity, Device, Node, Reason, Taint, Toleration
from shoal.device.live.extension import Devices
from shoal.device.live.settings import DeviceSettings
from shoal.engine.simulated import Line
from shoal.extension import Extension, LiveJob, NoSection, Server
from shoal.forecast.live.extension import Forecast, ForecastSection
from shoal.market.live.extension import Market
from shoal.schedule import POLICIES
from shoal.schedule.live.extension import Schedule, ScheduleSection
from shoal.serve.live.extension import Serve, ServeSection
from shoal.tenancy.live.extension import Tenancy, TenancySection
from tests.control.simulation import NoGateway
from tests.market.live.test_market import World, play

RATE = 0.1
"""How often a hook of the broken extension raises."""

OF_DECISIONS = ("decider", "holds", "affinity", "prefers", "adjust", "decided", "explain")
CALLED = (*OF_DECISIONS, "open", "close", "committed", "moved", "reported", "answers", "prepare",
          "capabilities", "page")  # fmt: skip
"""The hooks that every run calls: not those for requests of people, and for jobs that belong to something."""


class Late(Extension):
    """Holds jobs with a label `after` until so many seconds have passed since they came."""

    name = "late"

    def __init__(self, server: Server, settings: NoSection) -> None:
        del settings
        self._server = server

    def until(self, job_id: str) -> float:
        live = self._server.job(job_id)
        after = live.manifest.labels.get("after") if live is not None else None
        return 0.0 if live is None or after is None else live.job.submitted_at + float(after)

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:
        ends = {job_id: self.until(job_id) for job_id in snapshot.pending.by_id}
        return {
            one: Reason("late", "waits for its time", {"starts_at": at})
            for one, at in ends.items()
            if at > snapshot.now
        }

    async def open(self) -> None:
        self._task = asyncio.create_task(self._wake())

    async def close(self) -> None:
        self._task.cancel()

    async def _wake(self) -> None:
        while True:
            await asyncio.sleep(5)
            self._server.wake()


class Wild(Extension):
    """Adds starts and preemptions without a look at what is free, allowed or held; prefers nodes at random; and says so
    where a person asks. Now and then it raises."""

    name = "wild"

    def __init__(self, server: Server, settings: NoSection) -> None:
        del settings
        self._server = server
        self._draw = random.Random(7)

    def _maybe(self) -> None:
        if self._draw.random() < RATE:
            raise ZeroDivisionError(f"by defect {self._draw.randrange(3)}")

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:
        self._maybe()
        waiting = sorted(snapshot.pending.by_id)
        return {one: Reason("wild", "waits for luck") for one in waiting if self._draw.random() < RATE}

    def affinity(self, job: LiveJob) -> Affinity:
        return Affinity(tolerate=(Toleration("team", "red"),)) if "red" in job.manifest.labels else Affinity()

    def prefers(self, job: LiveJob) -> Mapping[str, float]:
        self._maybe()
        return {f"n{self._draw.randrange(3)}": 10.0, "nowhere": 5.0}

    def adjust(self, snapshot: Snapshot, decision: Decision) -> Additions:
        self._maybe()
        starts, stops = [], []
        for job_id in sorted(snapshot.pending.by_id):
            if self._draw.random() < RATE:
                state = snapshot.nodes[self._draw.choice(sorted(snapshot.nodes))]
                ids = [one for ids in state.free_devices.values() for one in ids][:1]
                starts.append(Start(job_id, (RankPlacement(0, state.node.name, tuple(ids)),), Reason("wild", "luck")))
        for job_id in sorted(snapshot.running):
            if self._draw.random() < RATE / 20:
                stops.append(Preemption(job_id, "", Reason("wild", "bad luck")))
        return Additions(starts, stops)

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:
        self._maybe()
        return (Blocker("wild", False, Reason("wild", "luck")),)


def counted(kind: type[Extension], calls: Counter[tuple[str, str]]) -> type[Extension]:
    """The extension, counting the calls of each hook that is its own."""
    own = {hook: getattr(kind, hook) for hook in CALLED if getattr(kind, hook) is not getattr(Extension, hook)}

    def count(hook: str, call: Any) -> Any:
        def counting(self: Extension, *given: Any) -> Any:
            calls[kind.name, hook] += 1
            return call(self, *given)

        return counting

    return type(kind.__name__, (kind,), {hook: count(hook, call) for hook, call in own.items()})


class Behind(Serve):
    def __init__(self, server: Any, settings: ServeSection) -> None:
        super().__init__(server, settings, gateway=NoGateway())


def installed(policy: str) -> dict[str, Chosen]:
    """By name; the market is there always."""
    prices = {"v100": 2.0, "k80": 0.5} if policy == "min-cost" else {}
    found = [
        Chosen(Devices, DeviceSettings(enabled=True)), Chosen(Forecast, ForecastSection(enabled=True)),
        Chosen(Late, NoSection()), Chosen(Schedule, ScheduleSection(policy=policy, round_s=20.0, prices=prices)),
        Chosen(Behind, ServeSection()), Chosen(Tenancy, TenancySection()), Chosen(Wild, NoSection()),
    ]  # fmt: skip
    return {one.kind.name: one for one in found}


def machines() -> tuple[Node, ...]:
    def made(name: str, kind: str, count: int, taints: tuple[Taint, ...] = (), **labels: str) -> Node:
        return Node(
            name,
            tuple(Device(f"{name}-{at}", kind, at) for at in range(count)),
            16_000,
            64 << 30,
            labels,
            taints=taints,
        )

    return (
        made("n0", "v100", 2, zone="a"),
        made("n1", "k80", 2, zone="b"),
        made("n2", "v100", 1, (Taint("team", "red"),)),
    )


def jobs(draw: random.Random) -> Iterator[JobManifest]:
    for number in range(14):
        values: dict[str, Any] = {
            "name": f"job-{number}", "command": ["train"], "grace": "5s",
            "resources": {"accelerators": {"type": draw.choice(("any", "v100")), "count": 1}},
            "priority_class": draw.choice(("best-effort", "best-effort", "guaranteed")),
        }  # fmt: skip
        what = draw.randrange(5)
        if what == 0:
            values["extensions"] = {"market": {"work": "10m", "deadline": "4h", "launch": "60s"}}
            values["resources"] = {"accelerators": {"type": "v100", "count": 1}}
        elif what == 1:
            values["labels"] = {"after": str(draw.choice((10, 60, 200)))}
        elif what == 2:
            values["nodes"] = {"require": {"zone": draw.choice("ab")}}
            values["resources"] = {"accelerators": 1}
        elif what == 3:
            values["labels"] = {"red": "yes"}
        yield JobManifest.model_validate(values)


LINES = tuple(Line(at, json.dumps({"at": 1.7e9 + at, "step": at, "total": 40}), "metrics") for at in range(5, 40, 5))
"""What each job reports."""


def simulate(folder: Path, seed: int, policy: str, names: Sequence[str]) -> Counter[tuple[str, str]]:
    """Returns how often each hook of each extension was called."""
    draw, calls = random.Random(seed), Counter[tuple[str, str]]()
    chosen = [installed(policy)[name] for name in sorted(names)]
    beside = tuple(Chosen(counted(one.kind, calls), one.settings) for one in chosen)
    started: list[str] = []
    wrong: list[Exception] = []

    async def scene(world: World) -> None:
        plane = world.plane
        decide, decisions = plane.extensions.decide, plane.extensions._decisions

        def judge(snapshot: Snapshot, decision: Decision, held: Mapping[str, Mapping[str, Reason]]) -> None:
            for start in decision.starts:
                assert set(held.get(start.job_id, ())) <= {"wild"}, "an extension may start what it alone holds"
                assert start.job_id not in held or start.reason.code == "wild"
                live = plane.cache.get(start.job_id)
                assert live is not None
                asks = plane.extensions.affinity(live)
                for rank in start.placement:
                    node = snapshot.nodes[rank.node].node
                    assert asks.allows(node.labels, node.taints)
                started.append(start.job_id)

        def checked(snapshot: Snapshot) -> Decision:
            held = {}
            ask = decisions.held

            def asked(snapshot: Snapshot) -> Any:
                held.update(found := ask(snapshot))
                return found

            decisions.held = asked  # type: ignore[method-assign]
            decision = decide(snapshot)
            decisions.held = ask  # type: ignore[method-assign]
            try:
                judge(snapshot, decision, held)
            except Exception as error:  # the decider would log it, and go on
                wrong.append(error)
            return decision

        plane.decider._policy = checked
        ids = []
        for manifest in jobs(draw):
            job, _ = await plane.submit(manifest, tenant="default", actor="tenant:default")
            ids.append(job.id)
            await asyncio.sleep(draw.choice((0, 1, 15)))
            assert (await plane.explain(draw.choice(ids))).summary
        async with asyncio.timeout(4 * 3600):
            while any(not plane.job(one).state.terminal for one in ids):
                plane.status()
                plane.extensions.pages(None)
                await asyncio.sleep(10)
        check(world)

    def check(world: World) -> None:
        late = {one.id: one for one in world.store.jobs(JobFilter(limit=1000))}
        for job in late.values():
            assert job.state is JobState.SUCCEEDED
            attempts = world.store.attempts(job.id)
            rented = "market" in JobManifest.model_validate_json(job.manifest).extensions
            for attempt in attempts:
                for rank in attempt.placement:
                    assert rank.node.startswith(job.id) if rented else rank.node in ("n0", "n1", "n2")
            after = JobManifest.model_validate_json(job.manifest).labels.get("after")
            if after is not None and "late" in names:
                assert attempts[0].created_at >= job.submitted_at + float(after)

    play(
        folder,
        scene,
        run_s=40.0,
        nodes=machines(),
        kind=counted(Market, calls),
        beside=beside,
        every="10s",
        lines=LINES,
    )  # type: ignore[arg-type]
    assert started
    assert wrong == []
    return calls


@pytest.mark.parametrize("policy", ["none", "max-min", "elastic"])
def test_all_at_once(tmp_path: Path, policy: str) -> None:
    every = [*installed(policy)]
    calls = simulate(tmp_path, 1, policy, every)
    for name in (*every, "market"):
        kind = Market if name == "market" else installed(policy)[name].kind
        for hook in CALLED:
            if getattr(kind, hook) is not getattr(Extension, hook):
                assert calls[name, hook], f"{name}.{hook} was never called"


@pytest.mark.parametrize("seed", range(2))
def test_drawn_subsets(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    policy = draw.choice(sorted({*POLICIES} - {"allox"}))
    every = [*installed(policy)]
    simulate(tmp_path, seed, policy, sorted({*draw.sample(every, draw.randint(1, len(every))), "schedule"}))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["none", *sorted({*POLICIES} - {"allox"})])
@pytest.mark.parametrize("seed", range(3))
def test_every_policy_with_drawn_subsets(tmp_path: Path, policy: str, seed: int) -> None:
    draw = random.Random(f"{policy}-{seed}")
    every = [*installed(policy)]
    simulate(tmp_path, seed, policy, sorted({*draw.sample(every, draw.randint(2, len(every))), "schedule"}))
