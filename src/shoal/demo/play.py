"""The running demo: what every act is given, and how it watches the jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from shoal.contract.lifecycle import JobState
from shoal.core import Unavailable
from shoal.demo.evidence import Execution, executions, read_facts
from shoal.demo.load import Load
from shoal.demo.report import Report
from shoal.demo.scenario import WORKLOADS, DemoJob, Scenario
from shoal.demo.screen import Picture, Screen
from shoal.demo.stage import Stage
from shoal.sdk import Client
from shoal.sdk.models import EventView, JobView

_LOOK_EVERY_S = 0.25
"""How often the jobs are looked at: their progress is no event, and a table four times a second looks alive."""

_PATIENCE_S = 120.0
"""How long anything may take before the demo calls it stuck; generous, for busy machines."""


class Demo:
    """One performance. Acts read and fill its fields; `events` is all that the server has recorded of the jobs."""

    def __init__(self, scenario: Scenario, stage: Stage, screen: Screen, report: Report, clients: ExitStack) -> None:
        self.scenario = scenario
        self.stage = stage
        self.screen = screen
        self.report = report
        self.admin = Client(home=stage.home)
        self.tenants: dict[str, Client] = {}
        self.acknowledged: dict[str, str] = {}
        """Job ids by name, once the server had said that it has them."""
        self.events: list[EventView] = []
        self.picture = Picture()
        self.load: Load | None = None
        """What sends requests to the services, once there are some."""
        self._clients = clients
        self._told = 0
        self._causes_told: set[tuple[str | None, str | None]] = set()
        self._clients.enter_context(self.admin)

    def after(self, callback: Callable[[], object]) -> None:
        """Have something done when the demo is over, however it ends."""
        self._clients.callback(callback)

    def enter_tenant(self, name: str, token: str) -> None:
        """From now on this tenant can submit, with a token of its own."""
        self.tenants[name] = self._clients.enter_context(Client(home=self.stage.home, token=token))

    def submit(self, job: DemoJob, *, key: str | None = None) -> JobView:
        """Submit as its tenant does, working files included; durable when this returns."""
        manifest = job.manifest(self.stage.ledger)
        stored = self.tenants[job.tenant].submit(manifest, base=WORKLOADS, idempotency_key=key)
        self.acknowledged.setdefault(job.name, stored.id)
        return stored

    def executions(self) -> list[Execution]:
        """What really ran so far, by the workloads' own account."""
        return executions(read_facts(self.stage.ledger))

    def steps_since(self, name: str, since: float) -> int:
        """How many steps rank 0 of a job trained after a moment of the monotonic clock."""
        facts = read_facts(self.stage.ledger)
        return sum(f.fact == "trained" and f.job == name and f.rank == 0 and f.at > since for f in facts)

    def look(self) -> Picture:
        """Ask the server how the jobs are, and show it."""
        self._read_events()
        jobs = {job.name: job for job in reversed(self.admin.jobs(limit=1000).jobs)}
        slots: dict[str, list[str]] = {}
        for node in self.admin.nodes():
            for device in node.devices:
                if device.job_id:
                    slots.setdefault(device.job_id, []).append(device.id)
        self.picture = Picture(jobs, slots)
        self._tell_events()
        self.screen.show(self.picture)
        return self.picture

    def watch(self, until: Callable[[Picture], Any], *, what: str) -> Picture:
        """Follow the jobs until the condition holds. Raises Unavailable when it does not for much too long."""
        give_up_at = time.monotonic() + _PATIENCE_S
        while not until(picture := self.look()):
            if time.monotonic() > give_up_at:
                raise Unavailable(f"the demo is stuck: waited {_PATIENCE_S:g} s until {what}")
            time.sleep(_LOOK_EVERY_S)
        return picture

    def await_events(self, seen: Callable[[Sequence[EventView]], bool], *, what: str) -> None:
        """Follow the server's event log until the condition holds for all events so far."""
        give_up_at = time.monotonic() + _PATIENCE_S
        while not seen(self.events):
            if time.monotonic() > give_up_at:
                raise Unavailable(f"the demo is stuck: waited {_PATIENCE_S:g} s until {what}")
            self._read_events(wait_s=1.0)

    def events_of(self, name: str) -> list[EventView]:
        job_id = self.acknowledged.get(name)
        return [event for event in self.events if event.job_id == job_id]

    def _read_events(self, *, wait_s: float = 0.0) -> None:
        while True:
            after = self.events[-1].seq if self.events else 0
            page = self.admin.event_page(after=after, wait_s=wait_s)
            self.events += page.events
            if not page.events or wait_s:
                return

    def _tell_events(self) -> None:
        fresh, self._told = self.events[self._told :], len(self.events)
        for event in fresh:
            line = self._line(event)
            name = next((job.name for job in self.picture.jobs.values() if job.id == event.job_id), None)
            if line and name:
                self.screen.happened([f"{name:<16} {self.picture.named(line)}"], notable=_notable(event))

    def _line(self, event: EventView) -> str | None:
        """An event in a line; None for one that goes without saying."""
        if event.kind == "job.waiting":
            cause = (event.job_id, event.data.get("reason", {}).get("code"))
            known = cause in self._causes_told
            self._causes_told.add(cause)
            return None if known else event.cause
        if event.kind == "attempt.adopted":
            return f"adopted: {event.cause}"
        if event.kind == "job.preempt-requested":
            return f"is asked to make room: {event.cause}"
        if event.kind != "job.state" or event.new_state is None or event.new_state in _ROUTINE:
            return None
        if event.new_state == JobState.RUNNING:
            slots = " and ".join(self.picture.slots.get(event.job_id or "", ()))
            return f"RUNNING on {slots}" if slots else "RUNNING"
        if event.new_state == JobState.QUEUED and event.data.get("error_code") is None:
            return "QUEUED again: it made room and keeps its checkpoint"
        return f"{event.new_state}: {event.cause}" if event.cause and event.cause != "done" else event.new_state


_ROUTINE = {
    JobState.ADMITTED, JobState.PLACED, JobState.STARTING, JobState.DOWNLOADING, JobState.CHECKPOINTING,
    JobState.STORING,
}  # fmt: skip
_NOTABLE = {"attempt.adopted", "job.preempt-requested"}


def _notable(event: EventView) -> bool:
    """Whether it is worth telling beside a table that shows all states."""
    return event.kind in _NOTABLE or (event.kind == "job.state" and event.new_state == JobState.QUEUED)
