"""Contradictions in a configuration although each field by itself may be right: found in the document as it was
written, so that it is reported together with fields that are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf
from typing import Any

from shoal.core import Invalid, PriorityClass

_MATCHERS = ("cgroup", "pids", "label")
_NOT_FOR: Mapping[str, tuple[str, ...]] = {
    PriorityClass.GUARANTEED: ("weight", "min_share"),
    PriorityClass.BEST_EFFORT: ("slo", "cpus"),
}


def contradictions(document: Mapping[str, Any], cpus: int | None = None) -> Iterator[Invalid]:
    """Every one, with the field where it stands. Values of a wrong type are reported elsewhere. `cpus` are those of the
    machine; None where what is promised need not fit."""
    listed = document.get("groups")
    groups = [one if isinstance(one, Mapping) else {} for one in listed] if isinstance(listed, list | tuple) else []
    for at, group in enumerate(groups):
        where = f"groups[{at}]"
        yield from _of_group(group, where)
        reports = group.get("reports")
        if isinstance(reports, Mapping):
            yield from _of_reports(reports, f"{where}.reports")
    for second, group in enumerate(groups):
        for first, earlier in enumerate(groups[:second]):
            shared = _shared(earlier, group)
            if shared:
                text = f"{shared} {'are' if shared.startswith('pids') else 'is'} of group {_called(earlier, first)} too"
                hint = "a process belongs to one group"
                yield Invalid(f"{text}: {hint}", where=f"groups[{second}]")
    if cpus is not None:
        yield from _of_promises(groups, cpus)
    names = [group.get("name") for group in groups if isinstance(group.get("name"), str)]
    for name in sorted({str(one) for one in names if names.count(one) > 1}):
        yield Invalid(f"two groups are called {name}", where="groups")


def _of_promises(groups: Sequence[Mapping[str, Any]], cpus: int) -> Iterator[Invalid]:
    """CPUs that are promised: each group's exist, and where there is best-effort work one is left for it and for all
    that is in no group."""
    promised = [
        (at, each) for at, group in enumerate(groups)
        if isinstance(each := group.get("cpus"), int | float) and 0 < each < inf and each is not True
    ]  # fmt: skip
    there = f"this machine has {cpus}"
    for at, each in promised:
        if each > cpus:
            yield Invalid(f"{each:g} CPUs are promised, {there}", where=f"groups[{at}].cpus")
    total = sum(ceil(each) for _, each in promised)
    beside = any(group.get("class") == PriorityClass.BEST_EFFORT for group in groups)
    if beside and cpus <= total and all(each <= cpus for _, each in promised):
        text = f"{total} CPUs are promised, {there}: leave one for best-effort groups and all other work"
        yield Invalid(text, where="groups")


def _of_group(group: Mapping[str, Any], where: str) -> Iterator[Invalid]:
    given = [name for name in _MATCHERS if group.get(name)]
    if len(given) > 1:
        yield Invalid(f"give exactly one of cgroup, pids and label, not {' and '.join(given)}", where=where)
    elif not given and group:
        yield Invalid("give one of cgroup, pids and label: which processes are it?", where=where)
    for name in _NOT_FOR.get(str(group.get("class")), ()):
        if name in group:
            yield Invalid(f"{name} means nothing for a {group['class']} group", where=f"{where}.{name}")
    cgroup = group.get("cgroup")
    if isinstance(cgroup, str) and cgroup:
        parts = [part for part in cgroup.split("/") if part]
        if not parts:
            yield Invalid("the root holds all processes: name a cgroup below it", where=f"{where}.cgroup")
        elif {".", ".."} & set(parts):
            yield Invalid(f"must be a path without . and .., not {cgroup!r}", where=f"{where}.cgroup")


def _of_reports(reports: Mapping[str, Any], where: str) -> Iterator[Invalid]:
    lines, gateway = reports.get("lines"), reports.get("gateway")
    if bool(lines) == bool(gateway):
        yield Invalid("give either lines or gateway", where=where)
    if gateway and not reports.get("models"):
        yield Invalid("which of the gateway's models are its work?", where=where)
    if lines and not gateway:
        for name in ("token_file", "tenant", "models"):
            if reports.get(name):
                yield Invalid(f"{name} means nothing without a gateway", where=f"{where}.{name}")


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What both groups claim; empty if nothing."""
    label = one.get("label")
    if label and label == other.get("label"):
        return f"label {label}"
    pids = [frozenset(map(str, each)) if isinstance(each := group.get("pids"), list | tuple) else frozenset[str]()
            for group in (one, other)]  # fmt: skip
    if both := pids[0] & pids[1]:
        return f"pids {', '.join(sorted(both))}"
    paths = [each.strip("/") if isinstance(each := group.get("cgroup"), str) else "" for group in (one, other)]
    if all(paths):
        inner, outer = sorted(paths, key=len, reverse=True)
        if inner == outer or (f"{inner}/".startswith(f"{outer}/") and one.get("class") != other.get("class")):
            return f"cgroup {inner}"
    return ""


def _called(group: Mapping[str, Any], at: int) -> str:
    return str(group.get("name") or at)
