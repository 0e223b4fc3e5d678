"""Files of comma-separated values, read by Polars on all cores.

Beginning and end of a file are read by pandas as well: that says the types of the columns, and the rest must parse as
they say. Where Polars and pandas read text differently, in quotes, blank lines or numbers among words, pandas reads it.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from shoal.offload.arrays.state import is_program, state
from shoal.offload.profile import PROFILE

_BYTES = 64
"""Of a file for each element of the threshold: with the usual one, files from 4 MiB on."""

_SAMPLE = 1 << 16
_AT_ONCE = 48 << 20
"""Bytes of a file from which Polars is imported for it."""

_IMPORT_S = 0.5
"""Seconds in pandas' own reader, of files that Polars could read, after which it is imported."""

_RATED = 4 << 20
"""Bytes of a file from which its seconds say how fast a reader is."""

_PACKED = frozenset((".gz", ".bz2", ".zip", ".xz", ".zst", ".tar", ".tgz"))
_UNLIKE = (b'"', b"\r", b"\0")
"""Quotes and other line ends."""

_WORDS = frozenset(("true", "false"))
_STARTS_NUMBER = re.compile(r"[\s\d+\-.iInN]")
_EXACT = 2.0**53


class Unlike(Exception):
    """Polars would read this file differently."""


class Reader:
    """In place of `pandas.read_csv`."""

    def __init__(self, original: Callable[..., Any], cores: int) -> None:
        self._original, self._cores = original, cores
        self._lost_s = 0.0
        self._rates: dict[str, float] = {}
        """The least seconds for a byte, by backend."""
        self._process = 0

    def read(self, path: Any, *args: Any, **options: Any) -> Any:
        frame = sys._getframe(2)
        size = 0 if args or options or not is_program(frame) else _size(path)
        if not size or size < state.threshold * _BYTES:
            return self._original(path, *args, **options)
        found, reason = None, "plain-faster"
        ready = self._ready(size)
        began = time.perf_counter()
        if ready:
            try:
                found, reason = self._by_polars(Path(path)), "polars"
            except Unlike:
                reason = "unlike"
            except Exception:  # whatever it stumbles over, pandas may read, or says it better
                reason = "error"
        if found is None:
            again = time.perf_counter()
            found = self._original(path)
            self._took("plain", time.perf_counter() - again, size)
        seconds = time.perf_counter() - began
        backend = "polars" if reason == "polars" else "plain"
        if ready:
            self._took("polars", seconds, size)  # a file that it gave up counts with pandas' time
        PROFILE.add((frame.f_code, frame.f_lasti), "read_csv", backend, reason, seconds, size)
        return found

    def _took(self, backend: str, seconds: float, size: int) -> None:
        if size >= _RATED:
            self._rates[backend] = min(self._rates.get(backend, float("inf")), seconds / size)
        if backend == "plain":
            self._lost_s += seconds

    def _ready(self, size: int) -> bool:
        """Whether Polars is there and not slower, or worth its import. Its threads do not outlive a fork."""
        if self._process:
            slower = self._rates.get("polars", 0.0) > self._rates.get("plain", float("inf"))
            return self._process == os.getpid() and not slower
        if "polars" not in sys.modules and size < _AT_ONCE and self._lost_s < _IMPORT_S:
            return False
        if importlib.util.find_spec("polars") is None:
            return False
        os.environ.setdefault("POLARS_MAX_THREADS", str(self._cores))
        importlib.import_module("polars")
        self._process = os.getpid()
        return True

    def _by_polars(self, path: Path) -> Any:
        import polars as pl

        text = path.read_bytes()
        if any(each in text for each in _UNLIKE):
            raise Unlike
        header, first, last = self._samples(text, len(text))
        kinds = {name: _kind(first[name], pl) for name in header}
        read = pl.read_csv(text, schema=kinds, quote_char=None, glob=False)
        if read[header[0]].null_count():
            raise Unlike  # a blank line, which pandas skips
        columns = {name: _column(read[name], first[name], pl) for name in header}
        found = pd.DataFrame(columns, copy=False)
        _check(found.iloc[: len(first)], first)
        _check(found.iloc[len(found) - len(last) :], last)
        return found

    def _samples(self, text: bytes, size: int) -> tuple[list[str], Any, Any]:
        """The names of the columns, and what pandas reads of the first and of the last lines."""
        end = text.find(b"\n")
        cut = text.rfind(b"\n", 0, _SAMPLE)
        if not 0 < end < cut:
            raise Unlike
        line = text[: end + 1]
        start = text.find(b"\n", max(end, size - _SAMPLE)) + 1
        first = self._original(io.BytesIO(text[: cut + 1]))
        last = self._original(io.BytesIO(line + text[start:size]))
        header = line.decode().rstrip("\n").split(",")
        if header != list(first.columns) or len(set(header)) < len(header) or line.startswith(b"\xef\xbb\xbf"):
            raise Unlike
        return header, first, last


