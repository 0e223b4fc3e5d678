"""Fields that contradict each other. Values may be a checked manifest's or an unchecked mapping."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from shoal.contract.manifest.path import Path
from shoal.contract.manifest.readers import read_secrets
from shoal.core import PriorityClass, Share

_LONGEST_NAME = 63

Conflict = tuple[Path, str, str]
"""Fields that contradict each other: which field, what, hint."""


def conflicts(values: dict[str, Any]) -> list[Conflict]:
    """What contradicts itself in a job. `values` may also be an unchecked mapping."""
    found: list[Conflict] = []
    if values.get("command") is not None and values.get("entrypoint") is not None:
        found.append((("entrypoint",), "there is a command already", "keep one of `command` and `entrypoint`"))
    if values.get("command") is None and values.get("entrypoint") is None:
        found.append((("command",), "the job has nothing to run", "give a `command` or an `entrypoint`"))
    name, array = values.get("name"), values.get("array")
    if isinstance(name, str) and isinstance(array, str):
        longest = len(array.partition("%")[0].rpartition("-")[2].rpartition(",")[2].partition(":")[0])
        if len(name) + 1 + longest > _LONGEST_NAME:
            what = "with an index behind it, it is too long for the name of a task"
            found.append((("name",), what, f"at most {_LONGEST_NAME - 1 - longest} characters here"))
    ranks, per_node = values.get("ranks", 1), values.get("ranks_per_node")
    if isinstance(per_node, int) and per_node > 0:
        if not isinstance(ranks, int):
            found.append((("ranks_per_node",), "the number of ranks may change", "give `ranks` as one number"))
        elif ranks % per_node:
            what = f"{ranks} ranks cannot be {per_node} on each node"
            found.append((("ranks_per_node",), what, "make `ranks` a multiple of it"))
    if values.get("network") is False and ranks != 1:
        found.append((("network",), "the ranks of a gang meet over the network", "leave it out, or ask for one rank"))
    if values.get("environment") is not None and "environment" in (values.get("extensions") or ()):
        found.append((("environment",), "it stands in `extensions` as well", "say once where the software is"))
    if values.get("artifacts") is not None and "artifacts" in _part(_part(values, "extensions"), "results"):
        found.append((("artifacts",), "they stand in `extensions` as well", "say once which files are kept"))
    return found + shared_conflicts(values, PriorityClass.BEST_EFFORT)


def shared_conflicts(values: dict[str, Any], usual: PriorityClass) -> list[Conflict]:
    """Those between fields that every kind of manifest has; `usual` is the class of one that names none."""
    found: list[Conflict] = _conflicts_of_share(values, usual)
    if values.get("files") and values.get("bundle") is not None:
        found.append((("files",), "the files are bundled already", "keep one of `files` and `bundle`"))
    env, secrets = values.get("env"), read_secrets(values.get("secrets"))
    if isinstance(env, dict) and isinstance(secrets, dict) and env and secrets:
        for name in sorted(str(name) for name in env.keys() & secrets.keys()):
            what = "the name is in `env` as well"
            found.append((("secrets", name), what, "keep it in one of `env` and `secrets`"))
    return found


def _conflicts_of_share(values: dict[str, Any], usual: PriorityClass) -> list[Conflict]:
    asked = _part(_part(values, "resources"), "accelerators")
    share, path = asked.get("share", Share.EXCLUSIVE), ("resources", "accelerators")
    if share not in set(Share):
        return []
    if share == Share.EXCLUSIVE:
        what = "an exclusive accelerator comes with all of its memory"
        return [((*path, "memory"), what, "remove it, or name a `share`")] if asked.get("memory") else []
    found: list[Conflict] = []
    if not asked.get("memory"):
        found.append(((*path, "memory"), "a share needs memory of its own", "say how much, such as 20GiB"))
    count = asked.get("count", 1)
    if count == 0:
        found.append(((*path, "share"), "there is no accelerator to share", "ask for one"))
    elif isinstance(count, int) and count > 1:
        hint = "`count: 1`, or whole accelerators: leave out `share`"
        found.append(((*path, "count"), "a rank shares one accelerator", hint))
    if share == Share.BEST_EFFORT and (ranks := values.get("ranks", 1)) != 1:
        # A rank's collective stays on its device until the last rank's has begun, which may wait at another gate.
        many = ranks if isinstance(ranks, int) else "several"
        what = f"{many} ranks that wait for each other cannot be kept from holding up others on their devices"
        found.append(((*path, "share"), what, "ask for one rank, or whole accelerators: leave out `share`"))
    if values.get("priority_class", usual) != share:
        what = f"a {share} share is for {share} work"
        found.append(((*path, "share"), what, f"write `priority_class: {share}`, or share it otherwise"))
    return found


def _part(values: Any, name: str) -> dict[str, Any]:
    """A part of a manifest that may be checked or not."""
    part = values.get(name)
    return part.__dict__ if isinstance(part, BaseModel) else part if isinstance(part, dict) else {}
