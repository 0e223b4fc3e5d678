"""Features that are not computed but found: in a store by key, or in a table that the artefact brings along."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from shoal.cascade.steps.base import Array, Arrays, Block, Floats
from shoal.cascade.stores import Store, key_part, open_store, plain_key, with_cache

TYPES = ("<f4", "<f8")


@dataclass(frozen=True)
class LookupStep:
    """`columns` doubles or floats (`dtype`) by key `prefix` + the row's values. `missing` stands for a key that is not
    there. `url`: see `stores.open_store`. `cache_bytes`: 0 for no cache."""

    kind: ClassVar[str] = "lookup"

    url: str
    prefix: str
    columns: int
    dtype: str = "<f4"
    missing: float = float("nan")
    deadline_s: float = 1.0
    cache_bytes: int = 0
    ttl_s: float = 60.0

    def __post_init__(self) -> None:
        if self.dtype not in TYPES or self.columns < 1:
            raise ValueError(f"a look-up gives {' or '.join(TYPES)}, at least one")

    @property
    def width(self) -> int:
        return self.columns

    @property
    def place(self) -> tuple[str, float, int, float]:
        """Look-ups of one place are fetched in one request."""
        return self.url, self.deadline_s, self.cache_bytes, self.ttl_s

    @functools.cached_property
    def _empty(self) -> bytes:
        """The value of a key that is not there."""
        return np.full(self.columns, self.missing, self.dtype).tobytes()

    def keys(self, block: Block) -> list[str]:
        rows = block if isinstance(block, np.ndarray) else np.asarray(block, object)
        if rows.ndim == 1 or rows.shape[1] == 1:
            return [self.prefix + key_part(one) for one in rows.ravel().tolist()]
        return [self.prefix + plain_key(row) for row in rows.tolist()]

    def joined(self, found: Sequence[bytes | None]) -> bytes:
        """The values one after the other. Raises ValueError for one of another size."""
        empty = self._empty
        given = [empty if one is None else one for one in found]
        for one in given:
            if len(one) != len(empty):
                raise ValueError(f"a value under {self.prefix} has {len(one)} bytes, not {len(empty)}")
        return given[0] if len(given) == 1 else b"".join(given)

    def values(self, found: Sequence[bytes | None]) -> Floats:
        """rows x columns. Raises ValueError for a value of another size."""
        return np.frombuffer(self.joined(found), self.dtype).reshape(-1, self.columns).astype(np.float64)

    def apply(self, block: Block) -> Floats:
        return self.values(store_of(self.place).get_many(self.keys(block)))

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        missing = None if self.missing != self.missing else self.missing
        named = {
            name: getattr(self, name)
            for name in ("url", "prefix", "columns", "dtype", "deadline_s", "cache_bytes", "ttl_s")
        }
        return {**named, "missing": missing}, {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> LookupStep:  # noqa: ARG003
        missing = parameters["missing"]
        return cls(
            str(parameters["url"]), str(parameters["prefix"]), int(parameters["columns"]), str(parameters["dtype"]),
            float("nan") if missing is None else float(missing), float(parameters["deadline_s"]),
            int(parameters["cache_bytes"]), float(parameters["ttl_s"]),
        )  # fmt: skip


@functools.cache
def store_of(place: tuple[str, float, int, float]) -> Store:
    """A connection and a cache for this process alone: a service has one tenant, so none sees another's."""
    url, deadline_s, cache_bytes, ttl_s = place
    return with_cache(open_store(url, deadline_s), cache_bytes, ttl_s)


def fetch_together(steps: Sequence[tuple[LookupStep, Block]]) -> list[Floats]:
    """What each step gives for its block: one request for each place. Raises OSError."""
    places = dict.fromkeys(step.place for step, _ in steps)
    if len(places) > 1:
        made: dict[int, Floats] = {}
        for place in places:
            of = [number for number, (step, _) in enumerate(steps) if step.place == place]
            made |= zip(of, fetch_together([steps[number] for number in of]), strict=True)
        return [made[number] for number in range(len(steps))]
    keys = [step.keys(block) for step, block in steps]
    first = steps[0][0]
    values = store_of(first.place).get_many(list(chain.from_iterable(keys)))
    parts, begin = [], 0
    for (step, _), own in zip(steps, keys, strict=True):
        end = begin + len(own)
        parts.append(step.joined(values[begin:end]))
        begin = end
    if any(step.dtype != first.dtype for step, _ in steps):
        numbers = [np.frombuffer(part, step.dtype) for part, (step, _) in zip(parts, steps, strict=True)]
        doubles = np.concatenate(numbers, dtype=np.float64)
    else:  # at once: for a row, to make an array for each look-up takes longer than the request
        doubles = np.frombuffer(b"".join(parts), first.dtype).astype(np.float64)
    found, begin = [], 0
    for (step, _), own in zip(steps, keys, strict=True):
        end = begin + len(own) * step.columns
        found.append(doubles[begin:end].reshape(-1, step.columns))
        begin = end
    return found


@dataclass(frozen=True)
class JoinStep:
    """Rows of a table by key, through a hash index. `keys`: by row of the table, its key's values; `table`: its other
    columns, as doubles. A key that is not there gives `missing`."""

    kind: ClassVar[str] = "join"

    keys: tuple[tuple[Any, ...], ...]
    table: Floats
    missing: float = float("nan")

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or len(self.keys) != len(self.table):
            raise ValueError("a join has a key for each row of its table")
        if len(set(self.keys)) != len(self.keys):
            raise ValueError("a join's keys are not unique")

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    @functools.cached_property
    def _row_of(self) -> dict[Any, int]:
        """A key of one value is that value, which costs a row no tuple."""
        single = len(self.keys[0]) == 1 if self.keys else False
        return {key[0] if single else key: row for row, key in enumerate(self.keys)}

    @functools.cached_property
    def _padded(self) -> Floats:
        return np.vstack([self.table, np.full((1, self.width), self.missing)])

    def rows(self, block: Block) -> Array:
        """The row of the table for each key; the last one of `_padded` where there is none."""
        values = np.asarray(block)
        rows = values.tolist() if values.ndim == 1 or values.shape[1] > 1 else values[:, 0].tolist()
        several = values.ndim == 2 and values.shape[1] > 1
        get, nothing = self._row_of.get, len(self.keys)
        return np.array([get(tuple(row) if several else row, nothing) for row in rows], np.intp)

    def apply(self, block: Block) -> Floats:
        return self._padded[self.rows(block)]

    @functools.cached_property
    def packed(self) -> dict[Any, bytes]:
        """By key, the bytes of its columns: for one row, to make a list of them takes longer than to find them."""
        data, size = self.table.tobytes(), 8 * self.width
        return {key: data[row * size : (row + 1) * size] for key, row in self._row_of.items()}

    @property
    def packed_missing(self) -> bytes:
        return np.full(self.width, self.missing).tobytes()

    def projection(self, weights: Floats) -> Callable[[Block], Floats]:
        """The table times the weights is made once."""
        projected = self._padded @ weights
        return lambda block: projected[self.rows(block)]

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        missing = None if self.missing != self.missing else self.missing
        return {"keys": [list(key) for key in self.keys], "missing": missing}, {"table": self.table}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> JoinStep:
        missing = parameters["missing"]
        keys = tuple(tuple(key) for key in parameters["keys"])
        return cls(keys, np.asarray(arrays["table"], np.float64), float("nan") if missing is None else float(missing))
