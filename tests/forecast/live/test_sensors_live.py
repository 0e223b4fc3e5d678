"""In virtual time, what the guard and the devices sense of a job that becomes slower names the cause, in `explain` and
in the event."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from shoal.contract.manifest import JobManifest
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node, PriorityClass, Unavailable
from shoal.core import Sensors as SensorsQuestion
from shoal.device import opencl, seats
from shoal.device.live.extension import Devices
from shoal.device.live.settings import DeviceSettings
from shoal.device.page import Page
from shoal.device.policy import Class
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script, SimulatedCluster, SimulatedEngine, VirtualClock
from shoal.extension import Extension, Server
from shoal.forecast.live.extension import Forecast, ForecastEvent, ForecastSection
from shoal.host.guard.journal import Head, Journal
from shoal.host.guard.loop import Tick
from shoal.host.live.extension import Guard
from shoal.host.live.process import JOURNAL_FILE, GuardProcess
from shoal.host.live.reconciler import GuardReconciler
from shoal.host.live.settings import GuardSettings
from shoal.host.types import Domain, DomainState, Group, GroupState, Missing, Plan, Reading, Setting, Snapshot
from shoal.store import open_store
from tests.device.kit import native_only

pytestmark = pytest.mark.virtual_time

FAST = SLOW = 60
NODE = Node("n0", (Device("GPU-0", "a100", 0),), 16_000, 1 << 36)


class NoProcess(GuardProcess):
    """The test writes the guard's journal itself."""

    def tend(self) -> None:
        raise Unavailable("the test starts no guard")


class Watched(Guard):
    def __init__(self, server: Server, settings: GuardSettings) -> None:
        self._server = server
        process = NoProcess(server.home / "guard", settings)
        self.reconciler = GuardReconciler(server, settings, process=process)


def reports(begin: float) -> tuple[Line, ...]:
    """A report a second; after sixty, steps take half as long again."""
    draw, found, after = random.Random(1), [], 0.0
    for number in range(FAST + SLOW):
        after += (1.5 if number >= FAST else 1.0) * draw.lognormvariate(0, 0.02)
        found.append(Line(after, json.dumps({"at": begin + after, "step": number + 1, "total": 10_000}), "metrics"))
    return tuple(found)


async def slowdown(
    folder: Path,
    extensions: Sequence[Chosen],
    each_second: Callable[[str, float, bool], None],
    **more: object,
) -> tuple[str, Mapping[str, object]]:
    """What is told of a job that becomes slower. `each_second` is given its id, the time, and whether it is slow."""
    clock = VirtualClock()

    def script(_: Gang) -> Script:
        return Script(run_s=400.0, lines=reports(clock.now()))

    engine = SimulatedEngine(SimulatedCluster((NODE,), clock=clock, behaviour=script))
    with contextlib.closing(open_store(f"sqlite:///{folder}/shoal.db", clock=clock, inline=True, sync=False)) as store:
        store.acquire("test")
        chosen = [*extensions, Chosen(Forecast, ForecastSection(enabled=True))]
        plane = ControlPlane(store, engine, folder, clock=clock, extensions=chosen)
        await plane.open()
        await plane.put_tenant("ada", actor="admin")
        asked = {"name": "train", "command": ["train"], "resources": {"accelerators": 1, "cpus": 1}, **more}
        manifest = JobManifest.model_validate(asked)
        job, _ = await plane.submit(manifest, tenant="ada", actor="ada")
        for second in range(FAST + SLOW):
            each_second(job.id, clock.monotonic(), second >= FAST)
            await asyncio.sleep(1)
        (cause,) = [one for one in (await plane.explain(job.id)).causes if one.cause == "slowdown"]
        assert [one.data for one in store.events() if one.kind == ForecastEvent.SLOWDOWN] == [cause.reason.facts]
        await plane.close()
    return cause.reason.text, cause.reason.facts


class Journaled:
    """Writes the guard's journal: what it senses of a job that runs in domains 0 and 1."""

    def __init__(self, folder: Path, quick: Mapping[str, float], slow: Mapping[str, float]) -> None:
        folder.mkdir()
        self._journal = Journal(folder / JOURNAL_FILE, Head("model", {}))
        self._values = quick, slow

    def __call__(self, job: str, at: float, slow: bool) -> None:
        told = self._values[slow]
        noise = random.Random(at).gauss(1, 0.03)

        def reading(name: str, factor: float = 1.0) -> Reading:
            return Reading(told[name] * noise * factor if name in told else Missing("not here"), told.get("age_s", 0.0))

        domains = tuple(
            DomainState(
                Domain(number, frozenset({number})), bandwidth=reading("bandwidth", factor),
                latency_ns=reading("latency_ns", factor), saturation=reading("saturation", factor),
            )
            for number, factor in ((0, 0.5), (1, 1.0), (2, 9.0))
        )  # fmt: skip
        state = GroupState(
            Group(job, PriorityClass.BEST_EFFORT), frozenset({0, 1}), wait=reading("wait"),
            throttled=reading("throttled"),
        )  # fmt: skip
        applied = {job: Setting(share=told.get("share", 1.0), frozen=bool(told.get("frozen")))}
        snapshot = Snapshot(at, domains, (state,), steal=reading("steal"))
        self._journal.write(Tick(int(at), at, snapshot, Plan({}), applied))


