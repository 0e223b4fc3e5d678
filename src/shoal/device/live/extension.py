"""Shared devices as an extension of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import structlog

from shoal.base.loops import BackgroundLoop, Defects, RunningLoop
from shoal.contract import pages
from shoal.core import CPU_SLOT, Capability, DeviceUse, Node, NodeOffers, Sensors, Share, ShoalError
from shoal.device import seats
from shoal.device.live.sensed import Clocks, Look, launched, seen, sensed
from shoal.device.live.settings import DeviceSettings
from shoal.engine import Gang, RankSpec
from shoal.extension import Extension, LiveJob, Section, Server

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from shoal.device.page import Page

log = structlog.get_logger("shoal.device")

_REAP_S = 5.0
"""Gates ignore the processes that are gone by themselves; this frees their slots."""
_SENSE_S = 1.0
_CONSEQUENCE = "{} are given out whole: jobs that ask for a share of one never fit"


class Devices(Extension):
    """Offers places for best-effort jobs on devices, and gives each process of a share its seat."""

    name: ClassVar[str] = "device"
    settings: ClassVar[type[Section]] = DeviceSettings

    def __init__(self, server: Server, settings: DeviceSettings) -> None:
        self._server = server
        self._settings = settings
        self._problems = {accelerator: seats.problem(accelerator=accelerator) for accelerator in (True, False)}
        self._pages: dict[str, Page] = {}
        self._defects = Defects(log)
        self._clocks = Clocks()
        self._wanted: set[str] = set()
        self._looks = Look(0.0), Look(0.0)

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (
            Capability("device", False, "off: `shoal up --set device.enabled=on`", _CONSEQUENCE.format("accelerators")),
        )

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:  # noqa: ARG003
        return seats.capabilities()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("reaper", self._reap), RunningLoop("sensors", self._sense))

    async def close(self) -> None:
        """Running jobs keep their seats: a server that comes back finds the pages."""
        for page in self._pages.values():
            page.close()
        self._pages.clear()

    # --- sense ---

    def answers(self) -> Mapping[type, object]:
        return {Sensors: self, NodeOffers: self, DeviceUse: self}

    def sensed(self, job_id: str) -> Mapping[str, float]:
        return sensed(*self._looks, self._watched(job_id))

    def uses_device(self, job_id: str) -> bool | None:
        return launched(*self._looks, self._watched(job_id))

    def _watched(self, job_id: str) -> list[tuple[str, str]]:
        """The job's ranks and their devices, which are looked at from now on."""
        job = self._server.job(job_id)
        if job is None or job.attempt is None:
            return []
        ranks = [
            (seats.rank_name(job.job.id, one.rank), device) for one in job.attempt.placement for device in one.devices
        ]
        self._wanted.update(device for _, device in ranks)
        return ranks

    async def _sense(self) -> None:
        """Look at the devices whose sensors were asked for since the last time."""
        while True:
            await asyncio.sleep(_SENSE_S)
            wanted, self._wanted = self._wanted, set()
            if not wanted:
                continue
            try:
                clocks = await asyncio.to_thread(self._clocks.read, sorted(wanted))
                found = {device: seen(page.occupants()) for device, page in self._pages.items() if device in wanted}
                self._looks = self._looks[1], Look(self._server.clock.monotonic(), found, clocks)
            except Exception as error:
                self._defects.note("devices cannot be sensed", error)

    # --- decide ---

    def offered(self, node: Node) -> Node:
        places = self._settings.best_effort_seats
        devices = tuple(
            replace(each, best_effort_seats=places) if self._shared(each.type) else each for each in node.devices
        )
        return replace(node, devices=devices)

    def _shared(self, kind: str) -> bool:
        wanted = kind != CPU_SLOT if self._settings.types is None else kind in self._settings.types
        return wanted and (self._settings.isolation == "none" or self._problem(kind) is None)

    def _problem(self, kind: str) -> str | None:
        """Why nothing isolates the processes on devices of this type; None when something does."""
        return self._problems[kind != CPU_SLOT]

    # --- act ---

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        if gang.share is Share.EXCLUSIVE:
            return gang
        return replace(gang, ranks=tuple(self._seated(job, gang, rank) for rank in gang.ranks))

    def _seated(self, job: LiveJob, gang: Gang, rank: RankSpec) -> RankSpec:
        if not rank.devices:
            return rank
        device = rank.devices[0]
        if self._problem(self._type_of(rank.node, device)) is not None:
            return rank
        tenant = self._server.tenants().get(job.job.tenant)
        seat = seats.Seat(
            device,
            job.job.priority_class,
            seats.rank_name(job.job.id, rank.rank),
            weight=max(1, round(tenant.weight * 100)) if tenant is not None else 100,
            memory_bytes=self._quota(gang, rank, device),
        )
        self._page(device)
        return replace(rank, env={**rank.env, **seats.environment(seat, {**gang.env, **rank.env})})

    def _quota(self, gang: Gang, rank: RankSpec, device: str) -> int:
        """What the process may allocate of its share: drivers take memory for contexts and code that no program asked
        for, and shares that add up to the device must hold that too."""
        kept = round(self._settings.context_gib * 2**30) if self._type_of(rank.node, device) != CPU_SLOT else 0
        return gang.device_memory_bytes - min(kept, gang.device_memory_bytes // 2)

    def _type_of(self, node: str, device: str) -> str:
        """Empty for a device that is gone meanwhile: the engine refuses the launch."""
        layout = self._server.snapshot().nodes.layout
        at = layout.position.get(node)
        return "" if at is None else layout.type_of[at].get(device, "")

    def _page(self, device: str) -> Page:
        if device not in self._pages:
            self._pages[device] = seats.open_page(device, self._settings.rules())
        return self._pages[device]

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(_REAP_S)
            for device, page in self._pages.items():
                try:
                    page.reap()
                except (ShoalError, OSError) as error:
                    self._defects.note("a device's page cannot be read", error, device=device)

    # --- shown ---

    def capabilities(self) -> Sequence[Capability]:
        found = []
        for word, accelerator in (("accelerators", True), ("CPU slots", False)):
            if not accelerator and CPU_SLOT not in (self._settings.types or ()):
                continue
            problem = self._problems[accelerator]
            if problem is None:
                detail = f"{word} are shared by up to {self._settings.best_effort_seats} best-effort jobs each"
                found.append(Capability("device", True, detail))
            elif self._settings.isolation == "none":
                consequence = "best-effort work slows down guaranteed work beside it"
                detail = f"{word} are shared without isolation, as told: {problem}"
                found.append(Capability("device", False, detail, consequence))
            else:
                found.append(Capability("device", False, problem, _CONSEQUENCE.format(word)))
        return found

    def page(self, tenant: str | None) -> pages.Page | None:
        """Only an admin sees who shares a device with whom."""
        if tenant is not None:
            return None
        column = pages.Column
        columns = [
            column(name="process"), column(name="pid"), column(name="class"), column(name="launches"),
            column(name="pieces"), column(name="too long"), column(name="memory", unit=pages.Unit.BYTES),
            column(name="waits"), column(name="waited", unit=pages.Unit.SECONDS),
        ]  # fmt: skip
        seats = {device: page.occupants() for device, page in self._pages.items()}
        figures = [
            pages.Figure(name="devices", value=len(seats)),
            pages.Figure(name="seats", value=sum(map(len, seats.values()))),
        ]
        tables: list[pages.Part] = [
            pages.Table(title=device, columns=columns, rows=[_row(one) for one in found], empty="nobody is on it")
            for device, found in seats.items()
        ]
        return pages.Page(title="Shared devices", figures=figures, parts=tables)

    def metrics(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = ("device", "process", "class")
        launches = CounterMetricFamily("shoal_device_launches", "Kernels launched.", labels=labels)
        pieces = CounterMetricFamily("shoal_device_pieces", "Pieces that best-effort kernels ran in.", labels=labels)
        violations = CounterMetricFamily(
            "shoal_device_violations", "Pieces that were predicted to be longer than the bound.", labels=labels
        )
        waited = CounterMetricFamily(
            "shoal_device_waited_seconds", "Time that best-effort launches waited.", labels=(*labels, "reason")
        )
        memory = GaugeMetricFamily("shoal_device_memory_bytes", "Device memory allocated.", labels=labels)
        for device, page in self._pages.items():
            for one in page.occupants():
                whose = (device, one.name, _word(one.cls.name))
                launches.add_metric(whose, one.launches)
                pieces.add_metric(whose, one.pieces)
                violations.add_metric(whose, one.violations)
                memory.add_metric(whose, one.memory_used)
                for verdict, ns in one.waited_ns.items():
                    waited.add_metric((*whose, _word(verdict.name.removeprefix("WAIT_"))), ns / 1e9)
        return (launches, pieces, violations, waited, memory)


def _row(one: Any) -> list[pages.Value]:
    return [
        one.name, one.pid, _word(one.cls.name), one.launches, one.pieces, one.violations, one.memory_used, one.waiting,
        sum(one.waited_ns.values()) / 1e9,
    ]  # fmt: skip


def _word(name: str) -> str:
    return name.lower().replace("_", "-")
