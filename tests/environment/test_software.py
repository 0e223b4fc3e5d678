"""The options of `shoal run` for the software of a command line."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.software import SoftwareOptions, pinned
from shoal.core import Invalid

from .kit import write_image

FOLDER = Path("/work")


def made(options: SoftwareOptions, *, reads: bool = False, path: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"command": ["sh", "-c", "cd", "x"], "env": {"PATH": "/bin"}}
    options.add_to(found, ["x"], FOLDER, reads=reads, path=path)
    return found


def test_each_option_is_a_section_of_the_manifest(tmp_path: Path) -> None:
    assert made(SoftwareOptions(venv=Path("/v")))["environment"] == {"venv": "/v"}
    assert made(SoftwareOptions(venv=Path("v")))["environment"] == {"venv": str(Path.cwd() / "v")}
    assert made(SoftwareOptions(conda="train"))["environment"] == {"conda": "train"}
    assert made(SoftwareOptions(conda="./train"))["environment"] == {"conda": str(Path.cwd() / "train")}
    assert made(SoftwareOptions(uv=tmp_path))["environment"] == {"uv": "uv.lock"}
    assert "environment" not in made(SoftwareOptions())
    with pytest.raises(Invalid, match="--venv and --image say different things"):
        made(SoftwareOptions(venv=Path("v"), image="oci:/a"))


def test_a_command_line_in_an_image_starts_where_it_was_typed_without_a_shell() -> None:
    found = made(SoftwareOptions(image="ghcr.io/a"))
    where = {"mounts": ["/work"], "workdir": "/work"}
    assert found == {"command": ["x"], "env": {}, "environment": {"image": "ghcr.io/a", **where}}
    found = made(SoftwareOptions(image="ghcr.io/a"), reads=True, path=True)
    assert found["command"][0] == "sh"
    assert found["env"] == {"PATH": "/bin"}
    assert found["environment"] == {"image": "ghcr.io/a", "mounts": ["/work"]}


def test_a_lock_file_is_sent_with_its_project(tmp_path: Path) -> None:
    for name in ("uv.lock", "pyproject.toml", ".python-version", "train.py"):
        (tmp_path / name).write_text(name)
    for given in (tmp_path, tmp_path / "uv.lock"):
        data = SoftwareOptions(uv=given).files()
        assert data is not None
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            assert sorted(archive.getnames()) == [".python-version", "pyproject.toml", "uv.lock"]
    assert SoftwareOptions().files() is None
    with pytest.raises(Invalid, match=r"is no uv\.lock"):
        SoftwareOptions(uv=tmp_path / "train.py").files()


def test_an_image_of_this_machine_is_pinned(tmp_path: Path) -> None:
    digest = write_image(tmp_path / "image", [], tag="v1")
    path = tmp_path / "image"
    assert pinned(f"oci:{path}") == f"oci:{path}@sha256:{digest}"
    assert pinned(f"oci:{path}:v1") == f"oci:{path}:v1@sha256:{digest}"
    assert pinned(f"oci:{path}:v2") == f"oci:{path}:v2"
    assert pinned(f"oci:{path}@sha256:{'0' * 64}") == f"oci:{path}@sha256:{'0' * 64}"
    assert pinned("oci:nowhere") == f"oci:{Path.cwd() / 'nowhere'}"
    assert pinned("docker-archive:a.tar") == f"docker-archive:{Path.cwd() / 'a.tar'}"
    (path / "index.json").write_text("[]")
    assert pinned(f"oci:{path}") == f"oci:{path}"
    assert pinned("ghcr.io/team/a:v1") == "ghcr.io/team/a:v1"
