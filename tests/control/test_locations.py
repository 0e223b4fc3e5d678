"""No local path of a manifest may lie in the server's home."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.control.home.locations import require_outside
from shoal.core import Invalid
from tests.control.simulation import manifest


@pytest.mark.parametrize(
    "location",
    ["{home}/checkpoints/j-green", "{home}/checkpoints/", "{home}", "{home}/", "{base}/other/../home/runs",
     "{base}/link/checkpoints", "file://{home}/checkpoints", "simplecache::file://{home}",
     "local://{home}/x", "zip://x::{home}/shoal.db", "zip://x::file:{home}/shoal.db", "simplecache::local:///{home}",
     "zip://x::file://{home}/a::s3://bucket/b"],
)  # fmt: skip
def test_a_place_in_the_home_is_refused(tmp_path: Path, location: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    place = location.format(home=home, base=tmp_path)
    wrong = {
        "checkpoint.directory": {"checkpoint": {"directory": place}},
        "inputs[0].from": {"inputs": [{"from": place, "to": "data"}]},
        "outputs[0].to": {"outputs": [{"from": "data", "to": place}]},
    }
    for where, fields in wrong.items():
        with pytest.raises(Invalid, match="lies in the server's home") as refused:
            require_outside(manifest(**fields), home)
        assert refused.value.where == where
        assert refused.value.hint


@pytest.mark.parametrize(
    "location", ["{base}/data", "{base}/homely", "s3://bucket/home", "file:///elsewhere", "zip://x::{base}/home.zip"]
)
def test_another_place_is_not(tmp_path: Path, location: str) -> None:
    home, place = tmp_path / "home", location.format(base=tmp_path)
    made = manifest(checkpoint={"directory": place}, inputs=[{"from": place, "to": "in"}])
    require_outside(made, home)
