"""A hint installs from where Shoal came."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shoal.base import extras


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ({"url": "file:///src/my%20shoal", "dir_info": {"editable": True}}, "-e '/src/my shoal[aws]'"),
        ({"url": "file:///src/shoal", "dir_info": {}}, "'/src/shoal[aws]'"),
        ({"url": "file:///wheels/shoal-0.1.0.whl", "archive_info": {}}, "'shoal[aws]'"),
        (None, "'shoal[aws]'"),
    ],
)
def test_the_command_takes_the_source_that_was_taken_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: object, words: str
) -> None:
    info = tmp_path / "shoal-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shoal\nVersion: 9\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert extras.install("aws") == f"{sys.executable} -m pip install {words}"


def test_without_metadata_the_index_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert extras.install("serve").endswith("install 'shoal[serve]'")
