"""Diagnosis of Shell on this machine and on its sites."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shoal.core import Capability, ShoalError
from shoal.shell.plan import size
from shoal.shell.sites import Sites
from shoal.shell.table import BUILD_IT, missing_native

NEEDED = ("front end", "ssh", "sites")
"""Without these nothing runs elsewhere."""


def examine(home: Path) -> Sequence[Capability]:
    """This machine, and each site with what differs there."""
    return [*here(), *_sites(home)]


def here() -> Sequence[Capability]:
    missing = missing_native()
    ssh, sandbox = shutil.which("ssh"), shutil.which("bwrap")
    return [
        Capability("front end", missing is None, "built" if missing is None else f"{missing} was not built",
                   "" if missing is None else f"every command runs here; {BUILD_IT}"),
        Capability("ssh", ssh is not None, ssh or "not installed", "" if ssh else "no site can be reached"),
        Capability("plans", sandbox is not None, sandbox or "bubblewrap is not installed",
                   "" if sandbox else "`shoal shell plan` is not possible"),
        *[Capability(f"shell {one}", bool(found := shutil.which(one)), found or "not installed",
                     "" if found else f"scripts of {one} cannot be run") for one in ("bash", "dash", "zsh")],
    ]  # fmt: skip


def _sites(home: Path) -> Sequence[Capability]:
    from shoal.shell.agent.client import ask, ensure_running

    names = list(Sites.of(home).sites)
    if not names:
        return [Capability("sites", False, "none", "every command runs here; `shoal shell site add` adds one")]
    found = [Capability("sites", True, ", ".join(names))]
    try:
        ensure_running(home)
    except ShoalError as error:
        return [*found, Capability("agent", False, error.what, "every command runs here")]
    for name in names:
        ask(home, do="connect", site=name)
    told = ask(home, do="status") or {"sites": []}
    for one in told["sites"]:
        found += _site(one)
    return found


def _site(told: dict[str, Any]) -> Sequence[Capability]:
    name = f"site {told['name']}"
    if not told["ready"]:
        return [Capability(name, False, told["why"], "its data is read through the mount")]
    found = [Capability(name, True, f"connected to {told['host']}, {rates(told)}")]
    if not told["namespaces"]:
        found.append(Capability(f"{name}: namespaces", False, "bubblewrap does not work there",
                                "commands that may print names run here, and nothing confines the others"))  # fmt: skip
    if told["differ"]:
        shown = ", ".join(told["differ"][:8]) + (" ..." if len(told["differ"]) > 8 else "")
        found.append(Capability(f"{name}: same programs", False, f"{len(told['differ'])} differ: {shown}",
                                "these commands run here"))  # fmt: skip
    return found


def rates(told: Mapping[str, Any]) -> str:
    """What was measured of a site that is connected."""
    found = [f"round trip {1e3 * told['round_trip_s']:.1f} ms"]
    for key, what in (("bytes_per_s", ""), ("mount_bytes_per_s", " through the mount")):
        if told[key]:
            found.append(f"{size(told[key])} a second{what}")
    return ", ".join(found)


def as_json(one: Capability) -> dict[str, Any]:
    return asdict(one)
