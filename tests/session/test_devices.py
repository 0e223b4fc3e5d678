"""Which work on devices keeps sessions open: what NVML says of devices that a job has alone, others' word of shared."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.records import Event
from shoal.core import ManualClock, Share
from shoal.device.live.sensed import Look, Seen, launched
from shoal.session import frames
from shoal.session.live.devices import Devices
from shoal.session.live.events import SessionEvent
from shoal.session.live.watching import Watching


class FakeNvml:
    """Devices and the part of the time that they work."""

    class NVMLError(Exception):
        pass

    def __init__(self, working: Mapping[str, int]) -> None:
        self.working = dict(working)

    def nvmlInit(self) -> None:
        if not self.working:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByUUID(self, device: str) -> str:
        if device not in self.working:
            raise self.NVMLError("Not Found")
        return device

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=self.working[handle])


def test_devices_that_work_are_told_from_those_that_do_not() -> None:
    devices = Devices(lambda: FakeNvml({"GPU-a": 40, "GPU-b": 0}))
    assert devices.busy(["GPU-a", "GPU-b", "MIG-c"]) == {"GPU-a"}
    assert devices.missing is None


def test_where_nothing_reports_it_is_said_and_tried_again() -> None:
    library = FakeNvml({})
    devices = Devices(lambda: library)
    assert devices.busy(["GPU-a"]) == frozenset()
    assert devices.missing == "NVML: Driver Not Loaded"
    library.working["GPU-a"] = 1
    assert devices.busy(["GPU-a"]) == {"GPU-a"}
    assert devices.missing is None


def test_a_launch_on_a_shared_device_is_use() -> None:
    def look(at: float, launches: int) -> Look:
        return Look(at, {"d": {"j.0": Seen(launches, 0.0)}})

    assert launched(look(1, 5), look(2, 6), [("j.0", "d")]) is True
    assert launched(look(1, 5), look(2, 5), [("j.0", "d")]) is False
    assert launched(Look(0.0), look(2, 5), [("j.0", "d")]) is None


class Agents:
    """An engine whose sessions answer, and keep what they were asked."""

    def __init__(self) -> None:
        self.asked: dict[str, dict[str, str]] = {}

    async def start_beside(self, *_: object) -> None: ...
    async def why_not_beside(self, *_: object) -> str:
        return ""

    async def reach_port(self, *_: object) -> socket.socket:
        raise NotImplementedError

    async def reach_socket(self, name: str, rank: int, file: str) -> socket.socket:
        ours, theirs = socket.socketpair()

        def answer() -> None:
            with theirs:
                (asked,) = frames.take_frames(bytearray(theirs.recv(4096)))
                self.asked[name.partition(".")[0]] = frames.read_fields(asked[1])
                theirs.sendall(frames.frame(frames.STATE, frames.write_fields(open=9, idle=3, clients=1)))

        threading.Thread(target=answer, daemon=True).start()
        return ours


class FakeServer:
    """`above` answers what a plane does not know of its own jobs' devices."""

    def __init__(self, shares: Mapping[str, Share], above: Callable[[str], bool | None] | None = None) -> None:
        self.plane = None if above is None else "p-1"
        self._uses = above or {"shared": True, "idle-share": False}.get
        self.clock = ManualClock(100.0)
        self.store = SimpleNamespace(events=lambda *_, **__: [])
        self._jobs = {job: self._live(job, share) for job, share in shares.items()}

    def _live(self, job: str, share: Share) -> Any:
        rank = SimpleNamespace(rank=0, node="n", devices=(f"GPU-{job}",))
        record = SimpleNamespace(
            id=job, state=JobState.RUNNING, tenant="red", name=job, resources=SimpleNamespace(share=share)
        )
        return SimpleNamespace(job=record, attempt=SimpleNamespace(number=1, placement=(rank,)))

    def active_jobs(self) -> Iterator[Any]:
        return iter(self._jobs.values())

    def job(self, job_id: str) -> Any:
        return self._jobs.get(job_id)

    def ask_all(self, _: object) -> list[Any]:
        return [SimpleNamespace(uses_device=self._uses)]


