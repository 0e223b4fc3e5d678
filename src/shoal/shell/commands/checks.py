"""Checks of `shoal shell site` before it keeps a site."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.core import Invalid, NotFound, ShoalError, Unavailable
from shoal.shell.agent.client import ask, ensure_running
from shoal.shell.sites import Site, Sites, shell_folder


def check_site(home: Path, site: Site) -> dict[str, Any]:
    """Log in and compare the folders. Raises Unavailable, Invalid."""
    ensure_running(home)
    reload(home)
    told = ask(home, do="connect", site=site.name)
    if not told or not told["ready"]:
        why = told["why"] if told else "the agent ended"
        raise Unavailable(f"the site cannot be used: {why}", where=site.host,
                          hint=f"try `ssh {site.host} python3 --version`; it must work without a password")  # fmt: skip
    for mount, root in site.mounts.items():
        _compare(mount, root, told["folders"].get(mount))
    return {"namespaces": told["namespaces"], "same_tools": len(told["tools"])}


def _compare(mount: str, root: str, there: Sequence[str] | None) -> None:
    if there is None:
        raise Invalid(
            f"there is no folder {root} on the site", where="--at", hint="HERE=THERE: the folder there comes second"
        )
    try:
        here = {one.name for one in Path(mount).iterdir()}
    except OSError as error:
        raise Invalid(f"{mount} cannot be read here: {error.strerror}", where="--at", hint="mount it first") from error
    if (there and not here & set(there)) or (here and not there):
        raise Invalid(f"{mount} here and {root} there hold different files", where="--at",
                      hint="HERE=THERE: which folder there does the mount show?")  # fmt: skip


def restore(home: Path, before: Sites, name: str) -> None:
    """As it was before a site was tried."""
    with contextlib.suppress(ShoalError):
        known = before.sites.get(name)
        now = Sites.of(home)
        if known is not None:
            now.add(known)
        else:
            with contextlib.suppress(NotFound):
                now.remove(name)
        reload(home)


def reload(home: Path) -> None:
    """The agent, if one runs, reads the sites again."""
    ask(home, do="reload")


def own_annotations(home: Path) -> list[Path]:
    return sorted((shell_folder(home) / "annotations").glob("*.toml"))


def added(found: Mapping[str, Any]) -> None:
    mounts = ", ".join(f"{here} is {there}" for here, there in found["mounts"].items())
    print(f"site {found['name']} is kept: on {found['host']}, {mounts}")
    if found.get("namespaces") is False:
        print("  it has no namespaces (install bubblewrap there): commands that may print names of files run here")