def _size(path: Any) -> int:
    """Of a local file that is not packed; else 0."""
    if not isinstance(path, str | Path) or str(path).startswith("~") or "://" in str(path):
        return 0
    try:
        return 0 if Path(path).suffix.lower() in _PACKED else Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


@functools.cache
def _missing() -> frozenset[str]:
    from pandas._libs.parsers import STR_NA_VALUES

    return frozenset(STR_NA_VALUES)


def _kind(sample: Any, pl: Any) -> Any:
    if sample.dtype == np.int64:
        return pl.Int64
    if sample.dtype == np.float64:
        return pl.Float64
    if isinstance(sample.dtype, pd.StringDtype) and sample.dtype.storage == "python":
        return pl.Categorical
    raise Unlike


def _column(read: Any, sample: Any, pl: Any) -> Any:
    missing = read.null_count()
    if sample.dtype == np.int64 and not missing:
        return read.to_numpy(writable=True)
    if sample.dtype.kind in "if":
        values = read.cast(pl.Float64).fill_null(float("nan")).to_numpy(writable=True)
        if sample.dtype.kind == "i" and not np.nanmax(np.abs(values)) < _EXACT:
            raise Unlike
        return values
    distinct = read.unique().drop_nulls()
    words = distinct.cast(pl.String).to_list()
    if any(_differs(each) for each in words):
        raise Unlike
    numbers = distinct.to_physical().to_numpy()
    table = np.empty(int(numbers.max()) + 2, object)
    table[-1] = np.nan
    table[numbers] = [np.nan if each in _missing() else each for each in words]
    codes = read.to_physical().cast(pl.Int64).fill_null(len(table) - 1).to_numpy()
    return sample.array._from_backing_data(table[codes])


def _differs(word: str) -> bool:
    """Whether pandas would read a column of such words as numbers or truth values, as it does for a part of a file; or
    take a line of it for a blank one."""
    if word.lower() in _WORDS:
        return True
    if not _STARTS_NUMBER.match(word):
        return False
    try:
        float(word)
    except ValueError:
        return word[:1].isspace()
    return word not in _missing()


def _check(found: Any, expected: Any) -> None:
    """Types, names, values and missing ones are equal, bit for bit. A missing value elsewhere makes whole numbers
    floating point ones."""
    whole = [name for name in expected if expected[name].dtype.kind == "i" and found[name].dtype.kind == "f"]
    try:
        pd.testing.assert_frame_equal(
            found.reset_index(drop=True), expected.astype(dict.fromkeys(whole, float)), check_exact=True
        )
    except AssertionError:
        raise Unlike from None


def install(cores: int) -> Callable[[], None]:
    """Replace `pandas.read_csv`; answers what takes that back."""
    original = pd.read_csv
    reader = Reader(original, cores)

    @functools.wraps(original)
    def read_csv(filepath_or_buffer: Any, *args: Any, **options: Any) -> Any:
        return reader.read(filepath_or_buffer, *args, **options)

    pd.read_csv = read_csv

    def undo() -> None:
        pd.read_csv = original

    return undo
