"""A job's manifest may have a section for each extension of the server, which is checked before the job is stored."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from shoal.control.extensions.loaded import Chosen
from shoal.core import Invalid
from shoal.engine.simulated import Script
from shoal.extension import Extension, Section

from . import simulation
from .simulation import World, manifest, nodes

pytestmark = pytest.mark.virtual_time


class Hours(BaseModel):
    opens: int


class Curfew(Extension):
    name: ClassVar[str] = "curfew"
    manifest: ClassVar[type[BaseModel] | None] = Hours


class Silent(Extension):
    name: ClassVar[str] = "silent"


class On(Section):
    enabled: bool = True


@pytest.mark.parametrize(
    ("sections", "where", "problem"),
    [
        ({"curfw": {}}, "extensions.curfw", "there is no extension 'curfw'"),
        ({"silent": {}}, "extensions.silent", "there is no extension 'silent'"),
        ({"curfew": {"opens": "late"}}, "extensions.curfew.opens", "must be a whole number"),
    ],
)
async def test_a_section_that_no_extension_takes_is_refused_and_nothing_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, dict[str, object]], where: str, problem: str
) -> None:
    monkeypatch.setattr(simulation, "chosen", lambda **_: [Chosen(Curfew, On()), Chosen(Silent, On())])
    plane = await World.make(tmp_path, nodes(1, 1), lambda _: Script()).start()
    await plane.put_tenant("ada", actor="admin")
    right = manifest(extensions={"curfew": {"opens": 20}})
    assert await plane.check(right, tenant="ada") == []
    job, _ = await plane.submit(right, tenant="ada", actor="ada")
    assert '"extensions":{"curfew":{"opens":20}}' in job.manifest
    wrong = manifest(extensions=sections)
    with pytest.raises(Invalid, match=problem) as refused:
        await plane.check(wrong, tenant="ada")
    assert refused.value.where == where
    with pytest.raises(Invalid, match=problem):
        await plane.submit(wrong, tenant="ada", actor="ada")
    assert plane.status()["live"] == 1


def test_sections_in_any_order_are_the_same_manifest() -> None:
    one = manifest(extensions={"b": {"y": [{"d": 1, "c": 2}], "x": 1}, "a": {}})
    other = manifest(extensions={"a": {}, "b": {"x": 1, "y": [{"c": 2, "d": 1}]}})
    assert one.canonical_json() == other.canonical_json()
    assert one.fingerprint() == other.fingerprint()