@pytest.mark.few(count=3)
@pytest.mark.parametrize(
    ("quick", "slow", "sensor", "cause", "before", "after"),
    [
        ({"latency_ns": 90}, {"latency_ns": 180}, "memory_latency_ns", "host memory", 90, 180),
        ({"latency_ns": 90, "age_s": 9}, {"latency_ns": 180, "age_s": 9}, "memory_latency_ns", "host memory", 90, 180),
        ({"latency_ns": 90}, {"latency_ns": 180, "age_s": 11}, "", "", 0, 0),
        ({"saturation": 0.1}, {"saturation": 0.4}, "memory_stall", "host memory", 0.1, 0.4),
        ({"bandwidth": 1e9}, {"bandwidth": 9e9}, "memory_bytes_per_s", "host memory", 1e9, 9e9),
        ({"bandwidth": 1e9, "wait": 0.01}, {"bandwidth": 9e9, "wait": 1.0}, "cpu_wait", "neighbour", 0.01, 0.5),
        ({"throttled": 0.0}, {"throttled": 0.5}, "cpu_throttled", "CPU limit", 0.0, 0.5),
        ({"steal": 0.0}, {"steal": 0.3}, "steal", "neighbour", 0.0, 0.3),
        ({}, {"share": 0.5}, "guard_share", "neighbour", 1.0, 0.5),
        ({}, {"frozen": 1.0}, "guard_share", "neighbour", 1.0, 0.0),
    ],
)
async def test_what_the_guard_senses_names_the_cause(
    tmp_path: Path, quick: Mapping[str, float], slow: Mapping[str, float], sensor: str, cause: str, before: float,
    after: float,
) -> None:  # fmt: skip
    guard = Chosen(Watched, GuardSettings(enabled=True))
    text, facts = await slowdown(tmp_path, [guard], Journaled(tmp_path / "guard", quick, slow))
    assert (facts["sensor"], facts["cause"]) == (sensor, cause)
    assert facts["before"] == pytest.approx(before, rel=0.05)
    assert facts["after"] == pytest.approx(after, rel=0.3)
    assert (f"{cause}; {facts['remedy']} ({sensor} went from " if cause else "no sensor moved with it") in text


async def test_a_guard_that_is_gone_senses_nothing(tmp_path: Path) -> None:
    write = Journaled(tmp_path / "guard", {"latency_ns": 90}, {})
    text, _ = await slowdown(
        tmp_path, [Chosen(Watched, GuardSettings(enabled=True))], lambda job, at, slow: slow or write(job, at, slow)
    )
    assert text.endswith("no sensor moved with it")


async def test_sensors_of_anothers_extension_are_heard(tmp_path: Path) -> None:
    told: dict[str, float] = {}

    class Sensors(Extension):
        name = "sensors"

        def answers(self) -> Mapping[type, object]:
            return {SensorsQuestion: self}

        def sensed(self, job_id: str) -> Mapping[str, float]:
            return {**told, "mood": 1.0}

    def sense(_: str, at: float, slow: bool) -> None:
        told["memory_stall"] = (0.3 if slow else 0.1) + 0.001 * (at % 2)

    text, _ = await slowdown(tmp_path, [Chosen(Sensors, Sensors.settings())], sense)
    assert "host memory; run it guaranteed under the guard" in text


class Nvml:
    """Answers as NVML does for one device."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_CLOCK_SM = 1

    def __init__(self) -> None:
        self.mhz, self.reasons = 1980, 0

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, device: str) -> str:
        if device != "GPU-0":
            raise self.NVMLError("Not Found")
        return device

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: str) -> int:
        return self.reasons

    def nvmlDeviceGetClockInfo(self, device: str, which: int) -> int:
        return self.mhz


@pytest.fixture
def _shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_DEVICE_FOLDER", str(tmp_path / "pages"))
    monkeypatch.setattr(opencl, "environment", lambda base: {"OPENCL_LAYERS": "ours"})
    monkeypatch.setattr(seats, "problem", lambda accelerator: None)


@native_only
@pytest.mark.usefixtures("_shared")
@pytest.mark.parametrize(("mhz", "reasons", "cause"), [(1200, 0x40, "throttled device"), (345, 0x1, ""), (1970, 0, "")])
async def test_a_clock_that_falls_is_a_throttled_device_unless_it_idles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mhz: int, reasons: int, cause: str
) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    def sense(_: str, __: float, slow: bool) -> None:
        if slow:
            nvml.mhz, nvml.reasons = mhz, reasons

    _, facts = await slowdown(tmp_path, [Chosen(Devices, DeviceSettings(enabled=True))], sense)
    assert facts["cause"] == cause


@native_only
@pytest.mark.usefixtures("_shared")
@pytest.mark.parametrize(
    ("waited", "beside", "sensor", "after"),
    [(0.4, 100, "device_wait", 0.4), (0.0, 900, "device_launches_beside", 900)],
)
async def test_what_others_do_on_a_shared_device_names_the_neighbour(
    tmp_path: Path, waited: float, beside: int, sensor: str, after: float
) -> None:
    pages: list[Page] = []

    def sense(job: str, _: float, slow: bool) -> None:
        path = seats.page_path("GPU-0")
        if not pages and path.exists():
            pages.append(Page.open(path))
            pages[0].join(Class.GUARANTEED, name=f"{job}.0")
            pages[0].join(Class.BEST_EFFORT, name="other.0")
        for page in pages:
            mine, others = page.struct.slot[0], page.struct.slot[1]
            mine.waited_ns[0] += int(waited * 1e9) if slow else 0
            others.launches += beside if slow else 100

    share = {"accelerators": {"count": 1, "share": "guaranteed", "memory": "1GiB"}, "cpus": 1}
    devices = Chosen(Devices, DeviceSettings(enabled=True))
    text, facts = await slowdown(tmp_path, [devices], sense, priority_class="guaranteed", resources=share)
    assert (facts["cause"], facts["sensor"]) == ("neighbour", sensor)
    assert facts["after"] == pytest.approx(after, rel=0.3)
    assert "ask for a device of its own" in text
    for page in pages:
        page.close()
