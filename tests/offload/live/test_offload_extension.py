"""Jobs that ask for it are captured, with the cores that they were given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shoal.engine import Gang, RankSpec
from shoal.offload.launch import HOOK
from shoal.offload.live.extension import Offload, OffloadJob, OffloadSection
from shoal.offload.settings import read_settings


@dataclass
class _Manifest:
    extensions: dict[str, Any]


@dataclass
class _Record:
    id: str = "j-1"
    progress: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Job:
    manifest: _Manifest = field(default_factory=lambda: _Manifest({}))
    job: _Record = field(default_factory=_Record)


def prepared(section: Any, **changes: Any) -> Gang:
    extension = Offload(None, OffloadSection(threshold=1000))  # type: ignore[arg-type]
    gang = Gang("g", ("python", "train.py"), (RankSpec(0, "n"),), Path("/run"), **changes)
    job = _Job(_Manifest({} if section is None else {"offload": section}))
    return extension.prepare(job, gang)  # type: ignore[arg-type]


def test_a_job_that_asks_gets_the_hook_and_its_limits() -> None:
    gang = prepared({"enabled": True}, cpu_milli=3500, env={"PYTHONPATH": "/own", "A": "b"})
    assert gang.env["PYTHONPATH"] == f"{HOOK}:/own"
    assert gang.env["A"] == "b"
    settings = read_settings(gang.env)
    assert (settings.threads, settings.threshold) == (3, 1000)
    assert settings.summary
    assert not settings.strict
    assert (HOOK / "sitecustomize.py").exists()


@pytest.mark.parametrize("section", [None, {"enabled": False}])
def test_other_jobs_are_left_alone(section: Any) -> None:
    assert prepared(section).env == {}


def test_unlimited_cores_are_not_named() -> None:
    settings = read_settings(prepared({"strict": True}).env)
    assert settings.threads == 0
    assert settings.strict


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(ValidationError):
        OffloadJob.model_validate({"on": True})


def test_what_is_lost_while_it_is_off() -> None:
    (found,) = Offload.off()
    assert "plain libraries" in found.consequence
    assert all(each.name.startswith("offload: ") for each in Offload.probe(Path("/")))


async def test_a_running_job_is_explained_by_its_calls() -> None:
    extension = Offload(None, OffloadSection())  # type: ignore[arg-type]
    assert await extension.explain(None, _Job()) == ()  # type: ignore[arg-type]
    metrics = {"offload/calls/compiled": 3.0, "offload/seconds/compiled": 1.5, "offload/saved_s": 2.0}
    job = _Job(job=_Record(progress={"metrics": metrics}))
    (found,) = await extension.explain(None, job)  # type: ignore[arg-type]
    assert not found.blocking
    assert found.reason.text == "its calls so far: 3 calls in compiled 1.50 s, about 2.00 s saved"
    assert found.change == "`shoal offload report j-1`"
