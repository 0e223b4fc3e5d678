"""Programs that people use, reading through the cache."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from tests.cache.kit import cache


def test_polars_scans_parquet_through_the_cache(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / "table.parquet"
    polars.DataFrame({"a": range(1000), "b": [str(at) for at in range(1000)]}).write_parquet(path)
    with cache(tmp_path / "c") as daemon:
        for _ in range(2):
            with fsspec.open(f"shoal::file://{path}", cache_root=str(tmp_path / "c")) as file:
                found = polars.scan_parquet(file).filter(polars.col("a") < 10).select("b").collect()
            assert found["b"].to_list() == [str(at) for at in range(10)]
        assert daemon.cache.store.usage().files == 1


def test_a_data_loader_of_torch_reads_through_the_cache(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = tmp_path / "data"
    folder.mkdir()
    for at in range(16):
        (folder / f"{at:02d}").write_bytes(bytes([at]) * 100)
    fs = fsspec.filesystem("shoal", target_protocol="file", cache_root=str(tmp_path / "c"), skip_instance_cache=True)

    class Files(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        names = sorted(str(path) for path in folder.iterdir())

        def __len__(self) -> int:
            return len(self.names)

        def __getitem__(self, at: int) -> int:
            return sum(fs.cat_file(self.names[at]))

    with cache(tmp_path / "c") as daemon:
        for workers in (0, 2):  # worker processes are forks, each with a connection of its own
            loader = torch.utils.data.DataLoader(Files(), batch_size=4, shuffle=True, num_workers=workers)
            assert sorted(int(one) for batch in loader for one in batch) == [100 * at for at in range(16)]
        assert daemon.cache.store.usage().files == 16


EXAMPLE = Path(__file__).parents[2] / "examples" / "cached-shards"


def test_shards_in_two_layouts_are_read_once_for_all_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("SHOAL_CACHE", str(tmp_path / "c"))
    shards = importlib.import_module("shards")
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
