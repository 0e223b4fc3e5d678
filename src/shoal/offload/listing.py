"""A profile for people: by line, by backend, and beside the program's source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.offload.profile import REASONS, CallRecord


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds and calls by backend, those that stayed with the plain library by reason, and the seconds less than the
    plain library is estimated to take."""

    seconds: dict[str, float]
    calls: dict[str, int]
    stayed: dict[str, int]
    saved: float


def summary(records: Sequence[CallRecord]) -> Summary:
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    stayed: dict[str, int] = defaultdict(int)
    for each in records:
        seconds[each.backend] += each.seconds
        calls[each.backend] += each.calls
        if each.backend == "plain":
            stayed[each.reason] += each.calls
    return Summary(dict(seconds), dict(calls), dict(stayed), sum(each.saved for each in records))


def told(found: Summary) -> str:
    """One line: calls and seconds by backend, and the most frequent reason to stay. Empty without calls."""
    if not found.calls:
        return ""
    parts = [f"{found.calls[name]} calls in {name} {found.seconds[name]:.2f} s" for name in sorted(found.calls)]
    if found.saved > 0:
        parts.append(f"about {found.saved:.2f} s saved")
    if found.stayed:
        reason = max(found.stayed, key=lambda each: found.stayed[each])
        parts.append(f"most that stayed: {REASONS[reason]}")
    return ", ".join(parts)


def sentence(record: CallRecord) -> str:
    text = REASONS[record.reason]
    return f"{text}: {record.detail}" if record.detail else text


def annotated(path: Path, records: Sequence[CallRecord]) -> list[str]:
    """The source with seconds and backends before the lines that have any. Raises OSError."""
    by_line: dict[int, list[CallRecord]] = defaultdict(list)
    for each in records:
        if each.file == str(path):
            by_line[each.line].append(each)
    lines = []
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        own = by_line.get(number, ())
        seconds = sum(each.seconds for each in own)
        backends = ",".join(sorted({each.backend for each in own}))
        before = f"{seconds * 1e3:9.2f} ms {backends:14.14}" if own else " " * 27
        lines.append(f"{before} {number:4} {text}".rstrip())
    return lines
