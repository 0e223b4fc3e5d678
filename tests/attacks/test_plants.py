"""What a job leaves behind for the server to read, to keep and to remove: it gives nothing away, holds nothing up, and
what it leads to stays."""

from __future__ import annotations

import os
import urllib.parse
from pathlib import Path

import httpx
import pytest

from shoal.contract.lifecycle import JobState
from shoal.core import Sandbox
from tests.session.talk import eventually

from .world import LEVELS, World, member, missing, processes_of

pytestmark = [
    pytest.mark.cold,
    pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root"),
]

KINDS = ("links", "folder links", "pipes", "doors", "junk", "folders")
OWN = ("result", "model", "latest", "up/admin.token", "home/admin.token", "home/secret.key", "self/environ", "loop")
OTHER = ("zero", "closed/x", "result/kept", "../../../../admin.token", "..", "deep/" * 200 + "x", "home", "up")


def words_of(place: World, kind: str, bystander: Path) -> tuple[str, ...]:
    return (kind, str(place.outside / "of-root" / "canary"), str(bystander), str(place.home.path))


@pytest.mark.few
@pytest.mark.parametrize("level", LEVELS)
def test_what_a_job_leaves_gives_nothing_away_and_holds_nothing_up(
    place: World, tmp_path: Path, level: Sandbox
) -> None:
    if why := missing(place.home.path, level):
        pytest.skip(why)
    bystander = place.outside / "of-root" / "bystander"
    bystander.mkdir(exist_ok=True)
    (bystander / "kept").write_text("of root, kept")
    secrets = [
        b"of root",
        place.home.token_file.read_bytes().strip(),
        (place.home.path / "secret.key").read_bytes().strip(),
    ]
    tenant_client = member(place, f"red-{level}")
    token = tenant_client.locate().token
    with (
        tenant_client as client,
        httpx.Client(base_url=client.locate().url, headers={"Authorization": f"Bearer {token}"}, timeout=20) as raw,
    ):
        jobs = {}
        for kind in KINDS:
            words = words_of(place, kind, bystander)
            jobs[kind] = place.start(client, "plants.py", *words, name=kind.replace(" ", "-"), grace=0.3)
        uids = set()
        for job in jobs.values():
            eventually(lambda: client.job(job).state.terminal or b"planted" in client.log_piece(job).data)
            assert client.job(job).state is JobState.RUNNING, client.log_piece(job).data
            uids.add((place.home.path / "runs" / job / "1").stat().st_uid)

        def look() -> None:
            for job in jobs.values():
                asked = [f"/v1/jobs/{job}/files?recursive=true", f"/v1/jobs/{job}/metrics", f"/v1/jobs/{job}/logs",
                         f"/v1/jobs/{job}/explain", f"/v1/jobs/{job}"]  # fmt: skip
                for path in (*OWN, *OTHER):
                    quoted = urllib.parse.quote(path, safe="")
                    asked += [f"/v1/jobs/{job}/file?path={quoted}&limit=4096", f"/v1/jobs/{job}/files?path={quoted}"]
                for url in asked:
                    answer = raw.get(url)
                    assert answer.status_code < 500, (url, answer.text)
                    assert not any(secret in answer.content for secret in secrets), url
                for name in ("main", "x"):
                    answer = raw.post(
                        f"/v1/jobs/{job}/sessions/{name}/attach",
                        headers={"Connection": "upgrade", "Upgrade": "shoal-session"},
                    )
                    assert answer.status_code in (404, 409), answer.text
            assert raw.get("/v1/status").status_code == 200

        look()
        for job in jobs.values():
            client.cancel(job)
        for job in jobs.values():
            eventually(lambda: client.job(job).state.terminal)
            assert client.job(job).state is JobState.CANCELLED
        (uid,) = uids
        eventually(lambda: processes_of(uid) == [])
        ended = {
            kind: place.start(
                client, "plants.py", *words_of(place, kind, bystander), "ends", name=kind.replace(" ", "-"),
                outputs=[{"from": "result"}, {"from": "self"}, {"from": "home"}],
            )
            for kind in KINDS
        }  # fmt: skip
        for job in ended.values():
            eventually(lambda: client.job(job).state.terminal)
        jobs = ended
        look()
    kept = [path for path in (place.home.path / "artifacts").rglob("*") if path.is_file() and not path.is_symlink()]
    assert not any(secret in path.open("rb").read(1 << 16) for path in kept for secret in secrets)
    place.admin.collect_garbage()
    assert (bystander / "kept").read_text() == "of root, kept"
    assert (place.outside / "of-root" / "canary").read_text() == "of root"
    log = place.home.log_file.read_text(errors="replace")
    assert "Traceback" not in log, log[-3000:]
    assert "\x1b" not in log
