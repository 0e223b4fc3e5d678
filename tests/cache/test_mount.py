"""A data set as a directory, for programs that know nothing of the cache."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cache.door.filesystem import ShoalFileSystem
from shoal.cache.door.mount import Reader
from tests.cache.kit import CHUNK, FUSE, Web, cache
from tests.cache.test_daemon import web as web

SHOAL = [sys.executable, "-m", "shoal.cli", "cache"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(b"hello")
    (folder / "sub" / "big").write_bytes(os.urandom(2 * CHUNK + 77))
    return folder


def test_what_fuse_asks_is_answered_by_the_cache(source: Path, tmp_path: Path) -> None:
    with cache(tmp_path / "c") as daemon:
        fs = ShoalFileSystem(cache_root=str(tmp_path / "c"), skip_instance_cache=True)
        reader = Reader(fs, f"file://{source}")
        assert reader.names("/") == ["a", "sub"]
        assert reader.attributes("/a")["st_size"] == 5
        assert reader.attributes("/sub")["st_nlink"] == 2
        big = (source / "sub" / "big").read_bytes()
        for path, data in (("/a", b"hello"), ("/sub/big", big)):
            number = reader.open(path, os.O_RDONLY)
            assert reader.read(number, 3, 1) == data[1:4]
            assert reader.read(number, len(data), 0) == data
            reader.release(number)
        with pytest.raises(OSError, match="Read-only"):
            reader.open("/a", os.O_WRONLY)
        with pytest.raises(FileNotFoundError):
            reader.attributes("/nothing")
        assert daemon.cache.store.usage().files == 4


@pytest.fixture
def mounted(source: Path, tmp_path: Path) -> Iterator[Path]:
    if not FUSE:
        pytest.skip("no FUSE")
    folder = tmp_path / "mnt"
    folder.mkdir()
    with cache(tmp_path / "c"):
        process = subprocess.Popen(
            [*SHOAL, "mount", f"file://{source}", folder, "--root", tmp_path / "c", "--json"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert told == {"url": f"file://{source}", "folder": str(folder), "pid": process.pid}
            yield folder
        finally:
            subprocess.run(["fusermount3", "-u", "-z", folder], check=False)
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def test_an_unmodified_program_reads_through_a_mount(mounted: Path, source: Path) -> None:
    compared = subprocess.run(["diff", "-r", source, mounted], capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stdout
    with pytest.raises(OSError, match=r"Read-only|not implemented"):
        (mounted / "a").write_bytes(b"no")
    assert not (mounted / "none").exists()


def test_reads_that_overtake_each_other_are_one_request(web: Web, tmp_path: Path) -> None:
    data = os.urandom(8 * CHUNK)
    url = web.put("/set/a", data)
    fs = ShoalFileSystem(target_protocol="http", cache_root=str(tmp_path / "none"), skip_instance_cache=True)
    reader = Reader(fs, web.url + "/set")
    with pytest.warns(RuntimeWarning, match="no cache runs"):
        number = reader.open("/a", os.O_RDONLY)
    late = threading.Thread(target=lambda: (time.sleep(0.002), reader.read(number, CHUNK, 0)))
    late.start()
    assert reader.read(number, CHUNK, CHUNK) == data[CHUNK : 2 * CHUNK]
    late.join()
    assert web.gets[url.removeprefix(web.url)] <= 2  # one, unless the machine stopped meanwhile
    assert reader.read(number, 10, 5 * CHUNK) == data[5 * CHUNK :][:10]  # what was skipped on purpose
    reader.release(number)


def test_the_doctor_measures_what_a_mount_costs(tmp_path: Path) -> None:
    told = subprocess.run([*SHOAL, "doctor", "--root", tmp_path, "--json"], capture_output=True, text=True, check=True)
    (fuse,) = (one for one in json.loads(told.stdout) if one["name"] == "fuse")
    if not FUSE:
        assert not fuse["available"]
        return
    mounted, plain = (float(word) for word in re.findall(r"\d+\.\d+", fuse["detail"]))
    assert fuse["available"]
    assert plain > 0
    assert mounted >= 0
    assert "shoal-doctor-" not in Path("/proc/self/mountinfo").read_text()
    assert told.stderr == ""


@pytest.mark.skipif(not FUSE, reason="no FUSE")
def test_a_directory_that_is_not_empty_is_refused(source: Path, tmp_path: Path) -> None:
    told = subprocess.run(
        [*SHOAL, "mount", f"file://{source}", source, "--root", tmp_path], capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert "empty directory" in told.stderr


def test_a_served_cache_dies_and_comes_again(source: Path, tmp_path: Path) -> None:
    """Through the command: killed at once, it leaves what is cached readable, and the next one takes it over."""
    root = tmp_path / "c"

    def serve() -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [*SHOAL, "serve", "--root", root, "--size", "8MiB", "--keep-free", "0", "--round", "0.5", "--json"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert made.stdout is not None
        assert json.loads(made.stdout.readline())["pid"] == made.pid
        return made

    fs = ShoalFileSystem(cache_root=str(root), skip_instance_cache=True)
    for _ in range(2):
        process = serve()
        try:
            assert fs.cat_file(f"{source}/a") == b"hello"
            again = subprocess.run(
                [*SHOAL, "serve", "--root", root, "--size", "8MiB"], capture_output=True, text=True, check=False
            )
            assert again.returncode == 6
            assert f"pid {process.pid} has this cache open" in again.stderr
        finally:
            process.kill()
            process.wait()
        link = next((root / "links").glob("*/*"))
        assert link.read_bytes() == b"hello"
    assert [path.name for path in (root / "fills").iterdir()] == []
