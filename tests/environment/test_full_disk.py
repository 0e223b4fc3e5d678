"""A disk that is full at whatever point of making an environment: nothing is left, and with room it is made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .kit import busybox, layer, member, needs_images, needs_uv, write_image
from .test_jobs import LOCK, PROJECT, write_wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs to mount a small disk"),
]
ROOM = """
mount -t tmpfs -o size=$1k disk "$2" || exit 99
mkdir "$2/tenant" && cp -r "$3/." "$2/tenant" || exit 98
cd "$2/tenant" && "$4" -m shoal.environment.making "$5" "$6"
code=$?
echo "left: $(cd "$2/tenant" && find . -mindepth 2 | wc -l)"
mount -o remount,size=256m "$2"
cp -r "$3/." "$2/tenant"
"$4" -m shoal.environment.making "$5" "$6"
echo "then: $?"
exit $code
"""
SIZES = [0, 40, 600, 1400, 2400, 2800, 4200, 20_000]


def make(place: Path, before: Path, kib: int, kind: str, told: dict[str, Any]) -> tuple[int, str]:
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ROOM, "sh", str(kib + 16), str(place)]
    words += [str(before), sys.executable, kind, json.dumps(told)]
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(place)}
    done = subprocess.run(words, env=env, cwd=Path.cwd(), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@needs_images
def test_an_image_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    place, before = tmp_path / "disk", tmp_path / "before"
    place.mkdir()
    before.mkdir()
    many = [member(f"file-{number}", b"x" * 3000, mode=0o644) for number in range(200)]
    key = write_image(tmp_path / "image", [layer(busybox()), layer(many)])
    told = {
        "source": f"oci:{tmp_path}/image", "pinned": None, "digest": None, "known": [], "insecure": False,
        "timeout_s": 60, "most_bytes": 1 << 30, "most_files": 10_000, "home": "/srv/shoal",
    }  # fmt: skip
    codes = []
    for kib in SIZES:
        code, said = make(place, before, kib, "image", told)
        codes.append(code)
        assert code in (0, 75), (kib, said)
        assert "then: 0" in said, (kib, said)
        assert key in said.rpartition("then:")[0], said
        if code:
            assert "no space left" in said, (kib, said)
            assert "left: 0" in said, (kib, said)
    assert codes == sorted(codes, reverse=True)
    assert {codes[0], codes[-1]} == {75, 0}


@needs_uv
def test_an_environment_of_a_lock_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    place, before, key = tmp_path / "disk", tmp_path / "before", "0" * 32
    place.mkdir()
    source = before / "builds" / key
    source.mkdir(parents=True)
    write_wheel(tmp_path / "wheels")
    (source / "pyproject.toml").write_text(PROJECT.format(version=0))
    (source / "uv.lock").write_text(LOCK.format(wheels=tmp_path / "wheels"))
    told = {"key": key, "options": [], "limit_bytes": 1 << 30, "env": {"UV_OFFLINE": "1"}}
    codes = []
    for kib in (0, 16, 32, 60, 200, 20_000):
        code, said = make(place, before, 16 + kib, "uv", told)
        codes.append(code)
        assert code in (0, 75), (kib, said)
        assert "then: 0" in said, (kib, said)
        if code:
            assert "no space left" in said, (kib, said)
    assert {codes[0], codes[-1]} == {75, 0}
