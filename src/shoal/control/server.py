"""`shoal up`: opens store, engine and plane in one home, answers on one socket, and leaves without touching jobs.

The socket is bound before anything heavy is imported, so that clients of a restarted server wait in its backlog
instead of being refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal import __version__
from shoal.base import processes
from shoal.base.discover import find_one
from shoal.base.files import write_whole
from shoal.base.home import Home, ServerInfo, prepare_home, read_server, running_server, write_server
from shoal.base.imports import models_built_later
from shoal.contract.events import EventKind
from shoal.control import runtime
from shoal.control.binding import (
    bind,
    bind_after,
    bind_again,
    bind_locally,
    bind_patiently,
    closing,
    last_port,
    url_of,
)
from shoal.control.extensions.installed import broken_components, missing_components
from shoal.control.settings import Settings
from shoal.core import Conflict, Forbidden, Invalid, NotFound, ShoalError, Unavailable, token_digest

if TYPE_CHECKING:
    from shoal.control.api.feed import Feed
    from shoal.control.api.told import Told
    from shoal.control.door import Door
    from shoal.control.plane import ControlPlane
    from shoal.control.tls import SecureDoor
    from shoal.core import Capability
    from shoal.engine import Engine
    from shoal.store import Store, Tables

READY_FD = "SHOAL_READY_FD"
"""Names the pipe on which a detached server tells its starter that it answers."""

_LEASE_WAIT_S = 5.0
_STANDBY_TURN_S = 1.0
_DRAIN_S = 3


def run_server(
    settings: Settings,
    *,
    ready: Callable[[ServerInfo], None] = lambda _: None,
    accept_data_loss: bool = False,
    standing_by: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is called once it answers.

    With `standing_by`, wait until no other server controls the database, and serve then; it is called with the name of
    that server.

    Raises Conflict when the home or the port is taken, and Invalid for a host that is not this machine's. Raises
    Unavailable when the plane had to give up, or when the database has lost acknowledged data and that is not accepted.
    """
    home = prepare_home(settings.home.path)
    if standing_by is not None:
        from shoal.control import logsetup

        check_standby(settings.database)
        logsetup.configure(settings.values.log_level)
        runtime.run(_serve(settings, home, (), ready, accept_data_loss, standing_by))
        return
    other = running_server(home)
    if other is not None:
        raise Conflict(
            f"a server runs on this home already: {other.url} (pid {other.pid})",
            where=str(home.path),
            hint="stop it with `shoal down`, or give another --home",
        )
    host, port = settings.values.host, settings.values.port
    listeners = bind(host, port, preferred=last_port(home) if port == 0 else None)
    with closing(listeners), closing(bind_locally(settings)) as local:
        from shoal.control import logsetup

        logsetup.configure(settings.values.log_level)
        runtime.run(_serve(settings, home, [*listeners, *local], ready, accept_data_loss))


def check_standby(url: str) -> None:
    """Raises Invalid for a database that a second server cannot wait for."""
    if url.startswith("sqlite"):
        raise Invalid(
            "a standby needs PostgreSQL: SQLite's database is a file of one machine, which ends with that machine",
            where="--standby",
            hint="give both servers --db postgresql://..., or let a service manager start the one server again",
        )


async def _serve(
    settings: Settings,
    home: Home,
    listeners: Sequence[socket.socket],
    ready: Callable[[ServerInfo], None],
    accept_data_loss: bool,
    standing_by: Callable[[str], None] = lambda _: None,
) -> None:
    """Without `listeners`, as a standby: they are bound when no other server answers any more."""
    import structlog

    from shoal.control.extensions.loaded import Chosen
    from shoal.control.home.recovery import until_space
    from shoal.control.plane import ControlPlane
    from shoal.control.plane_settings import PlaneSettings
    from shoal.control.tls import secure_door

    log = structlog.get_logger("shoal.server")
    host = settings.values.host
    if not settings.loopback:
        log.warning(
            "listening beyond this machine",
            host=host,
            danger="tokens and jobs travel unencrypted, and anyone with a token can run commands here",
            advice="listen on 127.0.0.1, and beyond by `tls.port`",
        )
    for problem in broken_components():
        log.warning("a component is left out", problem=str(problem))
    stop = asyncio.Event()
    failures: list[BaseException] = []

    def fatal(error: BaseException) -> None:
        failures.append(error)
        stop.set()

    tables = [one.tables for one in settings.extensions if one.tables is not None]
    await until_space(home)
    binding = bind if listeners else bind_patiently
    if listeners:
        opened = _open_whole(settings.database, home, accept_data_loss, tables)
    else:
        opened = _take_over(settings, home, tables, standing_by)
        listeners = [*bind_after(lambda: bind_again(settings, home)), *bind_after(lambda: bind_locally(settings))]
    url = url_of(listeners[0], host)
    with (
        closing(listeners), contextlib.closing(opened) as store, secure_door(settings.values.tls, binding) as secure
    ):  # fmt: skip
        plane = ControlPlane(
            store,
            make_engine(settings),
            home.path,
            PlaneSettings(
                policy=settings.policy,
                jobs=settings.values.jobs.limits(),
                bundles=settings.values.bundles.limits(settings.values.jobs),
                retention=settings.values.keep.retention(),
                http=settings.values.http.limits(),
                any_port=settings.values.port == 0,
                missing=missing_components(),
            ),
            extensions=[Chosen(one, settings.values.section(one)) for one in settings.extensions],
            least_sandbox=lambda: settings.values.sandbox,
            on_fatal=fatal,
        )
        await _first_start(store, home, plane.clock.now())
        await plane.open()
        try:
            with _signals(stop):
                await _answer(plane, settings, listeners, secure, stop, _announcer(home, url, log), ready)
        finally:
            await plane.close()
            last = read_server(home)
            if last is not None and last.pid == os.getpid():  # not that of a standby which has taken over
                home.server_file.unlink(missing_ok=True)
    log.info("stopped", url=url)
    if failures:
        raise Unavailable(
            f"the server had to stop: {failures[0]}", where=str(home.log_file), hint="start it again with `shoal up`"
        ) from failures[0]


