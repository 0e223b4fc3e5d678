"""Two layouts of training data in few large files, read through the cache: tar files as WebDataset has them, and shards
with an index as MosaicML's streaming has them.

    python shards.py FOLDER      writes the handwritten digits in both layouts
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from numpy.typing import NDArray

SAMPLES_A_SHARD = 300


def open_file(location: str) -> Any:
    """A local path, such as a job's input, or a URL, which is read through the cache of this machine."""
    return fsspec.open(f"shoal::{location}").open() if "://" in location else Path(location).open("rb")


class TarShards:
    """One sample is all files of one name: `000017.img` and `000017.cls`. Read in order, the shards in a new one each
    epoch."""

    def __init__(self, location: str, count: int) -> None:
        self._locations = [f"{location}/tar/{number:03d}.tar" for number in range(count)]

    def epoch(self, seed: int) -> Iterator[tuple[NDArray[np.float64], int]]:
        for at in np.random.default_rng(seed).permutation(len(self._locations)):
            with open_file(self._locations[at]) as file, tarfile.open(fileobj=file, mode="r|") as archive:
                sample: dict[str, bytes] = {}
                for member in archive:
                    content = archive.extractfile(member)
                    sample[member.name.rpartition(".")[2]] = b"" if content is None else content.read()
                    if len(sample) == 2:
                        yield np.frombuffer(sample["img"], np.uint8) / 16.0, int(sample["cls"])
                        sample = {}


class IndexedShards:
    """Any sample at any time: the index says in which shard it lies. A shard is a file of records of one size."""

    def __init__(self, location: str) -> None:
        with open_file(f"{location}/indexed/index.json") as file:
            index = json.load(file)
        self._location = f"{location}/indexed"
        self._shards = index["shards"]
        self._record = index["record_bytes"]
        self._first = np.cumsum([0, *(one["samples"] for one in self._shards)])
        self._open: dict[int, Any] = {}

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, at: int) -> tuple[NDArray[np.float64], int]:
        shard = int(np.searchsorted(self._first, at, side="right")) - 1
        if shard not in self._open:
            self._open[shard] = open_file(f"{self._location}/{self._shards[shard]['name']}")
        file = self._open[shard]
        file.seek((at - int(self._first[shard])) * self._record)
        record = np.frombuffer(file.read(self._record), np.uint8)
        return record[:-1] / 16.0, int(record[-1])


def write(folder: Path) -> int:
    """Both layouts of the digits; the number of shards."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    (folder / "tar").mkdir(parents=True, exist_ok=True)
    (folder / "indexed").mkdir(exist_ok=True)
    shards = []
    for number, start in enumerate(range(0, len(images), SAMPLES_A_SHARD)):
        part = range(start, min(start + SAMPLES_A_SHARD, len(images)))
        with tarfile.open(folder / "tar" / f"{number:03d}.tar", "w") as archive:
            for at in part:
                for kind, data in (("img", images[at].astype(np.uint8).tobytes()), ("cls", b"%d" % labels[at])):
                    member = tarfile.TarInfo(f"{at:06d}.{kind}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        name = f"shard.{number:05d}.bin"
        records = np.column_stack([images[part.start : part.stop], labels[part.start : part.stop]])
        (folder / "indexed" / name).write_bytes(records.astype(np.uint8).tobytes())
        shards.append({"name": name, "samples": len(part)})
    index = {"record_bytes": images.shape[1] + 1, "shards": shards}
    (folder / "indexed" / "index.json").write_text(json.dumps(index))
    return len(shards)


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} shards in {sys.argv[1]}")