def test_sessions_of_jobs_whose_devices_work_are_told_so() -> None:
    shares = {
        "works": Share.EXCLUSIVE,
        "rests": Share.EXCLUSIVE,
        "shared": Share.BEST_EFFORT,
        "idle-share": Share.BEST_EFFORT,
    }
    server, agents = FakeServer(shares), Agents()
    devices = Devices(lambda: FakeNvml({"GPU-works": 90, "GPU-rests": 0}))

    async def main() -> None:
        watching = Watching(server, lambda: agents, 4.0, devices)  # type: ignore[arg-type, return-value]
        watching.book.read(
            Event(1, 90.0, SessionEvent.EXEC, "ann", "", "red", job, None, None, None, {"session": "x", "rank": 0})
            for job in shares
        )
        task = asyncio.create_task(watching.run())
        async with asyncio.timeout(60):
            while len(agents.asked) < 4 or any(one.state is None for one in watching.book):
                assert not task.done()
                await asyncio.sleep(0.01)
        task.cancel()
        assert {job for job, asked in agents.asked.items() if "busy" in asked} == {"works", "shared"}
        assert {one.state.idle_s for one in watching.book if one.state is not None} == {3}

    asyncio.run(main())


def test_a_plane_hears_of_its_jobs_devices_from_the_shared_server() -> None:
    jobs = {"works": Share.EXCLUSIVE, "rests": Share.EXCLUSIVE, "shared": Share.BEST_EFFORT}
    agents, devices = Agents(), Devices(lambda: FakeNvml({"GPU-works": 90, "GPU-rests": 0}))
    above = Watching(FakeServer(jobs), lambda: agents, 0.4, devices)  # type: ignore[arg-type, return-value]
    own = FakeServer(jobs, lambda job: above.uses_device(job))
    inside = Watching(own, lambda: agents, 4.0)  # type: ignore[arg-type, return-value]
    inside.book.read(
        Event(1, 90.0, SessionEvent.EXEC, "ann", "", "red", job, None, None, None, {"session": "x", "rank": 0})
        for job in ("works", "rests")
    )
    assert above.uses_device("shared") is inside.uses_device("works") is None, "others, or the shared server, know"

    async def main() -> None:
        tasks = [asyncio.create_task(one.run()) for one in (above, inside)]
        async with asyncio.timeout(60):
            while "busy" not in agents.asked.get("works", {}):
                assert not any(task.done() for task in tasks)
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        assert "busy" not in agents.asked["rests"]

    asyncio.run(main())


def test_a_session_that_never_answers_is_unknown_and_holds_up_no_other() -> None:
    class Silent(Agents):
        async def reach_socket(self, name: str, rank: int, file: str) -> socket.socket:
            if name.startswith("rests"):
                self.kept = socket.socketpair()
                return self.kept[0]
            return await super().reach_socket(name, rank, file)

    agents, server = Silent(), FakeServer({"works": Share.EXCLUSIVE, "rests": Share.EXCLUSIVE})

    async def main() -> None:
        watching = Watching(server, lambda: agents, 0.0)  # type: ignore[arg-type, return-value]
        for job in ("works", "rests"):
            watching.book.read([
                Event(1, 90.0, SessionEvent.EXEC, "ann", "", "red", job, None, None, None, {"session": "x", "rank": 0})
            ])  # fmt: skip
        await watching.look(watching.book)
        assert {one.job: one.state is not None for one in watching.book} == {"works": True, "rests": False}

    asyncio.run(main())


@pytest.mark.parametrize("said", [b"", b"Y\xff\xff\xff\xff", frames.frame(frames.NOTE, b"x")])
def test_an_answer_that_is_none_is_no_state(said: bytes) -> None:
    class Liar(Agents):
        async def reach_socket(self, name: str, rank: int, file: str) -> socket.socket:
            ours, theirs = socket.socketpair()
            theirs.sendall(said)
            theirs.close()
            return ours

    async def main() -> None:
        server = FakeServer({"works": Share.EXCLUSIVE})
        watching = Watching(server, lambda: Liar(), 0.0)  # type: ignore[arg-type, return-value]
        data = {"session": "x", "rank": 0}
        watching.book.read([Event(1, 90.0, SessionEvent.EXEC, "ann", "", "red", "works", None, None, None, data)])
        await watching.look(watching.book)
        assert [one.state for one in watching.book] == [None]

    asyncio.run(main())
