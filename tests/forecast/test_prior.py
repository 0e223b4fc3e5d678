"""Speeds that the server's scheduler takes from forecasts, for kinds of jobs that ran nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal.contract.lifecycle import JobState
from shoal.core import Invalid, Speeds
from shoal.extension import LiveJob, Server
from shoal.forecast import Features, StepTime
from shoal.forecast.live.extension import Forecast, ForecastSection
from shoal.schedule.live.facts import SpeedsBySize

MEASURED = {
    kind: {f"m{n}": (Features(1e9 * n, 1e6 * n, 50.0), [factor * n / 10]) for n in range(1, 6)}
    for kind, factor in (("k80", 1.0), ("p100", 0.25))
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (path := tmp_path / "speed.json").write_text(json.dumps(StepTime.fit(MEASURED).as_json()))
    return path


def live(job_id: str, name: str, labels: dict[str, str], section: dict[str, Any]) -> LiveJob:
    manifest = SimpleNamespace(labels=labels, extensions={"forecast": section} if section else {})
    job = SimpleNamespace(id=job_id, tenant="t", name=name, state=JobState.QUEUED)
    return cast("LiveJob", SimpleNamespace(job=job, manifest=manifest, attempt=None))


def extension(file: Path | str, *jobs: LiveJob) -> Forecast:
    found = Forecast(cast("Server", SimpleNamespace()), ForecastSection(enabled=True, speeds=str(file)))
    for one in jobs:
        found.moved(one)
    return found


SECTION = {"flops": 3e9, "parameters": 3e6, "tensors": 50.0}


def test_a_job_that_says_what_its_model_is_made_of_has_a_speed_on_each_kind(file: Path) -> None:
    forecast = extension(file, live("1", "mine", {"kind": "net"}, SECTION), live("2", "other", {}, {}))
    found = forecast.steps_per_s("t/net", "p100", 1)
    assert found is not None
    assert found.median == pytest.approx(1 / 0.075, rel=0.1)
    assert found.low < found.median < found.high
    assert forecast.steps_per_s("t/net", "nowhere", 1) is None
    assert forecast.steps_per_s("t/net", "p100", 2) is None, "nothing is known of gangs"
    assert forecast.steps_per_s("t/other", "p100", 1) is None
    assert forecast.steps_per_s("another/net", "p100", 1) is None


def test_without_a_file_nothing_is_forecast() -> None:
    assert extension("", live("1", "net", {}, SECTION)).steps_per_s("t/net", "p100", 1) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": "lifetimes", "version": 1}'])
def test_a_file_that_is_no_speed_model_is_named(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "wrong.json").write_text(text)
    with pytest.raises(Invalid, match=r"wrong\.json|speed model|expected the model"):
        extension(path)
    with pytest.raises(Invalid, match="no fitted speed model"):
        extension(tmp_path / "absent.json")


def test_the_scheduler_asks_for_kinds_with_their_sizes() -> None:
    asked = []

    class Asked:
        def steps_per_s(self, job: str, kind: str, workers: int = 1) -> None:
            asked.append((job, kind, workers))

    speeds: Speeds = SpeedsBySize(cast("Speeds", Asked()))
    assert speeds.steps_per_s("t/a x b x8", "p100") is None
    assert asked == [("t/a x b", "p100", 8)]