def _told(settings: Settings) -> Told:
    """How this server is set, and what its machine offers."""
    from shoal.control.api.told import Told

    def described() -> list[tuple[str, Any, Any, str]]:
        from shoal.control.settings import describe

        return [(one.name, one.value, one.default, one.text) for one in describe(settings)]

    def examined() -> Sequence[Capability]:
        from shoal.control.doctor import examine

        values = settings.values
        engine = getattr(values, values.engine, None)
        return examine(settings.home.path, engine=values.engine, slots=values.slots, settings=engine)

    return Told(described, examined)


def _take_over(settings: Settings, home: Home, tables: Sequence[Tables], standing_by: Callable[[str], None]) -> Store:
    """The database under our control, once no other server controls it. Blocks."""
    from shoal.control.home import recovery
    from shoal.store import open_store

    store = open_store(settings.database, tables=tables)
    told = False
    try:
        while True:
            try:
                store.acquire(f"shoal-{os.getpid()}", wait_s=_STANDBY_TURN_S)
                break
            except Conflict as held:
                if not told:
                    standing_by(held.what)
                told = True
            except Unavailable:
                if not told:
                    raise
                time.sleep(_STANDBY_TURN_S)  # the database is away for the present server as well
        recovery.check_gangs(home, store)
    except BaseException:
        store.close()
        raise
    return store


def _open_whole(url: str, home: Home, accept_data_loss: bool, tables: Sequence[Tables]) -> Store:
    """The home's database under our control. Raises Unavailable where it lost something and that is not accepted."""
    from shoal.contract.records import NewEvent
    from shoal.control.home import recovery, upgrade
    from shoal.store import open_store

    holder = f"shoal-{os.getpid()}"
    evidence: Path | None = None
    what = ""
    try:
        recovery.check_database_of(home, url)
    except Unavailable as loss:
        if not accept_data_loss:
            raise
        what, evidence = loss.what, recovery.keep_evidence(home, url)
    with upgrade.way_back(home):
        upgrade.back_up_before(home, url, tables)
        store = open_store(url, tables=tables)
    try:
        try:
            recovery.check_gangs(home, store)
        except Unavailable as loss:
            if not accept_data_loss:
                raise
            what = f"{what}; {loss.what}" if what else loss.what
            evidence = evidence or recovery.keep_evidence(home, url)
        store.acquire(holder, wait_s=_LEASE_WAIT_S)
        if what:
            store.record_now(
                NewEvent(
                    time.time(), EventKind.CONTROL_DATA_LOSS_ACCEPTED, "admin", what, data={"evidence": str(evidence)}
                )
            )
    except BaseException:
        store.close()
        raise
    return store


def make_engine(settings: Settings) -> Engine:
    """The engine that the settings name."""
    from shoal.engine import EngineOptions

    found = find_one("engines", settings.values.engine)
    assert found is not None, "the settings were checked"
    make: Callable[[EngineOptions], Engine] = found.load()
    section = getattr(settings.values, settings.values.engine, None)
    return make(EngineOptions(settings.home.path, settings.values.slots, section))


def whose_rights(settings: Settings) -> str:
    """With whose rights jobs run, for who starts the server."""
    from shoal.control.sandboxes import at_the_start

    values = settings.values
    return at_the_start(values.sandbox, root=os.geteuid() == 0, starts_here=values.engine == "local")


async def _answer(
    plane: ControlPlane, settings: Settings, listeners: Sequence[socket.socket], secure: SecureDoor | None,
    stop: asyncio.Event, announce: Callable[[], ServerInfo], ready: Callable[[ServerInfo], None],
) -> None:  # fmt: skip
    """Answer until `stop`. Probes are answered at once, the rest when the routes are loaded, beside the event loop."""
    from shoal.base.http.asgi import AsgiFront
    from shoal.control.api.feed import Feed
    from shoal.control.opening import Opening

    opening = Opening(plane)
    front = AsgiFront(opening, settings.values.http.limits(), _refusal)
    for listener in listeners:
        front.serve(listener)
    following = None
    if secure is not None:
        for listener in secure.listeners:
            front.serve(listener, secure.certificates.context)
        following = asyncio.create_task(secure.certificates.follow(), name="certificates")
    info = announce()
    door = None
    try:
        door = await asyncio.to_thread(_make_door, plane, settings, Feed())
        await door.open()
        front.app = door.app
        opening.open(door.app)
        ready(info)
        runtime.tune_interpreter()
        await stop.wait()
    finally:
        if following is not None:
            following.cancel()
        if door is not None:
            door.close()
        await front.stop(_DRAIN_S)


