"""Lists of CPUs and nodes as the kernel writes them: `0-3,8`."""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str) -> frozenset[int]:
    """Raises ValueError for anything else."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def render(cpus: Iterable[int]) -> str:
    parts: list[tuple[int, int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1] = (parts[-1][0], cpu)
        else:
            parts.append((cpu, cpu))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
