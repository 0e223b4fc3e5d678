"""Files of jobs: listed, read and kept, whatever their owner puts there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from shoal.contract.lifecycle import ErrorCode, JobState
from shoal.control.attempts import results
from shoal.control.attempts.phases import Layout
from shoal.control.attempts.results import NotKept, Results
from shoal.core import Conflict, Invalid, NotFound

from .simulation import World
from .test_plane import ended, play, submit


class Job:
    id = "j-1"
    attempt = 2


JOB: Any = Job()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "runs" / "j-1" / "2"
    (made / "out" / "deep").mkdir(parents=True)
    (made / "log").write_text("log")
    (made / "out" / "deep" / "model").write_bytes(b"0123456789")
    (made / "out" / "link").symlink_to("/etc/passwd")
    (tmp_path / "secret").write_text("secret")
    (made / "up").symlink_to(tmp_path)
    os.mkfifo(made / "pipe")
    return made


@pytest.fixture
def files(tmp_path: Path, run_dir: Path) -> Results:
    return Results(Layout(tmp_path / "home"))


def paths(files: Results, path: str = "", **options: Any) -> list[str]:
    return [one.path for one in files.entries(JOB, path, **options)[0]]


def test_a_directory_is_listed_and_what_lies_below_it(files: Results) -> None:
    assert paths(files) == ["log", "out", "pipe", "up"]
    everything = ["log", "out", "out/deep", "out/deep/model", "out/link", "pipe", "up"]
    assert paths(files, recursive=True) == everything
    assert paths(files, "out", recursive=True) == ["out/deep", "out/deep/model", "out/link"]
    assert paths(files, "./out//deep/model") == ["out/deep/model"]
    kinds = {one.path: (one.kind.value, one.size_bytes, one.kept) for one in files.entries(JOB, recursive=True)[0]}
    assert kinds["out/deep/model"] == ("file", 10, False)
    assert kinds["up"] == ("link", 0, False)
    assert kinds["pipe"] == ("other", 0, False)
    assert kinds["out"][0] == "directory"


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_a_listing_goes_on_where_it_ended(files: Results, limit: int) -> None:
    found: list[str] = []
    after = None
    while True:
        page, after = files.entries(JOB, recursive=True, after=after, limit=limit)
        found += [one.path for one in page]
        assert len(page) <= limit
        if after is None:
            break
    assert found == paths(files, recursive=True)


@pytest.mark.parametrize(
    "path", ["up/secret", "up", "out/link", "none", "log/x", "../1", "/etc/passwd", "out", "pipe", ""]
)
def test_nothing_but_its_own_regular_files_is_read(files: Results, path: str) -> None:
    with pytest.raises((NotFound, Invalid)):
        files.read(JOB, path)


@pytest.mark.parametrize("at", ["runs/j-1/2", "runs/j-1", "runs"])
def test_no_directory_above_may_be_swapped_for_a_link(files: Results, run_dir: Path, tmp_path: Path, at: str) -> None:
    place, other = tmp_path / "home" / at, tmp_path / "other"
    (other / "j-1" / "2").mkdir(parents=True)
    (other / "j-1" / "2" / "log").write_text("theirs")
    place.rename(tmp_path / "gone")
    place.symlink_to(other / Path(at).relative_to("runs"))
    with pytest.raises(NotFound):
        files.read(JOB, "log")
    with pytest.raises(NotFound):
        files.entries(JOB)


def test_bytes_come_with_size_digest_and_version(files: Results, run_dir: Path) -> None:
    piece = files.read(JOB, "out/deep/model", offset=2, limit=3)
    assert (piece.data, piece.size_bytes) == (b"234", 10)
    assert piece.sha256 == hashlib.sha256(b"234").hexdigest()
    assert files.read(JOB, "out/deep/model", offset=8, limit=9, version=piece.version).data == b"89"
    assert files.read(JOB, "out/deep/model", offset=10).data == b""
    (run_dir / "out" / "deep" / "model").write_bytes(b"other")
    with pytest.raises(Conflict, match="has changed"):
        files.read(JOB, "out/deep/model", version=piece.version)
    with pytest.raises(NotFound, match="has no attempt 3"):
        files.read(JOB, "log", attempt=3)
    with pytest.raises(NotFound, match="no file"):
        files.read(JOB, "log", attempt=1)


def test_another_name_of_a_file_of_another_user_is_not_read(files: Results, run_dir: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root has files of several users")
    os.chown(run_dir, 12345, 12345)
    for path in (run_dir / "log", run_dir / "out" / "deep" / "model"):
        os.chown(path, 12345, 12345)
    (run_dir / "stolen").hardlink_to(tmp_path / "secret")
    (run_dir / "own").hardlink_to(run_dir / "log")
    assert files.read(JOB, "own").data == b"log"
    with pytest.raises(Invalid, match="not the job's"):
        files.read(JOB, "stolen")
    with pytest.raises(NotKept, match="stolen"):
        files.keep("j-1", 2, ["stolen"])
    files.keep("j-1", 2, ["own", "."])
    assert files.read(JOB, "own").data == b"log"
    assert "stolen" not in [one.path for one in files.entries(JOB)[0] if one.kept]


def test_what_is_kept_outlives_the_run_directory(files: Results, run_dir: Path) -> None:
    for _ in range(2):  # a server that died in between does it again
        files.keep("j-1", 2, ["out", "log"])
    kept = {one.path for one in files.entries(JOB, recursive=True)[0] if one.kept}
    assert kept == {"log", "out", "out/deep", "out/deep/model"}
    for path in sorted(run_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    run_dir.rmdir()
    assert set(paths(files, recursive=True)) == kept
    assert files.read(JOB, "out/deep/model").data == b"0123456789"
    with pytest.raises(NotFound):
        files.read(JOB, "log", attempt=2)


@pytest.mark.parametrize("output", ["none", "out/link", "up", "pipe", "up/secret"])
def test_an_output_that_is_missing_or_no_file_is_not_kept(files: Results, output: str) -> None:
    with pytest.raises(NotKept, match=output):
        files.keep("j-1", 2, [output])


def test_strange_trees_are_bounded(files: Results, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = os.open(run_dir, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    (run_dir / os.fsdecode(b"\xff")).touch()
    assert paths(files, recursive=True).count("/".join(["d"] * 64)) == 1
    assert max(path.count("/") for path in paths(files, recursive=True)) < 70
    files.keep("j-1", 2, ["d", "."])
    monkeypatch.setattr(results, "_MOST", 5)
    with pytest.raises(Invalid, match="more than 5 files"):
        files.entries(JOB, recursive=True)
    assert paths(files, "out") == ["out/deep", "out/link"]


def test_a_finished_job_keeps_its_outputs_and_one_without_them_fails(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        good = await submit(world, "good", outputs=["model", {"from": "c", "to": "/d"}])
        bad = await submit(world, "bad", outputs=["nothing"])
        folder = tmp_path / "runs" / good / "1"
        folder.mkdir(parents=True)
        (folder / "model").write_text("weights")
        (tmp_path / "runs" / bad / "1").mkdir(parents=True)
        await ended(world, good)
        await ended(world, bad)
        assert plane.job(good).state is JobState.SUCCEEDED
        assert (await plane.file(good, "model")).data == b"weights"
        found, _ = await plane.files(good, "")
        assert [(one.path, one.kept) for one in found] == [("model", True)]
        assert plane.job(bad).error_code is ErrorCode.OUTPUT
        assert "outputs could not be kept: nothing: No such file or directory" in plane.job(bad).message

    play(tmp_path, scene)
