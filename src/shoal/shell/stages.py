"""Stages and the places where they may run: a call, its annotation and the state of the sites become a stage with the
places it may run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from shoal.shell.annotations import Annotation, Match, NotUnderstood, Split, match
from shoal.shell.calls import Call, Open
from shoal.shell.sites import Sites

_LOCALE = ("LANG", "LANGUAGE", "LC_")
_PLAIN_LOCALES = frozenset({"", "C", "POSIX"})
_ALWAYS = ("TZ", "POSIXLY_CORRECT")


LINK_BYTES_PER_S = 70e6
"""Until it is measured."""


@dataclass(frozen=True, slots=True)
class Reachable:
    """A site as it is now: `tools` are the paths of programs that are the same there, `locales` those it has too."""

    name: str
    ready: bool
    why: str = ""
    tools: frozenset[str] = frozenset()
    locales: frozenset[str] = frozenset()
    same_libc: bool = True
    namespaces: bool = True
    link_bytes_per_s: float = LINK_BYTES_PER_S
    round_trip_s: float = 0.02
    mount_bytes_per_s: float = 10e6


@dataclass(frozen=True, slots=True)
class Piece:
    """Inputs of a command that lie on one site; positions of its arguments."""

    site: str
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """`sites` are those where it may run beside here; `refusals` say of the others why not. `data` are the bytes that
    it reads from each site. `pieces`: it may be split over sites. `output`: the site on which its stdout is a file."""

    call: Call
    match: Match | None
    sites: frozenset[str]
    why_here: str
    data: Mapping[str, float] = field(default_factory=dict)
    files: int = 0
    pieces: tuple[Piece, ...] = ()
    output: str = ""

    @property
    def title(self) -> str:
        return self.call.name if self.match is None else self.match.annotation.title


UNKNOWN_BYTES = 16e6
"""Of a file that was never read: enough that it is worth a round trip."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the agent knows when it looks at a call. `leaves_alone`: whether a file below a mount that is open here may
    be written over there."""

    sites: Sites
    reachable: Mapping[str, Reachable]
    annotations: Mapping[str, Sequence[Annotation]]
    sizes: Mapping[str, float]
    leaves_alone: Callable[[str], bool] = lambda _: True


def examine(call: Call, known: Known) -> Stage:
    """The stage that a call is."""
    try:
        found = match(known.annotations.get(call.name, ()), call.argv, call.environ)
    except NotUnderstood as error:
        return Stage(call, None, frozenset(), str(error))
    if why := _never(call, found):
        return Stage(call, found, frozenset(), why)
    reads, writes = [absolute(one, call.cwd) for one in found.reads], [absolute(one, call.cwd) for one in found.writes]
    if found.stdin and call.stdin.kind is Open.FILE:
        reads.append(call.stdin.path)
    if (found.cwd or found.recursive) and not found.reads:
        reads.append(call.cwd)
    where = {path: _site_of(path, known.sites) for path in (*reads, *writes)}
    data: dict[str, float] = {}
    for path in reads:
        if site := where[path]:
            data[site] = data.get(site, 0.0) + known.sizes.get(path, UNKNOWN_BYTES)
    allowed, why = set[str](), "no data of a site comes to it"
    for each in known.reachable.values():
        reason = _why_not(call, found, each, known.sites, where)
        if reason is None:
            allowed.add(each.name)
        elif each.name in where.values() or known.sites.of_path(call.cwd) is not None:
            why = reason
    pieces = () if allowed & set(data) else _pieces(call, found, known, where)
    output = _output(call, known) if allowed else ""
    return Stage(call, found, frozenset(allowed), "" if allowed else why, data, len(reads), pieces, output)


def _output(call: Call, known: Known) -> str:
    """The site on which a command can write its output itself: to a file that no other process here has open, since
    these would share a place in it."""
    told = call.stdout
    if told.kind is not Open.FILE or told.shared or call.one_output or told.flags & os.O_ACCMODE == os.O_RDONLY:
        return ""
    site = known.sites.of_path(told.path)
    if site is None or told.path.endswith(" (deleted)") or not known.reachable[site.name].namespaces:
        return ""
    return site.name if known.leaves_alone(told.path) else ""


def _never(call: Call, found: Match) -> str:
    """Why it runs here whatever the site; empty where it need not."""
    if call.stdout.kind is Open.CLOSED or call.stderr.kind is Open.CLOSED:
        return "its output is closed"
    if found.stdin and (call.stdin.kind in (Open.TERMINAL, Open.OTHER, Open.CLOSED, Open.OUTER) or call.stdin.shared):
        return "others read its input too"
    if call.stdout.kind is Open.TERMINAL and (found.annotation.terminal or "terminal" in found.effects):
        return "it writes to a terminal"
    if call.ignores_pipe:
        return "it is to survive a closed pipe"
    if call.limited:
        return "it has limits of `ulimit`"
    if any(name.startswith("LD_") and name != "LD_LIBRARY_PATH" for name in call.environ):
        return "its loader is changed by a variable"
    mine = [absolute(one, call.cwd) for one in found.reads] + (
        [call.stdin.path] if call.stdin.kind is Open.FILE else []
    )
    if call.stdout.kind is Open.FILE and call.stdout.path in mine:
        return "it writes to a file that it reads"
    if (call.stdin.kind is Open.FILE and found.stdin) and call.stdin.flags & os.O_ACCMODE != os.O_RDONLY:
        return "its input is open for writing"
    return ""


def _why_not(call: Call, found: Match, site: Reachable, sites: Sites, where: Mapping[str, str | None]) -> str | None:
    """Why it cannot run at the site; None where it can."""
    if not site.ready:
        return f"{site.name} is not connected: {site.why}"
    if call.path not in site.tools:
        return f"{site.name} has another {call.path}, or none"
    for path, name in where.items():
        if name != site.name and not (path == call.stdin.path and call.stdin.kind is Open.FILE and name is None):
            return f"{path} is not on {site.name}"
    relative = any(not one.startswith("/") for one in (*found.reads, *found.writes))
    if (found.cwd or relative) and _site_of(call.cwd, sites) != site.name:
        return f"its folder {call.cwd} is not on {site.name}"
    if not site.namespaces and (found.annotation.names or found.cwd or relative or found.changes):
        return f"{site.name} has no namespaces, and its output may name files"
    for value in locales_of(call.environ):
        if value not in site.locales or not site.same_libc:
            return f"{site.name} lacks the locale {value}" if site.same_libc else f"{site.name} has another C library"
    return None


def locales_of(environ: Mapping[str, str]) -> set[str]:
    """Those that a command would use, without the plain ones."""
    told = {value for name, value in environ.items() if name in _LOCALE[:1] or name.startswith(_LOCALE[2])}
    return told - _PLAIN_LOCALES


def absolute(path: str, cwd: str) -> str:
    """Without a look at the disk. A `..` is taken away only where it begins a path, since the folder is known."""
    if path.startswith("/"):
        return path if len(path) < 2 else path.rstrip("/") or "/"
    folder = cwd
    while path == ".." or path.startswith("../"):
        folder, path = folder.rpartition("/")[0] or "/", path[3:]
    while path == "." or path.startswith("./"):
        path = path[2:].lstrip("/")
    return f"{folder.rstrip('/')}/{path}".rstrip("/") or "/"


def _site_of(path: str, sites: Sites) -> str | None:
    if "/../" in path + "/":
        return None
    found = sites.of_path(path)
    return None if found is None else found.name


def _pieces(call: Call, found: Match, known: Known, where: Mapping[str, str | None]) -> tuple[Piece, ...]:
    """The inputs by site, in their order, where all lie on sites that could each run it."""
    if found.split not in (Split.CONCAT, Split.MERGE) or found.cwd or found.changes or not found.inputs:
        return ()
    own = [(where.get(absolute(call.argv[at], call.cwd)), at) for at in found.inputs]
    if len(own) != len(found.reads) or any(site is None for site, _ in own):
        return ()
    pieces = tuple(
        Piece(site, tuple(at for _, at in group)) for site, group in groupby(own, lambda one: one[0]) if site
    )
    for site in {one.site for one in pieces}:
        if site not in known.reachable:
            return ()
        there = {path: name for path, name in where.items() if name == site}
        if any(not call.argv[at].startswith("/") for at in found.inputs) or _why_not(
            call, found, known.reachable[site], known.sites, there
        ):
            return ()
    return pieces


def environment_for(call: Call, found: Match) -> dict[str, str]:
    """What a command is told of the caller's environment over there."""
    wanted = {*_ALWAYS, *found.annotation.environment}
    told = {name: value for name, value in call.environ.items() if name in wanted or name.startswith(_LOCALE)}
    for name in ("HOME", "USER", "LOGNAME"):
        if name in call.environ:
            told[name] = call.environ[name]
    return {**told, "PATH": "/usr/local/bin:/usr/bin:/bin", "PWD": call.cwd}