def _make_door(plane: ControlPlane, settings: Settings, feed: Feed) -> Door:
    with models_built_later():
        from shoal.control.door import Door

    return Door(plane, settings.values.tokens, feed, _told(settings))


def _refusal(error: Exception) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    from shoal.control.api.errors import refusal

    return refusal(error)


def _announcer(home: Home, url: str, log: object) -> Callable[[], ServerInfo]:
    def announce() -> ServerInfo:
        pid = os.getpid()
        info = ServerInfo(pid, processes.start_ticks(pid) or 0, url, __version__)
        write_server(home, info)
        log.info("ready", url=url, pid=pid, home=str(home.path))  # type: ignore[attr-defined]
        return info

    return announce


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    try:
        yield
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)


async def _first_start(store: Store, home: Home, now: float) -> None:
    """Make sure that the home's token file holds a valid admin token. The file is written first: a crash in between
    then leaves a token without rights, not a valid token that is lost."""
    valid = {token.token_sha256 for token in store.tokens() if token.tenant is None and token.revoked_at is None}
    with contextlib.suppress(FileNotFoundError):
        if token_digest(home.token_file.read_text().strip()) in valid:
            home.token_file.chmod(0o600)
            return
    from shoal.control.tokens import new_token

    token = new_token(None)
    write_whole(home.token_file, token + "\n")
    await put_admin_token(store, token, f"made by the server in {home.path}", now)


async def put_admin_token(store: Store, token: str, label: str, now: float) -> None:
    from shoal.contract.records import NewEvent, TokenRecord
    from shoal.control.tokens import new_token_id

    record = TokenRecord(new_token_id(), None, token_digest(token), label, now)
    await store.put_token(
        record, NewEvent(now, EventKind.TOKEN_CREATED, "server", record.label, data={"token_id": record.id})
    )


def starter() -> Callable[[ServerInfo | ShoalError], None]:
    """How to tell the process that started this one detached, if there is one, that it answers, or why it cannot.

    To be called before any child is made: the starter reads to the end of the pipe, which no child may keep open.
    """
    descriptor = os.environ.pop(READY_FD, "")
    if not descriptor.isdecimal():
        return lambda _: None
    os.set_inheritable(int(descriptor), False)
    pipe = os.fdopen(int(descriptor), "w")

    def tell(info: ServerInfo | ShoalError) -> None:
        answer: dict[str, object]
        if isinstance(info, ShoalError):
            answer = {"error": {"code": info.code, "what": info.what, "where": info.where, "hint": info.hint}}
        else:
            answer = {"url": info.url, "pid": info.pid}
        if not pipe.closed:
            with pipe:
                json.dump(answer, pipe)

    return tell


_RAISED: tuple[type[ShoalError], ...] = (Invalid, Conflict, NotFound, Forbidden, Unavailable)


def start_detached(arguments: Sequence[str], home: Home, *, timeout_s: float = 30.0) -> ServerInfo:
    """Start `shoal up ARGUMENTS` in a session of its own, its output in HOME/server.log, and wait until it answers.

    Raises what it raised when it does not come up; where it could not say that, Unavailable with the end of its log.
    """
    prepare_home(home.path)
    before = home.log_file.stat().st_size if home.log_file.exists() else 0
    readable, writable = os.pipe()
    with os.fdopen(readable, "rb") as pipe:
        with os.fdopen(writable, "wb"):
            process = processes.start_detached(
                [sys.executable, "-m", "shoal.cli", "up", *arguments], home.log_file, what="server",
                drop=(), give={READY_FD: str(writable)}, pass_fds=(writable,),
            )  # fmt: skip
        answered, _, _ = select.select([pipe], [], [], timeout_s)
        told = pipe.read() if answered else b""
    info = read_server(home)
    if told and info is not None and info.pid == process.pid:
        return info
    if answered:
        process.wait()
    if told and "error" in (answer := json.loads(told)):
        error = answer["error"]
        kind = next((kind for kind in _RAISED if kind.code == error["code"]), Unavailable)
        raise kind(error["what"], where=error["where"], hint=error["hint"])
    tail = _tail(home.log_file, before)
    how = f"it ended with code {process.returncode}" if answered else f"it does not answer after {timeout_s:g} s"
    raise Unavailable(f"the server did not start: {how}", where=str(home.log_file), hint=tail or "its log is empty")


def _tail(path: Path, start: int, limit: int = 4000) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - limit))
        return file.read().decode(errors="replace").strip()
