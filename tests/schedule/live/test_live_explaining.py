"""Explanations and the live snapshot are worked out in a thread, of values that do not change; the server's loop goes
on meanwhile, and what jobs report then is learnt afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shoal.admission import Explanation, explain
from shoal.contract.records import AttemptRecord
from shoal.core import Quota, Tenant
from shoal.schedule.live import scheduler as rounds
from tests.schedule.live.test_live_beside import NOW, Server


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """What is worked out for people is not before this is set, and never by the loop's own thread."""
    opened = threading.Event()

    def held(work: Callable[..., Any]) -> Callable[..., Any]:
        def when_open(*given: Any) -> Any:
            assert threading.current_thread() is not threading.main_thread(), "the loop would stand still"
            assert opened.wait(30.0)
            return work(*given)

        return when_open

    for name in ("explained", "live_lines"):
        monkeypatch.setattr(rounds, name, held(getattr(rounds, name)))
    return opened


def told(server: Server) -> asyncio.Task[Explanation | None]:
    snapshot = server.index.snapshot(NOW)
    waiting = next(iter(snapshot.pending.by_id))
    return asyncio.create_task(server.scheduler.explain(snapshot, server.jobs[waiting], ""))


def shown(server: Server) -> asyncio.Task[list[str]]:
    return asyncio.create_task(server.scheduler.lines(server.index.snapshot(NOW)))


def report(server: Server, job_id: str, step: int, at: float) -> None:
    live, now = server.jobs[job_id], server.index.snapshot(NOW).running[job_id]
    live.job = live.job.evolve(progress={"hooks": True, "step": step, "reported_at": at})
    live.attempt = AttemptRecord(job_id, 1, 1, now.placement, NOW)
    server.scheduler.reported(live)


async def test_decisions_go_on_while_a_job_is_explained_as_it_was(gate: threading.Event) -> None:
    server = Server(12, many=1000)
    server.decide(NOW)
    asked = told(server)
    await asyncio.sleep(0)
    assert server.decide(NOW + 60.0).preemptions
    assert server.scheduler.status()["round"] == 2
    assert not asked.done()
    gate.set()
    found = await asked
    assert found is not None
    causes = {cause.cause: cause.reason for cause in found.causes}
    assert causes["schedule"].facts["round"]["round"] == 1


@pytest.mark.parametrize("ask", [told, shown], ids=["explain", "snapshot"])
async def test_what_is_reported_meanwhile_is_learnt_afterwards(
    gate: threading.Event, ask: Callable[[Server], asyncio.Task[Any]]
) -> None:
    server = Server(12, many=1000)
    runs = server.decide(NOW).starts[0].job_id
    report(server, runs, 0, NOW)
    asked = ask(server)
    await asyncio.sleep(0)
    report(server, runs, 40, NOW + 20.0)
    assert not server.scheduler.oracle.as_json()["live"]
    gate.set()
    assert await asked
    report(server, runs, 41, NOW + 20.5)
    assert server.scheduler.oracle.as_json()["live"]


async def test_a_job_that_ended_meanwhile_is_forgotten_by_a_later_round(gate: threading.Event) -> None:
    server = Server(12, many=1000)
    gate.set()
    ended = server.decide(NOW).starts[0].job_id
    report(server, ended, 0, NOW)
    report(server, ended, 40, NOW + 20.0)
    gate.clear()
    asked = told(server)
    await asyncio.sleep(0)
    server.index.stop(ended)
    del server.jobs[ended]
    server.decide(NOW + 60.0)
    assert [row[0] for row in server.scheduler.oracle.as_json()["live"]] == [ended]
    gate.set()
    await asked
    server.decide(NOW + 120.0)
    assert not server.scheduler.oracle.as_json()["live"]


async def test_a_quota_in_the_way_is_told_as_without_a_policy_with_the_limits_to_raise(gate: threading.Event) -> None:
    gate.set()
    server = Server(3, many=1000)
    server.index.set_tenant(Tenant("t0", quota=Quota(accelerators=0, by_type=(("a100", 0),))))
    server.decide(NOW)
    snapshot = server.index.snapshot(NOW)
    told = await server.scheduler.explain(snapshot, server.jobs["j-0"], "")
    assert told is not None
    (quota,) = (cause for cause in told.causes if cause.cause == "quota")
    assert quota.reason.facts["to_start"] == {"quota": {"accelerators": 1}}  # a k80 lacks one limit, an a100 two
    assert quota == next(cause for cause in explain(snapshot, "j-0").causes if cause.cause == "quota")
