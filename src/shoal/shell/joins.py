"""Puts the outputs of pieces together: the command that does it here, and sums."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shoal.shell.annotations.model import Split

_WIDTH = 7
"""Of each number that `wc` writes where it reads a pipe and counts several things."""


def joining_command(way: Split, argv: Sequence[str], inputs: Collection[int], descriptors: Sequence[int]) -> list[str]:
    """The command without its inputs (positions of `argv`). A merge reads the descriptors, others their stdin."""
    words = [word for at, word in enumerate(argv) if at not in inputs]
    if way is Split.MERGE:
        return [words[0], "-m", *words[1:], *(f"/dev/fd/{one}" for one in descriptors)]
    return words


def added(outputs: Sequence[bytes]) -> bytes:
    """Numbers in equal places added. Where there are other words, as of a command that failed, the outputs stay."""
    rows = [one.split() for one in outputs]
    if not rows[0] or len({len(row) for row in rows}) != 1 or not all(word.isdigit() for row in rows for word in row):
        return b"".join(outputs)
    totals = [b"%d" % sum(map(int, column)) for column in zip(*rows, strict=True)]
    return b" ".join(totals if len(totals) == 1 else [one.rjust(_WIDTH) for one in totals]) + b"\n"
