"""The agent: answers the stages of pipelines, and the command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from shoal.core import Invalid, ShoalError
from shoal.shell import tools
from shoal.shell.agent.client import DRY
from shoal.shell.agent.collector import Collector, Pending
from shoal.shell.agent.connection import Connection
from shoal.shell.agent.door import Door
from shoal.shell.agent.groups import Group
from shoal.shell.agent.log import RunLog, shown
from shoal.shell.agent.mounts import LEAST_BYTES, leaves_alone
from shoal.shell.agent.neighbours import parent_of
from shoal.shell.agent.rates import steady
from shoal.shell.agent.relays import Ended, Relay
from shoal.shell.agent.trial import tried
from shoal.shell.annotations import Annotation, load
from shoal.shell.calls import Call, read_call
from shoal.shell.plan import Decision, plan, ratio_key, uncertain
from shoal.shell.sites import DOORS, Site, Sites, shell_folder
from shoal.shell.sockets import listen
from shoal.shell.stages import LINK_BYTES_PER_S, MOUNT_BYTES_PER_S, Known, Reachable, Stage, absolute, examine
from shoal.shell.table import STAGE, write_table
from shoal.shell.tally import Tally

log = structlog.get_logger("shoal.shell")

IDLE_S = 3600.0
"""Without any stage or request for so long, the agent ends; the next session starts another."""
_LOOK_IDLE_S = 60.0
_MOST_CALL = 8 << 20
_MOST_SIZES = 100_000


@dataclass
class _Learned:
    sizes: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)

    def saw_size(self, path: str, size: float) -> None:
        if len(self.sizes) < _MOST_SIZES:
            self.sizes[path] = size

    def saw_ratio(self, key: str, ratio: float) -> None:
        self.ratios[key] = steady(self.ratios.get(key), ratio, noise=4)


class Agent:
    """`home` is that of Shoal; its folder `shell` has the socket, the table and the logs."""

    def __init__(self, home: Path) -> None:
        self.folder = shell_folder(home)
        self.sites = Sites.of(home)
        self.annotations: Mapping[str, tuple[Annotation, ...]] = {}
        self.connections: dict[str, Connection] = {}
        self.doors: dict[str, Door] = {}
        self.log = RunLog(self.folder)
        self.learned = _Learned()
        self.reads = Tally()
        self._compared: dict[str, tuple[Mapping[str, Any] | None, frozenset[str]]] = {}
        self.counts = {"stages": 0, "away": 0, "moved_bytes": 0, "kept_bytes": 0}
        self.programs: dict[str, str] = {}
        self.locales: list[str] = []
        self._home = home
        self._collector = Collector(self._whole, str(STAGE))
        self._pipelines = 0
        self._active = 0.0
        self._plans: dict[str, list[dict[str, Any]]] = {}
        self._groups = set[asyncio.Task[None]]()
        self._stop = asyncio.Event()

    # --- life ---

    async def load(self) -> None:
        """Read sites and annotations (again), and write the table for new sessions. Raises Invalid, Unavailable."""
        own = sorted((self.folder / "annotations").glob("*.toml"))
        self.annotations = {name: tuple(found) for name, found in load(own).items()}
        self.sites = Sites.of(self._home)
        self.programs, self._compared = tools.programs(self.annotations), {}
        self.locales = self.locales or tools.locales()
        leaves = {name: not any(one.starts_others for one in found) for name, found in self.annotations.items()}
        write_table(self.folder, prefixes=self.sites.prefixes(), leaves=leaves)
        for name, connection in list(self.connections.items()):
            if self.sites.sites.get(name) != connection.site:
                del self.connections[name]
                await connection.close()
        for name, site in self.sites.sites.items():
            if name not in self.connections:
                self.connections[name] = Connection(site, lambda site=site: self._hello(site))  # type: ignore[misc]
        await self._load_doors()

    async def _load_doors(self) -> None:
        for name, door in list(self.doors.items()):
            if self.sites.sites.get(name) != door.site:
                del self.doors[name]
                await door.close()
        for name, site in self.sites.sites.items() if (self._home / DOORS).is_dir() else ():
            if name not in self.doors and site.port is None:
                door = Door(self._home, site, _limits(site))
                await door.open()
                self.doors[name] = door

    def _links(self) -> list[Connection | Door]:
        return [*self.connections.values(), *self.doors.values()]

    async def serve(self) -> None:
        """Until it is stopped or idle."""
        path = self.folder / "agent.sock"
        listener = listen(path, 0o600)
        await self.load()
        self._active = asyncio.get_running_loop().time()
        server = await asyncio.start_unix_server(self._serve, sock=listener)
        idle = asyncio.create_task(self._watch_idle())
        try:
            await self._stop.wait()
        finally:
            idle.cancel()
            server.close()
            path.unlink(missing_ok=True)
            for one in self._links():
                await one.close()

    async def _watch_idle(self) -> None:
        """Nothing tells that nothing happens, so it looks once a minute."""
        loop = asyncio.get_running_loop()
        idle = False
        while not idle:
            await asyncio.sleep(_LOOK_IDLE_S)
            idle = loop.time() - self._active > IDLE_S and not any(one.busy for one in self._links())
        self._stop.set()

    def _hello(self, site: Site) -> dict[str, Any]:
        names = {one for found in self.annotations.values() for each in found for one in each.home_files}
        return {
            "sites": dict(site.mounts), "tools": list(self.programs), "limits": _limits(site), "home": str(Path.home()),
            "locales": self.locales, "files": tools.home_files(names, Path.home()),
        }  # fmt: skip

    # --- requests ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._active = asyncio.get_running_loop().time()
        for one in self.connections.values():
            one.begin()
        kept = False
        try:
            pid, uid, _ = struct.unpack("=iii", writer.get_extra_info("socket").getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, 12))  # fmt: skip
            if uid != os.geteuid():
                return
            head = await reader.read(1)
            if not head:  # a launcher that only looked whether an agent runs
                return
            head += await reader.readexactly(4)
            size = struct.unpack("=I", head[1:])[0]
            if size > _MOST_CALL:
                return
            body = await reader.readexactly(size)
            if head[:1] == b"R":
                call = read_call(body)
                kept = await self._arrived(replace(call, pid=pid, parent=parent_of(pid)), reader, writer)
            elif head[:1] == b"J":
                answer = json.dumps(await self._request(json.loads(body))).encode()
                writer.write(struct.pack("=I", len(answer)) + answer)
                await writer.drain()
        except (EOFError, ConnectionError, ValueError, OSError) as error:
            log.debug("a request was not understood", error=str(error))
        finally:
            if not kept:
                writer.close()

    async def _request(self, told: Mapping[str, Any]) -> dict[str, Any]:
        try:
            match told.get("do"):
                case "status":
                    return self.status()
                case "reload":
                    await self.load()
                    return {"ok": True}
                case "connect":
                    connection = self.connections[told["site"]]
                    connection.begin()
                    await connection.settled()
                    return {"ready": connection.ready, "why": connection.why, **connection.welcome}
                case "reads":
                    return dict(self.reads.take())
                case "planned":
                    return {"stages": self._plans.pop(told["run"], [])}
                case "stop":
                    self._stop.set()
                    return {"ok": True}
                case other:
                    raise Invalid(f"{other!r} is no request")
        except (ShoalError, KeyError) as error:
            return {"error": str(error)}

    def status(self) -> dict[str, Any]:
        sites = [
            {
                "name": one.site.name, "host": one.site.host, "mounts": dict(one.site.mounts), "ready": one.ready,
                "why": one.why, "round_trip_s": one.round_trip_s if one.ready else None, "running": one.busy,
                "bytes_per_s": one.bytes_per_s, "mount_bytes_per_s": one.mount.bytes_per_s,
                "namespaces": one.welcome.get("namespaces"), "differ": self._different(one),
            }
            for one in self.connections.values()
        ]  # fmt: skip
        return {"pid": os.getpid(), "sites": sites, "annotations": len(self.annotations), **self.counts}

    def _same(self, connection: Connection) -> frozenset[str]:
        """Programs that are the same there; looked at once for each connection."""
        told, same = self._compared.get(connection.site.name, (None, frozenset[str]()))
        if told is not connection.welcome:
            there = connection.welcome.get("tools", {})
            same = frozenset(path for path, found in self.programs.items() if there.get(path) == found)
            self._compared[connection.site.name] = connection.welcome, same
        return same

    def _different(self, connection: Connection) -> list[str]:
        """Programs that differ there or are missing."""
        return sorted(set(self.programs) - self._same(connection)) if connection.ready else []

    # --- stages ---

    async def _arrived(self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is still needed."""
        self.counts["stages"] += 1
        writer.write(b"A\0\0\0\0")
        self._collector.add(Pending(call, reader, writer))
        return True

    async def _whole(self, pending: list[Pending]) -> None:
        try:
            await self._decide(pending)
        except Exception as error:  # whatever is wrong here, the commands run as without the agent
            log.exception("a pipeline could not be planned", error=str(error))
            for one in pending:
                _run_here(one)

    async def _decide(self, pending: list[Pending]) -> None:
        calls = [one.call for one in pending]
        for name in {site.name for call in calls if (site := self._site_of(call))}:
            self.connections[name].begin()
            await self.connections[name].settled()
        known = Known(self.sites, self.reachable(), self.annotations, self.learned.sizes, leaves_alone)
        stages = [examine(call, known) for call in calls]
        told = await self._try_out(stages, known.reachable)
        decisions = plan(stages, known.reachable, self.learned.ratios)
        if told:
            decisions = [replace(one, why=f"{one.why} ({told} tried on the first MiB)") for one in decisions]
        self._pipelines += 1
        concerned = any(one.data or one.sites or self._site_of(one.call) for one in stages)
        if calls[0].run.startswith(DRY):
            self._end_dry(pending, stages, decisions)
            return
        at = 0
        while at < len(stages):
            end = at + 1
            if decisions[at].away:
                while end < len(stages) and _joined(decisions[at], decisions[end]):
                    end += 1
                self._start(pending[at:end], stages[at:end], decisions[at:end], self._pipelines)
            else:
                _run_here(pending[at])
                for path in stages[at].paths:
                    self.reads.add(path, self.learned.sizes.get(path, 0.0))
                if concerned:
                    self._note(calls[at], decisions[at].why, "", self._pipelines)
            at = end

    async def _try_out(self, stages: list[Stage], reachable: Mapping[str, Reachable]) -> str:
        """The commands whose ratios were learned from a trial."""
        keys = uncertain(stages, reachable, self.learned.ratios)
        if not keys or stages[0].call.run.startswith(DRY):
            return ""
        found = await tried(stages, self.connections[next(iter(stages[0].data))], keys)
        for key, ratio in found.items():
            self.learned.saw_ratio(key, ratio)
        return ", ".join(dict.fromkeys(key.partition(" ")[0] for key in found))

    def _site_of(self, call: Call) -> Site | None:
        """The site that the call seems to have to do with."""
        found = self.sites.of_path(call.cwd) or self.sites.of_path(call.stdin.path)
        for word in call.argv[1:] if found is None else ():
            for site in self.sites.sites.values():
                if any(mount in word for mount in site.mounts) or site.holds(absolute(word, call.cwd)):
                    return site
        return found

    def reachable(self) -> dict[str, Reachable]:
        """The sites as they are now."""
        from shoal.shell.machine import libc

        found = {}
        for name, one in self.connections.items():
            found[name] = Reachable(
                name, one.ready, one.why, tools=self._same(one),
                locales=frozenset(one.welcome.get("locales", ())), same_libc=one.welcome.get("libc") == libc(),
                namespaces=bool(one.welcome.get("namespaces")), round_trip_s=round(one.round_trip_s, 3),
                link_bytes_per_s=one.bytes_per_s or LINK_BYTES_PER_S,
                mount_bytes_per_s=one.mount.bytes_per_s or MOUNT_BYTES_PER_S,
            )  # fmt: skip
        return found

    def _start(self, pending: list[Pending], stages: list[Stage], decisions: list[Decision], number: int) -> None:
        relays = [Relay(s, d, p.reader, p.writer) for s, d, p in zip(stages, decisions, pending, strict=True)]
        names = {piece.site for piece in decisions[0].pieces} or {decisions[0].site}
        connections = {name: self.connections[name] for name in names}
        self.counts["away"] += len(relays)

        def ended(told: Ended) -> None:
            self._learn(told, relays)
            self.counts["moved_bytes"] += told.relay.moved
            self.counts["kept_bytes"] += max(0, told.kept - told.relay.moved)
            self._note(told.relay.stage.call, told.why, told.where, number, seconds=told.seconds, status=told.status,
                       moved=told.relay.moved, kept=told.kept, cpu_s=told.relay.cpu_s)  # fmt: skip

        task = asyncio.create_task(Group(relays, connections, ended).run())
        self._groups.add(task)
        task.add_done_callback(self._groups.discard)

    def _learn(self, told: Ended, relays: list[Relay]) -> None:
        found, paths = told.relay.stage.match, told.relay.stage.paths
        for path in paths:
            self.reads.add(path, told.kept / len(paths))
        if told.kept and len(paths) == 1:
            self.learned.saw_size(paths[0], told.kept)
            site = self.sites.of_path(paths[0])
            if told.kept >= LEAST_BYTES and site is not None and site.name in self.connections:
                self.connections[site.name].mount.measure(paths[0])
        if (
            len(relays) == 1
            and told.kept
            and not told.relay.stage.output
            and told.status is not None
            and found is not None
            and not found.few
        ):
            self.learned.saw_ratio(ratio_key(told.relay.stage), told.relay.moved / told.kept)

    def _note(self, call: Call, why: str, where: str, number: int, **facts: Any) -> None:
        entry = {"pipeline": number, "command": shown(call.argv), "where": where or "here", "why": why, **facts}
        with contextlib.suppress(OSError):  # a full disk stops no command
            self.log.write(call.run, entry)

    def _end_dry(self, pending: list[Pending], stages: list[Stage], decisions: list[Decision]) -> None:
        planned = self._plans.setdefault(pending[0].call.run, [])
        for one, stage, decision in zip(pending, stages, decisions, strict=True):
            planned.append({
                "command": shown(stage.call.argv), "where": decision.site or "here", "why": decision.why,
                "in_bytes": decision.in_bytes, "out_bytes": decision.out_bytes,
            })  # fmt: skip
            one.writer.write(b"T\2\0\0\0\0\1" + b"X\4\0\0\0\0\0\0\0")
            one.writer.close()


def _limits(site: Site) -> dict[str, int]:
    told = {"RLIMIT_CORE": 0, "RLIMIT_AS": site.memory_bytes, "RLIMIT_CPU": site.cpu_s}
    return {name: value for name, value in told.items() if value is not None}


def _joined(first: Decision, after: Decision) -> bool:
    return after.away and after.site == first.site and after.pieces == first.pieces


def _run_here(one: Pending) -> None:
    if not one.writer.is_closing():
        one.writer.write(b"H\0\0\0\0")
        one.writer.close()
