"""An object somewhere else, as one tenant can reach it with its own credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from shoal.core import Conflict, Invalid, ShoalError, Unavailable

LONGEST_URL = 4096
"""Characters. S3 keys have 1,024 bytes, which may be three times as long when they are quoted."""

PATIENCE_S = 10.0
LEAST_BYTES_PER_S = 64 * 1024
"""A source that is slower than this after `PATIENCE_S` is given up: a reader would wait for ever."""


class Changed(Conflict):
    """The object is not the one that was asked for: another version of it came in between."""


class Uncacheable(ShoalError):
    """The object can be read, but not kept: nothing tells one version of it from the next, or it has no size."""

    code = "uncacheable"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object: `tag` is equal only for equal contents. Without `exact`, only a whole read can be
    checked, not a part (a weak ETag)."""

    tag: str
    size: int
    exact: bool = True


class Source(Protocol):
    """One object (or a folder of them) and the rights of one tenant to it."""

    @property
    def url(self) -> str:
        """The same for all tenants that mean the same object, credentials left out."""
        ...

    @property
    def rights(self) -> object:
        """The credentials: equal only for the same ones."""
        ...

    def head(self) -> Version:
        """What it is now. Raises NotFound, Forbidden, Uncacheable, or Unavailable where nothing can be said."""
        ...

    def read(self, start: int, length: int, version: Version | None) -> Iterator[bytes]:
        """Bytes from `start`, `length` of them or fewer at the end. Raises Changed where the object is not of that
        version, and what `head` raises."""
        ...

    def children(self) -> Iterator[tuple[str, int]]:
        """(name below this, size) of all objects below this URL."""
        ...

    def child(self, name: str) -> Source: ...


def key_of(url: str) -> str:
    """The name of an object in the store."""
    return blake2b(url.encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()


def check_url(url: str) -> None:
    """Raises Invalid for one that could mean something else elsewhere."""
    if len(url) > LONGEST_URL:
        raise Invalid(f"the URL is longer than {LONGEST_URL} characters", where="url")
    if any(ord(one) < 32 or ord(one) == 127 for one in url):
        raise Invalid("the URL has a control character", where="url", hint="quote it, such as %0A")


def in_time(parts: Iterator[bytes], clock: Callable[[], float]) -> Iterator[bytes]:
    """The parts as they come. Raises Unavailable when they come too slowly."""
    began, got = clock(), 0
    for part in parts:
        got += len(part)
        yield part
        late = clock() - began - PATIENCE_S
        if late > 0 and got < late * LEAST_BYTES_PER_S:
            raise Unavailable(f"the source sent {got} bytes in {late + PATIENCE_S:.0f} s and was given up")
