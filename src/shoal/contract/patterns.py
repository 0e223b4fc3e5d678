"""Tenants' regular expressions, on an engine whose time is linear in the text: RE2, which never backtracks.

With Python's own `re`, or any engine that backtracks, one pattern such as `(a+)+$` and one line would hold up the
server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol, cast

_MEMORY_BYTES = 1 << 20
"""A compiled pattern and what it needs to match; beyond it a pattern is refused."""


class Match(Protocol):
    def group(self, group: int, /) -> bytes | None: ...

    def groupdict(self) -> Mapping[str, bytes | None]: ...


class Pattern(Protocol):
    """Searches bytes, UTF-8 where it is text."""

    @property
    def groups(self) -> int: ...

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def search(self, text: bytes, /) -> Match | None: ...


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Pattern:
    """Raises ValueError, with what is wrong, for what is no RE2 expression or too large a one."""
    # Only manifests with patterns need it, so it is not part of a server's start.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    try:
        return cast(Pattern, re2.compile(pattern, options))
    except re2.error as error:
        [what] = error.args
        raise ValueError(what.decode(errors="replace") if isinstance(what, bytes) else str(what)) from None
