"""A real server tells when a real job finishes, and forgets jobs that left their place."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from shoal.cli import views
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.models import JobView
from shoal.contract.pages import Value
from shoal.contract.records import Event
from shoal.control.api.responses import job_view
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.control.plane_settings import PlaneSettings
from shoal.core import Estimate
from shoal.engine.local import LocalEngine
from shoal.extension import Server
from shoal.forecast.live.extension import Forecast, ForecastSection
from shoal.serve.live.extension import Serve
from shoal.store import open_store
from tests.core.test_light_import import modules_after

SCRIPT = """
import time
from shoal import train
for step in range(1, 100_000):
    time.sleep(0.02)
    train.report(step, total=100_000)
"""


def jobs_followed(forecast: Forecast) -> Value:
    """The number of jobs that its page tells."""
    page = forecast.page(None)
    assert page is not None
    return page.figures[0].value


async def test_a_running_job_is_told_when_it_finishes_and_a_cancelled_one_is_forgotten(tmp_path: Path) -> None:
    (script := tmp_path / "job.py").write_text(SCRIPT)
    (home := tmp_path / "home").mkdir()
    with contextlib.closing(open_store(f"sqlite:///{home}/shoal.db", tables=[Serve.tables])) as store:
        store.acquire("test")
        chosen = [Chosen(Forecast, ForecastSection(enabled=True))]
        plane = ControlPlane(store, LocalEngine(home), home, PlaneSettings(collect_every_s=0.05), extensions=chosen)
        await plane.open()
        try:
            await plane.put_tenant("ada", actor="admin")
            manifest = JobManifest.model_validate({"name": "long", "command": [sys.executable, str(script)]})
            job, _ = await plane.submit(manifest, tenant="ada", actor="ada")
            async with asyncio.timeout(60):
                while not (causes := (await plane.explain(job.id)).causes):
                    await asyncio.sleep(0.05)
            (cause,) = causes
            assert cause.cause == "finish"
            assert not cause.blocking
            assert "finishes in about" in cause.reason.text
            assert "steps of this job" in cause.reason.text
            facts = cause.reason.facts
            assert facts["finish_low"] < facts["finish_at"] < facts["finish_high"]
            # No step takes less than it sleeps.
            assert facts["finish_at"] - plane.clock.now() > 0.02 * 90_000
            # Admission plans with it, and clients see it with the job.
            kept = plane.job(job.id).progress["finish"]
            assert plane.snapshot().running[job.id].expected_end == kept["median"]
            assert kept["low"] < kept["median"] < kept["high"]
            shown = JobView.model_validate(job_view(plane.job(job.id)))
            assert "left" in views.progress(shown)
            assert "90% of all cases" in str(views.finish(shown))
            forecast = plane.extensions.get(Forecast)
            assert forecast is not None
            assert jobs_followed(forecast) == 1
            await plane.cancel(job.id, actor="ada")
            async with asyncio.timeout(60):
                while not plane.job(job.id).state.terminal:
                    await asyncio.sleep(0.05)
            assert jobs_followed(forecast) == 0
        finally:
            await plane.close()


FINISH = {"median": 150.0, "low": 130.0, "high": 160.0, "level": 0.9, "source": "measured"}


def test_the_time_left_is_an_interval_where_one_is_predicted() -> None:
    told = {"step": 40, "total": 100, "rate_per_s": 12.0, "eta_s": 5.0}
    plain = shown(JobState.RUNNING, told)
    assert views.progress(plain) == "40/100 12/s 5.0s left"
    assert views.finish(plain) is None
    soon = time.time() + 50
    near = {"median": soon, "low": soon - 20, "high": soon + 40, "level": 0.9, "source": "measured"}
    left = views.progress(shown(JobState.RUNNING, told, near))
    assert re.fullmatch(r"40/100 12/s (29|30)\.\ds to 1m(29|30)s left", left)
    assert views.finish_in(shown(JobState.RUNNING, told, FINISH), 140) == {"median": 10, "low": 0, "high": 20}
    assert views.finish_in(shown(JobState.SUSPENDED, told, FINISH), 140) is None


def shown(state: JobState, told: dict[str, float], finish: dict[str, object] | None = None) -> JobView:
    progress = told if finish is None else {**told, "finish": finish}
    return JobView.model_construct(state=state, progress=progress)


def test_off_it_imports_no_model_and_no_numerical_library() -> None:
    loaded = modules_after("import shoal.forecast.live.extension")
    assert "shoal.forecast.live.extension" in loaded
    assert {one for one in loaded if one.startswith("shoal.forecast.")} == {
        "shoal.forecast.live", "shoal.forecast.live.extension",
    }  # fmt: skip
    assert {one.partition(".")[0] for one in loaded} & {"numpy", "scipy", "torch"} == set()


def test_while_off_the_server_says_what_it_lacks() -> None:
    (found,) = Forecast.off()
    assert (found.available, found.consequence) == (
        False,
        "running jobs have no finish time, and none is told what holds it back",
    )


def _live(name: str) -> SimpleNamespace:
    return SimpleNamespace(
        job=SimpleNamespace(id=name, name=name, tenant="red", progress={}),
        attempt=SimpleNamespace(number=1, placement=[]),
    )


def followed(forecast: Forecast, name: str, steps: int, total: int) -> Estimate | None:
    """What is said after so many steps of a second each."""
    said = None
    for step in range(1, steps + 1):
        said = forecast.finish_at(name, {"reported_at": float(step), "step": step, "total": total})
    return said


def ended(name: str, at: float, state: JobState) -> Event:
    return Event(1, at, "job.state", "attempt-runner", "over", "ada", name, 1, "RUNNING", state, {})


def test_what_jobs_took_from_their_last_step_to_their_end_is_counted_in() -> None:
    forecast = Forecast(
        cast("Server", SimpleNamespace(active_jobs=list, job=_live, ask_all=lambda _: ())),
        ForecastSection(enabled=True),
    )
    first = followed(forecast, "a", 20, 20)
    assert first is not None
    assert first.median == 20.0
    forecast.committed([ended("a", 20.5, JobState.SUCCEEDED)])
    followed(forecast, "b", 20, 20)
    forecast.committed([ended("b", 29.0, JobState.CANCELLED)])
    followed(forecast, "c", 15, 20)
    forecast.committed([ended("c", 29.0, JobState.SUCCEEDED)])  # it left early: nobody knows when its last step was
    second = followed(forecast, "d", 10, 20)
    assert second is not None
    assert second.median == pytest.approx(20.5)
    assert jobs_followed(forecast) == 1
