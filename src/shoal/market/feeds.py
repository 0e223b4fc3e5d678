"""Feeds: files of others, read into one history. Times become UTC, currencies are dollars or refused, and what a feed
left out is told in the history's notes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import Invalid
from shoal.market.history import Availability, History, Offer, Track, prices_of

AWS = {
    "p2.xlarge": ("k80", 1), "p2.8xlarge": ("k80", 8), "p2.16xlarge": ("k80", 16),
    "p3.2xlarge": ("v100", 1), "p3.8xlarge": ("v100", 4), "p3.16xlarge": ("v100", 8), "p3dn.24xlarge": ("v100", 8),
    "g4dn.xlarge": ("t4", 1), "g5.xlarge": ("a10g", 1), "p4d.24xlarge": ("a100", 8), "p5.48xlarge": ("h100", 8),
}  # fmt: skip
AZURE = {
    "NC6": ("k80", 1), "NC12": ("k80", 2), "NC24r": ("k80", 4), "NC24": ("k80", 4),
    "NC6s v2": ("p100", 1), "NC12s v2": ("p100", 2), "NC24rs v2": ("p100", 4), "NC24s v2": ("p100", 4),
    "NC6s v3": ("v100", 1), "NC12s v3": ("v100", 2), "NC24rs v3": ("v100", 4), "NC24s v3": ("v100", 4),
}  # fmt: skip
"""Accelerators of the instance types that feeds name without saying what is in them."""

_DAY_S = 86_400.0
_MOST = 1e9
_HINT = "`docs/how-to/plan-renting.md` lists the files that can be read"


def read(path: Path) -> History:
    """Any file of a known kind, told by its contents."""
    text = text_of(path)
    try:
        if text.lstrip()[:1] in ("{", "["):
            found = json.loads(text)
            return spot_trace(found, path.name) if isinstance(found, dict) and "data" in found else aws_json(found)
        rows = _Rows(text)
        for needed, reader in _CSV.items():
            if set(needed) <= rows.columns:
                with _told(path, lambda: f"{path}:{rows.line}"):
                    return reader(rows, path)
    except RecursionError:
        raise Invalid("is JSON of too many levels", where=str(path), hint=_HINT) from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, csv.Error) as error:
        raise Invalid(f"cannot be read: {_plain(error)}", where=str(path), hint=_HINT) from error
    raise Invalid("is no price or availability file of a known kind", where=str(path), hint="; ".join(KINDS))


class _Rows:
    """Lines of a CSV file, of which `line` is the last one that was read."""

    def __init__(self, text: str) -> None:
        self._rows = csv.DictReader(io.StringIO(text))
        self.columns = set(self._rows.fieldnames or ())

    @property
    def line(self) -> int:
        return self._rows.line_num

    def __iter__(self) -> Iterator[dict[str, str]]:
        for row in self._rows:
            if None in row or None in row.values():
                raise ValueError("has not as many cells as the first line has columns")
            yield row


@contextmanager
def _told(path: Path, where: Callable[[], str]) -> Iterator[None]:
    """An error in a line as a sentence that names it."""
    try:
        yield
    except (ValueError, KeyError, TypeError, OverflowError, csv.Error) as error:
        raise Invalid(f"cannot be read: {_plain(error)}", where=where() or str(path), hint=_HINT) from error


def _plain(error: Exception) -> str:
    """What Python says, without its names of errors."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, TypeError | AttributeError):
        return "it has another shape than such files have"
    return str(error)


