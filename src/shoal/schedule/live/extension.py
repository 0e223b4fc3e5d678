"""Scheduling by rounds as an extension of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import structlog
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from shoal.base.discover import find
from shoal.base.loops import Defects
from shoal.contract.pages import Page, Part
from shoal.core import Money
from shoal.extension import Decider, Extension, LiveJob, Section, Server
from shoal.schedule.live.page import bare_page, page_of, with_questions
from shoal.schedule.models import WhatIf

if TYPE_CHECKING:
    from fastapi import APIRouter

    from shoal.schedule.live.asking import LastQuestion
    from shoal.schedule.live.scheduler import Scheduler
    from shoal.schedule.presets import ScheduleSettings

_NOT_LIVE = frozenset({"allox"})
"""It fails on any job of several accelerators, so that one tenant's gang would stop the policy for all."""

NONE = "none"


def _policy(name: str) -> str:
    if name == NONE:
        return name
    # Only with a policy are the numerical libraries imported.
    from shoal.schedule import POLICIES

    known = [one for one in POLICIES if one not in _NOT_LIVE]
    if name not in known:
        raise ValueError(f"must be {NONE} or one of {', '.join(known)}, not {name!r}")
    return name


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _prices(value: Any) -> Any:
    """`a100=2.48,k80=0.9`, or a mapping in the settings file."""
    if not isinstance(value, str):
        return value
    parts = [part.partition("=") for part in value.split(",") if part.strip()]
    if not all(equals and name.strip() for name, equals, _ in parts):
        raise ValueError(f"must be TYPE=DOLLARS,..., not {value!r}")
    return {name.strip(): amount.strip().removeprefix("$") for name, _, amount in parts}


Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ScheduleSection(Section):
    """Which policy decides, every round, which best-effort job runs on which accelerator type."""

    enabled: bool = True
    policy: Annotated[str, BeforeValidator(_lower), AfterValidator(_policy)] = Field(
        NONE, description="which policy decides; none: admission alone"
    )
    agnostic: bool = Field(False, description="take all accelerator types for equal")
    round_s: float = Field(60.0, gt=0, allow_inf_nan=False, description="seconds of a round")
    restart_cost_s: float = Field(
        30.0, ge=0, allow_inf_nan=False, description="seconds that a job loses by being moved"
    )
    prices: Annotated[dict[str, Dollars], BeforeValidator(_prices)] = Field(
        default_factory=dict, description="dollars an hour of one accelerator, by type: a100=2.48,k80=0.9"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.agnostic and self.policy != NONE:
            from shoal.schedule import POLICIES

            if "agnostic" not in POLICIES[self.policy].settings:
                have = ", ".join(one.name for one in POLICIES.values() if "agnostic" in one.settings)
                raise ValueError(f"{self.policy} has no agnostic form; these have: {have}")
        if self.policy == "min-cost" and not self.prices:
            raise ValueError("min-cost needs the price of each accelerator type: prices, such as a100=2.48,k80=0.9")
        return self

    def rounds(self) -> ScheduleSettings:
        from shoal.schedule.presets import ScheduleSettings

        prices = tuple(sorted((kind, Money.usd(amount)) for kind, amount in self.prices.items()))
        return ScheduleSettings(self.policy, self.agnostic, self.round_s, self.restart_cost_s, prices)


class Schedule(Extension):
    """A policy of `shoal.schedule` decides who runs on which accelerator type, anew every round."""

    name: ClassVar[str] = "schedule"
    paths: ClassVar[Sequence[str]] = ("/v1/schedule",)
    settings: ClassVar[type[Section]] = ScheduleSection

    def __init__(self, server: Server, settings: ScheduleSection) -> None:
        self._server = server
        self._settings = settings
        self._asked: LastQuestion | None = None
        self._asking = asyncio.Lock()
        self.scheduler: Scheduler | None = None
        if settings.policy != NONE:
            from shoal.schedule.live.facts import KnownSpeeds, SpeedsBySize
            from shoal.schedule.live.scheduler import Scheduler

            file = server.home / "schedule.json"
            defect = Defects(structlog.get_logger("shoal.scheduling")).note
            prior = SpeedsBySize(KnownSpeeds(server))
            self.scheduler = Scheduler(
                settings.rounds(), server.job, file, prior=prior, made=server.wake, defect=defect
            )

    def decider(self) -> Decider | None:
        return self.scheduler

    def counts_waiting(self) -> bool:
        return self.scheduler is not None

    def decided(self) -> None:
        if self.scheduler is not None:
            self.scheduler.keep()

    def reported(self, job: LiveJob) -> None:
        if self.scheduler is not None:
            self.scheduler.reported(job)

    def page(self, tenant: str | None) -> Page | None:
        """Prices name no tenant. Only an admin asks other policies, for they see all tenants' jobs."""
        if self.scheduler is None and tenant is not None:
            return None
        page = bare_page() if self.scheduler is None else page_of(self.scheduler)
        if tenant is not None:
            return page
        shown: list[Part] = []
        if self._asked is not None:
            from shoal.schedule.live.asking import table_of

            shown.append(table_of(self._asked))
        return with_questions(page, self._settings.policy, self._known(), shown)

    def routers(self) -> Sequence[APIRouter]:
        from shoal.schedule.live.api import router_of

        return (router_of(self.snapshot, self.what_if, self._known),)

    def _known(self) -> Sequence[str]:
        """The policies that can be asked, by the names that are declared: none is imported for that."""
        return [
            one for one in find("policies") if one not in _NOT_LIVE and (one != "min-cost" or self._settings.prices)
        ]

    async def what_if(self, policy: str) -> WhatIf:
        """What this policy would do now: one question at a time, in a thread."""
        async with self._asking:
            lines = await self.snapshot()
            from shoal.schedule.live.asking import LastQuestion, ask

            settings = replace(self._settings.rounds(), policy=policy, agnostic=False)
            found = await asyncio.to_thread(ask, lines, settings)
            self._asked = LastQuestion(self._server.clock.now(), found)
            return found

    async def snapshot(self) -> list[str]:
        """The live state as lines that `shoal schedule` reads: for asking what another policy would decide."""
        snapshot = self._server.snapshot()
        if self.scheduler is not None:
            return await self.scheduler.lines(snapshot)
        from shoal.schedule.live.explaining import live_lines
        from shoal.schedule.live.problem import facts_by_id
        from shoal.schedule.oracle import Oracle
        from shoal.schedule.presets import ScheduleSettings

        # Nothing was measured, and all speeds are guesses.
        facts = facts_by_id(snapshot, self._server.job)
        return await asyncio.to_thread(live_lines, snapshot, facts, Oracle(), ScheduleSettings(NONE))
