"""Choice of neighbouring stages on one site that work on pieces of their input at once. Pure. The site cuts the input
at ends of lines, since it alone knows how large it is; see `pieces`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.shell.annotations import Split
from shoal.shell.calls import Open
from shoal.shell.plan import Decision, join_of_pieces
from shoal.shell.stages import Stage, absolute

_BYTES, _UTF_8 = "bytes", "utf-8"


def on_cores(
    stages: Sequence[Stage], decisions: Sequence[Decision], reads: Sequence[str], bare: Sequence[str]
) -> dict[str, Any] | None:
    """What a site is told. `reads` are the inputs of the first stage there, `bare` its arguments without them. None
    where the first stage must have its input whole, or what it must be cannot be said."""
    first = stages[0]
    feeds = input_of(first, reads)
    if not feeds:
        return None
    copies = first.title == "cat" and len(bare) == 1
    last, join = 0, _join_of_first(first, len(feeds), copies=copies)
    if join is None:
        return None
    while join is Split.NEVER and last + 1 < len(stages):
        way = join_of_pieces(stages[last + 1])
        if way is None or not _apart(stages[last + 1]):
            break
        last, join = last + 1, way
    own = stages[: last + 1]
    text = text_of(own)
    if (copies and not last) or text is None:
        return None
    whole = max(1.0, decisions[0].in_bytes)
    seconds = sum(
        decision.in_bytes / whole / one.match.annotation.bytes_per_s
        for one, decision in zip(own, decisions, strict=False)
        if one.match is not None
    )
    return {
        "feeds": feeds, "last": last, "join": str(join), "copies": copies, "seconds": seconds, "text": text,
        "must": False,
        "words": [list(bare), *(list(one.call.argv) for one in own[1:])],
        "finds": [one.match is not None and one.match.annotation.finds for one in own],
    }  # fmt: skip


def must_be_text(stages: Sequence[Stage], reads: Sequence[str]) -> dict[str, Any] | None:
    """For pieces on several sites: what is taken for binary there would not be taken so in the whole, or the other
    way round. None where that plays no part, or where it cannot be said."""
    text = text_of(stages[1:])
    if not text:
        return None
    return {
        "feeds": [[one, 0] for one in reads], "last": len(stages) - 1, "join": "", "copies": False, "seconds": 0.0,
        "text": text, "must": True, "words": [],
        "finds": [one.match is not None and one.match.annotation.finds for one in stages],
    }  # fmt: skip


def input_of(first: Stage, reads: Sequence[str]) -> list[list[Any]]:
    """Files, each with the place where it begins to be read; none where its input is not files alone."""
    call, found = first.call, first.match
    if found is None or found.changes or found.recursive or found.few or not _apart(first):
        return []
    if found.stdin and call.stdin.kind is Open.FILE and not found.reads:
        return [[call.stdin.path, call.stdin.offset]]
    if found.inputs and len(found.inputs) == len(found.reads) and "reads-stdin" not in found.effects:
        return [[absolute(one, call.cwd), 0] for one in reads]
    return []


def text_of(stages: Sequence[Stage]) -> str | None:
    """What the input must be: empty where anything may be, None where that cannot be said."""
    wary = [one for one in stages if one.match and one.match.annotation.text and "any-bytes" not in one.match.effects]
    kinds = {_text_in(one.call.environ) for one in wary}
    if None in kinds:
        return None
    return _UTF_8 if _UTF_8 in kinds else _BYTES if kinds else ""


def _apart(one: Stage) -> bool:
    """Its errors do not go where its output goes: their order would be another."""
    return not one.call.one_output


def _join_of_first(first: Stage, files: int, *, copies: bool) -> Split | None:
    found = first.match
    assert found is not None
    if copies:
        return Split.NEVER
    if files > 1 and found.join is not Split.MERGE:
        return None
    if found.across and "named" not in found.effects:
        return Split.NEVER
    if found.join is Split.MERGE or (found.join is Split.SUM and Split.SUM.value in found.effects):
        return found.join if "named" not in found.effects else None
    return None


def _text_in(environ: Mapping[str, str]) -> str | None:
    told = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "C"
    if told in ("C", "POSIX"):
        return _BYTES
    return _UTF_8 if told.lower().replace("-", "").endswith(".utf8") else None
