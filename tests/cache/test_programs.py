"""Programs that people use, reading through the cache."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.cache.kit import cache

EXAMPLE = Path(__file__).parents[2] / "examples" / "cached-shards"
LABELS = "1797 samples, labels add up to 8070"


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module("shards")


def read_by(library: str, location: str, root: Path, *more: str) -> str:
    """What the example prints, in a process of its own."""
    command = [sys.executable, EXAMPLE / "libraries.py", library, location, *more]
    environment = {**os.environ, "SHOAL_CACHE": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_polars_scans_parquet_through_the_cache(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / "table.parquet"
    polars.DataFrame({"a": range(1000), "b": [str(at) for at in range(1000)]}).write_parquet(path)
    with cache(tmp_path / "c") as daemon:
        assert "shape: (1_000, 2)" in read_by("polars", f"file://{path}", tmp_path / "c")
        path.unlink()  # what was read once is there
        assert "shape: (1_000, 2)" in read_by("polars", f"file://{path}", tmp_path / "c")
        assert daemon.cache.store.usage().files == 1


@pytest.mark.parametrize(("library", "package"), [("webdataset", "webdataset"), ("torch", "torch")])
def test_a_loader_reads_each_shard_from_its_source_once(
    tmp_path: Path, shards: ModuleType, library: str, package: str
) -> None:
    pytest.importorskip(package)
    shards.write(tmp_path / "digits")
    with cache(tmp_path / "c", size=64 << 20, chunk_bytes=64 << 20) as daemon:
        for more in ((), ("--workers", "2")):  # worker processes have connections of their own
            assert read_by(library, f"file://{tmp_path}/digits", tmp_path / "c", *more) == LABELS
        (account,) = daemon.cache.accounts.values()
        assert account.loads == daemon.cache.store.usage().files == (6 if library == "webdataset" else 7)


@pytest.mark.slow
@pytest.mark.timeout(900)  # it imports PyTorch in four processes
def test_streaming_takes_its_shards_from_the_cache(tmp_path: Path, shards: ModuleType) -> None:
    pytest.importorskip("streaming")
    shards.write(tmp_path / "digits")
    location, root = f"file://{tmp_path}/mds", tmp_path / "c"
    libraries = importlib.import_module("libraries")
    libraries.write_mosaic(str(tmp_path / "digits"), str(tmp_path / "mds"))
    with cache(root, size=64 << 20, chunk_bytes=64 << 20) as daemon:
        for copy in ("one", "other"):
            assert read_by("mosaic", location, root, "--local", str(tmp_path / copy)) == LABELS
        (account,) = daemon.cache.accounts.values()
        assert account.loads == daemon.cache.store.usage().files == 2
    labels = [int(sample["label"]) for sample in libraries.mosaic(str(tmp_path / "mds"), "")]
    assert (len(labels), sum(labels)) == (1797, 8070)


def test_shards_in_two_layouts_are_read_once_for_all_epochs(
    tmp_path: Path, shards: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_CACHE", str(tmp_path / "c"))
    source = tmp_path / "digits"
    assert shards.write(source) == 6
    with cache(tmp_path / "c", size=64 << 20, chunk_bytes=64 << 20) as daemon:
        found = {}
        for location in (str(source), f"file://{source}", f"file://{source}"):
            indexed = shards.IndexedShards(location)
            assert len(indexed) == 1797
            rows = [indexed[at] for at in (0, 299, 300, 1796)]
            rows += list(shards.TarShards(location, 6).epoch(1))
            found[location] = [(image.tobytes(), label) for image, label in rows]
        assert found[str(source)] == found[f"file://{source}"]
        every = [indexed[at] for at in range(1797)]
        assert sorted(found[str(source)][4:]) == sorted((image.tobytes(), label) for image, label in every)
        (account,) = daemon.cache.accounts.values()
        assert account.loads == daemon.cache.store.usage().files == 13


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tar", "indexed"])
def test_shards_train_a_model(tmp_path: Path, layout: str) -> None:
    pytest.importorskip("sklearn")
    source = tmp_path / "digits"
    subprocess.run([sys.executable, EXAMPLE / "shards.py", source], check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, EXAMPLE / "train.py", "--layout", layout, "--data", source]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told.startswith("1797 samples, accuracy=0.9")
