"""Containers that change in place and give away frozen copies cheaply.

A snapshot of the cluster is taken before every decision, so freezing must cost what changed since the last one and not
what there is: both containers share everything that was not touched.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
_SHARDS = 64
_CHUNK = 128

Key = tuple[float, str]
"""What a `Runs` is sorted by: a time and, for equal times, a name."""


class FrozenMap(Mapping[str, T]):
    """A mapping that never changes. The order of iteration is unspecified: nothing may depend on it."""

    __slots__ = ("_len", "_shards")

    def __init__(self, shards: tuple[dict[str, T], ...] = ({},) * _SHARDS, length: int = 0) -> None:
        self._shards = shards
        self._len = length

    def __getitem__(self, key: str) -> T:
        return self._shards[hash(key) % _SHARDS][key]

    def get(self, key: str, default=None):  # type: ignore[no-untyped-def]
        return self._shards[hash(key) % _SHARDS].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._shards[hash(key) % _SHARDS]

    def __iter__(self) -> Iterator[str]:
        for shard in self._shards:
            yield from shard

    def __len__(self) -> int:
        return self._len


class CowMap(Generic[T]):
    """A mutable mapping in shards; a shard is copied at its first change after a `freeze`."""

    __slots__ = ("_frozen", "_len", "_owned", "_shards")

    def __init__(self) -> None:
        self._shards: list[dict[str, T]] = [{} for _ in range(_SHARDS)]
        self._owned = [True] * _SHARDS
        self._len = 0
        self._frozen: FrozenMap[T] | None = None

    def _writable(self, key: str) -> dict[str, T]:
        at = hash(key) % _SHARDS
        self._frozen = None
        if not self._owned[at]:
            self._shards[at] = self._shards[at].copy()
            self._owned[at] = True
        return self._shards[at]

    def __setitem__(self, key: str, value: T) -> None:
        shard = self._writable(key)
        self._len += key not in shard
        shard[key] = value

    def pop(self, key: str) -> T | None:
        if key not in self:
            return None
        self._len -= 1
        return self._writable(key).pop(key)

    def get(self, key: str) -> T | None:
        return self._shards[hash(key) % _SHARDS].get(key)

    def __getitem__(self, key: str) -> T:
        return self._shards[hash(key) % _SHARDS][key]

    def __contains__(self, key: str) -> bool:
        return key in self._shards[hash(key) % _SHARDS]

    def __iter__(self) -> Iterator[str]:
        for shard in self._shards:
            yield from shard

    def __len__(self) -> int:
        return self._len

    def freeze(self) -> FrozenMap[T]:
        if self._frozen is None:
            self._frozen = FrozenMap(tuple(self._shards), self._len)
            self._owned = [False] * _SHARDS
        return self._frozen

    @classmethod
    def thaw(cls, frozen: FrozenMap[T]) -> CowMap[T]:
        """A mutable map with the same content that shares all of it until it changes."""
        made = cls()
        made._shards, made._len, made._frozen = list(frozen._shards), frozen._len, frozen
        made._owned = [False] * _SHARDS
        return made


class FrozenRuns(Generic[T]):
    """A sorted sequence that never changes."""

    __slots__ = ("_chunks", "_len")

    def __init__(self, chunks: tuple[tuple[tuple[Key, T], ...], ...] = (), length: int = 0) -> None:
        self._chunks = chunks
        self._len = length

    def __iter__(self) -> Iterator[T]:
        for chunk in self._chunks:
            for item in chunk:
                yield item[1]

    def items(self) -> Iterator[tuple[Key, T]]:
        for chunk in self._chunks:
            yield from chunk

    def rank(self, key: Key) -> int:
        """How many entries sort before `key`."""
        before = 0
        for chunk in self._chunks:
            if chunk[-1][0] < key:
                before += len(chunk)
            else:
                return before + bisect_left(chunk, key, key=_key)
        return before

    def first(self) -> tuple[Key, T] | None:
        return self._chunks[0][0] if self._chunks else None

    def at(self, position: int) -> tuple[Key, T]:
        """The entry at a position from 0. Raises IndexError."""
        for chunk in self._chunks:
            if position < len(chunk):
                return chunk[position]
            position -= len(chunk)
        raise IndexError(position)

    def __len__(self) -> int:
        return self._len


class Runs(Generic[T]):
    """A mutable sorted sequence in immutable chunks, so that `freeze` copies pointers to chunks only."""

    __slots__ = ("_chunks", "_frozen", "_len")

    def __init__(self) -> None:
        self._chunks: list[tuple[tuple[Key, T], ...]] = []
        self._len = 0
        self._frozen: FrozenRuns[T] | None = None

    def add(self, key: Key, value: T) -> T | None:
        """Insert; the key must not be there yet. Returns the last entry that sorts before it."""
        self._frozen = None
        self._len += 1
        if not self._chunks:
            self._chunks.append(((key, value),))
            return None
        last = self._chunks[-1]
        if last[-1][0] < key:  # most come in order: no search
            if len(last) < _CHUNK:
                self._chunks[-1] = (*last, (key, value))
            else:  # a new chunk rather than halves of a full one
                self._chunks.append(((key, value),))
            return last[-1][1]
        at = max(0, bisect_right(self._chunks, key, key=_first_key) - 1)
        chunk = self._chunks[at]
        where = bisect_right(chunk, key, key=_key)
        ahead = chunk[where - 1][1] if where else None
        chunk = (*chunk[:where], (key, value), *chunk[where:])
        if len(chunk) <= _CHUNK:
            self._chunks[at] = chunk
        else:
            half = len(chunk) // 2
            self._chunks[at : at + 1] = [chunk[:half], chunk[half:]]
        return ahead

    def remove(self, key: Key) -> None:
        """Raises KeyError when the key is not there."""
        at = bisect_right(self._chunks, key, key=_first_key) - 1
        chunk = self._chunks[at] if at >= 0 else ()
        where = bisect_left(chunk, key, key=_key)
        if where == len(chunk) or chunk[where][0] != key:
            raise KeyError(key)
        self._frozen = None
        self._len -= 1
        if len(chunk) == 1:
            del self._chunks[at]
        else:
            self._chunks[at] = chunk[:where] + chunk[where + 1 :]

    def first(self) -> tuple[Key, T] | None:
        return self._chunks[0][0] if self._chunks else None

    def __len__(self) -> int:
        return self._len

    def freeze(self) -> FrozenRuns[T]:
        if self._frozen is None:
            self._frozen = FrozenRuns(tuple(self._chunks), self._len)
        return self._frozen

    @classmethod
    def thaw(cls, frozen: FrozenRuns[T]) -> Runs[T]:
        made = cls()
        made._chunks, made._len, made._frozen = list(frozen._chunks), frozen._len, frozen
        return made


def _key(item: tuple[Key, object]) -> Key:
    return item[0]


def _first_key(chunk: tuple[tuple[Key, object], ...]) -> Key:
    return chunk[0][0]
