"""`shoal ls` and `shoal download`: results come back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.cli.conftest import Shell

Write = Callable[..., str]
CODE = """
import os
os.makedirs('out/deep')
open('out/deep/model', 'wb').write(b'0123456789' * 1_000_000)
open('out/report', 'w').write('fine')
os.symlink('/etc/passwd', 'out/link')
open('scratch', 'w').write('scratch')
"""


def test_outputs_are_kept_listed_and_brought_here(shell: Shell, manifest: Write, tmp_path: Path) -> None:
    job = shell.json("run", manifest(CODE, "results", outputs=["out"]))["id"]
    assert {one["path"]: one["kept"] for one in shell.json("ls", job)["files"]} == {"out": True, "scratch": False}
    listing = shell("ls", "-r", job).stdout
    assert "out/deep/model" in listing
    assert "9.5 MiB" in listing
    assert "link" in listing
    assert f"outputs    2 files, 9.5 MiB (`shoal download {job}`)\n" in shell("show", job).stdout
    here = tmp_path / "here"
    done = shell.json("download", job, "--to", str(here))["files"]
    model = (here / "out" / "deep" / "model").read_bytes()
    assert model == b"0123456789" * 1_000_000
    assert {one["path"]: one["sha256"] for one in done}["out/deep/model"] == hashlib.sha256(model).hexdigest()
    names = sorted(path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file())
    assert names == ["out/deep/model", "out/report", "scratch"]
    one = tmp_path / "one"
    assert shell("download", "results", "out/report", "--to", str(one)).stdout == f"{one}/report  4 B\n"
    assert (one / "report").read_text() == "fine"
    shell("download", job, "out/deep", "--to", str(one))
    assert (one / "model").read_bytes() == model
    (one / "report").unlink()
    (one / "report").mkdir()
    assert "there is a directory of this name" in shell("download", job, "out/report", "--to", str(one), code=1).stderr


def test_what_is_not_there_or_no_file_is_told(shell: Shell, manifest: Write, tmp_path: Path) -> None:
    job = shell.json("run", manifest(CODE, "asked"))["id"]
    for path, code, text in (
        ("none", 3, "has no file 'none'"), ("out/link", 2, "is no regular file"),
        ("out/link/x", 3, "has no file"), ("../x", 2, "leads out"),
    ):  # fmt: skip
        assert text in shell("download", job, path, "--to", str(tmp_path), code=code).stderr
    assert "has no file" in shell("ls", job, "none", code=3).stderr
    bad = shell("run", manifest("pass", "forgot", outputs=["model.bin"]), code=1).stderr
    assert "outputs could not be kept: model.bin: No such file or directory" in bad
    assert "what to do  check `outputs`" in shell("explain", "forgot").stdout


def test_another_tenant_sees_none_of_it(shell: Shell, manifest: Write) -> None:
    job = shell.json("run", manifest(CODE, "mine", outputs=["out"]))["id"]
    shell("tenant", "create", "nosy")
    env = {"SHOAL_TOKEN": shell("tenant", "token", "nosy").stdout.strip()}
    url = json.loads((shell.home / "server.json").read_text())["url"]
    env["SHOAL_URL"] = url
    for words in (("ls", job), ("download", job, "out/report")):
        assert f"there is no job '{job}'" in shell(*words, "--url", url, env=env, code=3).stderr
    headers = {"authorization": f"Bearer {env['SHOAL_TOKEN']}"}
    for path in ("files", "file?path=out/report"):
        assert httpx.get(f"{url}/v1/jobs/{job}/{path}", headers=headers).status_code == 404
        assert httpx.get(f"{url}/v1/jobs/{job}/{path}").status_code == 401
    own = {"authorization": f"Bearer {(shell.home / 'admin.token').read_text().strip()}"}
    whole = httpx.get(f"{url}/v1/jobs/{job}/file", params={"path": "out/deep/model", "offset": 5}, headers=own)
    assert (whole.headers["content-length"], whole.content[:6]) == ("9999995", b"567890")
    assert len(whole.content) == 9_999_995