def text_of(path: Path) -> str:
    """Raises Invalid where there is no text to read, and OSError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid("is not text", where=str(path), hint="a CSV or JSON file in UTF-8 is meant") from error
    except IsADirectoryError as error:
        raise Invalid("is a directory", where=str(path), hint="a file is meant") from error


def read_all(paths: Iterable[Path]) -> History:
    """Files, and the .csv and .json files of folders, as one history."""
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    files = [file for file in files if file.suffix in (".csv", ".json") or file in paths]
    if not files:
        raise Invalid("no history was given", hint="files or folders: " + "; ".join(KINDS))
    return History({}).joined(read(file) for file in files)


def aws_json(found: Any) -> History:
    """`aws ec2 describe-spot-price-history`. Only Linux prices are kept: others include a licence."""
    rows = found["SpotPriceHistory"] if isinstance(found, dict) else found
    linux = [row for row in rows if row.get("ProductDescription", "Linux/UNIX").startswith("Linux")]
    left = len(rows) - len(linux)
    changes = ((row["AvailabilityZone"], row["InstanceType"], row["Timestamp"], row["SpotPrice"]) for row in linux)
    return _aws(changes, (f"{left} prices of other systems than Linux were left out",) if left else ())


def aws_csv(rows: Iterable[dict[str, str]], _path: Path) -> History:
    """`availability_zone,instance_type,timestamp,usd_per_hour`."""
    return _aws(
        ((row["availability_zone"], row["instance_type"], row["timestamp"], row["usd_per_hour"]) for row in rows), ()
    )


def _aws(changes: Iterable[tuple[str, str, str, str]], notes: tuple[str, ...]) -> History:
    series: dict[Offer, list[tuple[float, float]]] = defaultdict(list)
    unknown: set[str] = set()
    for zone, instance, stamp, price in changes:
        kind = AWS.get(instance)
        if kind is None:
            unknown.add(instance)
            continue
        offer = Offer("aws", zone.rstrip("abcdefgh"), zone, instance, *kind)
        series[offer].append((_moment(stamp), _dollars(price)))
    return _history(series, (*notes, *_unknown(unknown)))


def azure_csv(rows: Iterable[dict[str, str]], path: Path) -> History:
    """A day a line, a column an instance type; an empty cell means that there was none that day. The region is the
    file's name after `azure_`."""
    region = path.stem.removeprefix("azure_").replace("_", "-")
    series: dict[Offer, list[tuple[float, float]]] = defaultdict(list)
    days: dict[Offer, set[int]] = defaultdict(set)
    every, unknown = set(), set()
    for row in rows:
        at = datetime.strptime(row["Date"], "%m/%d/%Y").replace(tzinfo=UTC).timestamp()
        every.add(int(at // _DAY_S))
        for instance, price in row.items():
            if instance == "Date" or not price:
                continue
            kind = AZURE.get(instance)
            if kind is None:
                unknown.add(instance)
                continue
            offer = Offer("azure", region, "", instance, *kind)
            series[offer].append((at, _dollars(price)))
            days[offer].add(int(at // _DAY_S))
    if not every:
        raise ValueError("has no day")
    first, last = min(every), max(every)
    missing = last - first + 1 - len(every)
    notes = (f"azure {region}: {missing} days are missing; their offers count as not to be had",) if missing else ()
    history = _history(series, (*notes, *_unknown(unknown)))
    tracks = {
        offer: Track(
            track.prices,
            Availability(
                first * _DAY_S, _DAY_S,
                np.array([_PLENTY if day in days[offer] else 0 for day in range(first, last + 1)], dtype=np.int64),
            ),
        )
        for offer, track in history.tracks.items()
    }  # fmt: skip
    return History(tracks, history.notes)


_PLENTY = 1_000_000
"""Where a feed says that there are instances, but not how many."""


def gcp_csv(rows: Iterable[dict[str, str]], _path: Path) -> History:
    """`timestamp,zone,gpu,gpus,usd_per_hour`: prices of preemptible instances at launch attempts."""
    series: dict[Offer, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        accelerator, count = row["gpu"].removeprefix("nvidia-tesla-"), _number(row["gpus"])
        zone = row["zone"]
        offer = Offer("gcp", zone.rpartition("-")[0], zone, f"{accelerator}-x{count}", accelerator, count)
        series[offer].append((_moment(row["timestamp"]), _dollars(row["usd_per_hour"])))
    return _history(series, ())


def catalogue_csv(rows: Iterable[dict[str, str]], path: Path) -> History:
    """SkyPilot's catalogue: `Price` on demand and `SpotPrice`, without a time, so from the beginning of time.
    The provider is its folder, as in `aws/vms.csv`, or the name of a file that is called otherwise."""
    name = path.resolve().parent.name if path.stem == "vms" else path.stem
    series: dict[Offer, list[tuple[float, float]]] = defaultdict(list)
    without = 0
    for row in rows:
        accelerator = row.get("AcceleratorName") or ""
        if not accelerator:
            without += 1
            continue
        for column, spot in (("Price", False), ("SpotPrice", True)):
            if row.get(column):
                offer = Offer(
                    name, row["Region"], row.get("AvailabilityZone") or "", row["InstanceType"], accelerator.lower(),
                    _number(row["AcceleratorCount"]), spot,
                )  # fmt: skip
                series[offer].append((0.0, _dollars(row[column])))
    return _history(series, (f"{without} lines without an accelerator were left out",) if without else ())


_TRACE = re.compile(
    r"(?P<kind>availability|preemption)_(?P<nodes>\d+)-node_(?P<cloud>\w+)-(?P<day>\d\d-\d\d-\d{4})_"
    r"(?P<zone>[^_]+)_(?P<accelerator>[^_.]+?)(?:_(?P<count>\d+))?\.json"
)


def spot_trace(found: Mapping[str, Any], name: str) -> History:
    """spot-traces (NSDI'24): how many instances could be had, or were kept, every `gap_seconds`. Place, kind and first
    day are in the file's name; its day begins at midnight UTC."""
    parts = _TRACE.fullmatch(name)
    if parts is None:
        raise Invalid("a trace's name says what it is of", where=name,
                      hint="availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json")  # fmt: skip
    start = datetime.strptime(parts["day"], "%m-%d-%Y").replace(tzinfo=UTC).timestamp()
    count, zone, gap = int(parts["count"] or 1), parts["zone"], float(found["metadata"]["gap_seconds"])
    region = zone.rpartition("-")[0] if parts["cloud"] == "gcp" else zone.rstrip("abcdefgh")
    offer = Offer(parts["cloud"], region, zone, f"{parts['accelerator']}-x{count}", parts["accelerator"], count)
    given = np.asarray(found["data"], dtype=np.float64)
    if not 0 < gap < math.inf or given.ndim != 1 or not len(given):
        raise Invalid("a trace needs a positive gap and one number for each moment", where=name)
    wrong = np.flatnonzero(~((given >= 0) & (given < _MOST) & (given == np.floor(given))))
    if len(wrong):
        raise Invalid(f"moment {wrong[0]} has {given[wrong[0]]:g} instances: a number from 0 on is meant", where=name)
    counts = given.astype(np.int64)
    return History({offer: Track(None, Availability(start, gap, counts, kept=parts["kind"] == "preemption"))})


def _history(series: Mapping[Offer, list[tuple[float, float]]], notes: tuple[str, ...]) -> History:
    tracks, duplicates = {}, 0
    for offer, changes in series.items():
        prices, twice = prices_of(changes)
        duplicates += twice
        tracks[offer] = Track(prices)
    told = (f"{duplicates} duplicates were left out",) if duplicates else ()
    return History(tracks, (*notes, *told))


def _unknown(instances: set[str]) -> tuple[str, ...]:
    return (f"unknown instance types were left out: {', '.join(sorted(instances))}",) if instances else ()


def _number(text: str) -> int:
    count = float(text)
    if not (1 <= count < _MOST and count == int(count)):
        raise ValueError(f"an instance of {text} accelerators")
    return int(count)


def _moment(text: str) -> float:
    """A time without a zone is UTC."""
    when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _dollars(text: str | float) -> float:
    price = float(str(text).strip().removeprefix("$"))  # another currency's sign is no number, and is refused
    if not 0 < price < 1e6:
        raise ValueError(f"a price of {text} dollars")
    return price


_CSV: dict[tuple[str, ...], Callable[[Iterable[dict[str, str]], Path], History]] = {
    ("availability_zone", "instance_type", "timestamp", "usd_per_hour"): aws_csv,
    ("timestamp", "zone", "gpu", "gpus", "usd_per_hour"): gcp_csv,
    ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region"): catalogue_csv,
    ("Date",): azure_csv,
}
KINDS = (
    "AWS spot price history (JSON or CSV)", "Azure prices by day (CSV)", "GCP prices (CSV)",
    "SkyPilot catalogue (CSV)", "spot-traces (JSON)",
)  # fmt: skip
