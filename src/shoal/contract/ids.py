"""Names for jobs and what else is kept: unique, short enough to type, and in the order in which they were given.

The order is for the database: jobs that live at the same time stand on the same pages of every index, so that a group
of writes touches few of them. With random names each event of each job dirtied a page of its own.
"""

from __future__ import annotations

import random

from shoal.core import Clock

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: no letter that is taken for a digit."""

_DIGITS = 12
_CHANCE_BITS = 20
_TIME_BITS = 5 * _DIGITS - _CHANCE_BITS
_EPOCH_MS = 1_767_225_600_000
"""2026-01-01: milliseconds since then last 34 years."""


class Ids:
    """Milliseconds followed by random bits. The random bits keep ids apart when processes share a database, or when a
    clock is set back. Within a process each id is above the one before. Ids are names, not secrets."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chance = random.Random(random.SystemRandom().getrandbits(128))  # noqa: S311 - one read of entropy for all
        self._last = 0

    def new(self, letter: str) -> str:
        """Such as j-0sq4x7k2v9fm, where the letter says of what."""
        drawn = _first_of(self._clock.now()) | self._chance.getrandbits(_CHANCE_BITS)
        self._last = max(self._last + 1, drawn)
        return _spelt(letter, self._last)


def lowest_id(letter: str, at: float) -> str:
    """No id that is given out from this time on is below it."""
    return _spelt(letter, _first_of(at))


def _first_of(at: float) -> int:
    return (int(at * 1000) - _EPOCH_MS) % (1 << _TIME_BITS) << _CHANCE_BITS


def _spelt(letter: str, number: int) -> str:
    digits = ""
    for _ in range(_DIGITS):
        digits = _ALPHABET[number & 31] + digits
        number >>= 5
    return f"{letter}-{digits}"
