"""The same shards through the loaders that people use: WebDataset, MosaicML's streaming, PyTorch, Polars. Each location
is a local folder, such as a job's input, or a URL, which is read through the cache of this machine.

    python libraries.py webdataset file:///data/digits      prints the samples read, and the sum of their labels
    python libraries.py torch file:///data/digits           also mosaic, whose shards it writes first, and polars
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from numpy.typing import NDArray
from shards import IndexedShards, open_file

Sample = tuple[NDArray[np.float64], int]


def webdataset(location: str, shards: int) -> Iterator[Sample]:
    """Tar files in a new order each epoch. A URL is given as `shoal::URL`."""
    import webdataset as wds

    wds.gopen_schemes["shoal"] = lambda url, mode="rb", *_rest, **_more: fsspec.open(url, mode).open()
    prefix = "shoal::" if "://" in location else ""
    names = [f"{prefix}{location}/tar/{number:03d}.tar" for number in range(shards)]
    for sample in wds.WebDataset(names, shardshuffle=shards, seed=0):
        yield np.frombuffer(sample["img"], np.uint8) / 16.0, int(sample["cls"])


def mosaic(location: str, local: str) -> Any:
    """A folder that is there is read in place. A URL is read as `shoal::URL`: streaming copies each shard to `local`,
    once, and takes it from the cache in all later runs and in those of others."""
    import streaming
    from streaming.base.storage import download

    class Cached(download.CloudDownloader):
        @staticmethod
        def _client_identifier() -> str:
            return "shoal"

        def clean_up(self) -> None:
            pass

        def _download_file_impl(self, remote: str, local: str, _timeout: float) -> None:
            part = Path(f"{local}.part")
            with fsspec.open(remote).open() as source, part.open("wb") as target:
                shutil.copyfileobj(source, target)
            part.rename(local)

    download.DOWNLOADER_MAPPINGS["shoal"] = Cached
    where = {"remote": f"shoal::{location}", "local": local} if "://" in location else {"local": location}
    return streaming.StreamingDataset(**where, shuffle=True, batch_size=1)


def write_mosaic(location: str, folder: str) -> None:
    """The digits in the format of streaming."""
    from streaming import MDSWriter

    with MDSWriter(out=folder, columns={"image": "bytes", "label": "int"}, compression=None) as writer:
        for image, label in torch_dataset(location):
            writer.write({"image": (image * 16).astype(np.uint8).tobytes(), "label": int(label)})


def torch_dataset(location: str) -> IndexedShards:
    """A map-style dataset as PyTorch has it: a length, and any sample at any time."""
    return IndexedShards(location)


def torch_loader(location: str, workers: int = 0) -> Any:
    import torch

    return torch.utils.data.DataLoader(torch_dataset(location), batch_size=64, shuffle=True, num_workers=workers)


def polars(location: str) -> Any:
    """A lazy frame: of a file that is cached, Polars reads the columns and the groups of rows that a query needs."""
    import polars

    return polars.scan_parquet(open_file(location))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("webdataset", "mosaic", "torch", "polars"))
    parser.add_argument("location", help="a folder or a URL of shards; for polars a file")
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--workers", type=int, default=0, help="processes that read for torch")
    parser.add_argument("--local", default="shards", help="where streaming copies to")
    args = parser.parse_args()
    if args.library == "polars":
        print(polars(args.location).collect())
        return
    if args.library == "webdataset":
        labels = [label for _, label in webdataset(args.location, args.shards)]
    elif args.library == "torch":
        labels = [int(label) for _, batch in torch_loader(args.location, args.workers) for label in batch]
    else:
        labels = [int(sample["label"]) for sample in mosaic(args.location, args.local)]
    print(f"{len(labels)} samples, labels add up to {sum(labels)}")


if __name__ == "__main__":
    main()
