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
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal import __version__
from shoal.base import processes
from shoal.base.discover import find_one
from shoal.base.files import write_whole
from shoal.base.home import Home, ServerInfo, await_lost, prepare_home, read_server, running_server, write_server
from shoal.base.imports import models_built_later
from shoal.base.parent import Forked
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
    from shoal.engine import Engine, EngineOptions
    from shoal.store import Store

READY_FD = "SHOAL_READY_FD"
"""Names the pipe on which a detached server tells its starter that it answers."""

_DRAIN_S = 3
_LOST_WAIT_S = 30.0
_NEEDED = (
    "uvloop", "shoal.base.http.asgi", "shoal.control.api.feed", "shoal.control.extensions.loaded",
    "shoal.control.home.control", "shoal.control.opening", "shoal.control.plane",
    "shoal.control.plane_settings", "shoal.control.tls",
)  # fmt: skip


def run_server(
    settings: Settings,
    *,
    ready: Callable[[ServerInfo], None] = lambda _: None,
    accept_data_loss: bool = False,
    standing_by: Callable[[str], None] | None = None,
    fork: Callable[[Any], Forked] = lambda _: Forked(),
) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is called once it answers. `fork` is called with a log once everything
    that is to outlive the server is there: it may return in another process.

    With `standing_by`, wait until no other server controls the database, and serve then; it is called with the name of
    that server.

    Raises Conflict when the home or the port is taken, and Invalid for a host that is not this machine's. Raises
    Unavailable when the plane had to give up, or when the database has lost acknowledged data and that is not accepted.
    """
    home = prepare_home(settings.home.path)
    listeners: list[socket.socket] = []
    secure: list[socket.socket] = []
    if standing_by is not None:
        from shoal.control.home.control import check_standby

        check_standby(settings.database)
    else:
        _alone(home)
        host, port, tls = settings.values.host, settings.values.port, settings.values.tls
        listeners = bind(host, port, preferred=last_port(home) if port == 0 else None)
        secure = [] if tls.port is None else bind(tls.host, tls.port)
    with closing(listeners), closing(secure), closing(bind_locally(settings) if listeners else []) as local:
        import structlog

        from shoal.control import logsetup

        logsetup.configure(settings.values.log_level)
        _load(settings)
        forked = fork(structlog.get_logger("shoal.parent"))
        if forked.deaths:  # else nobody could find it while it opens
            _follow(home)
        accept_data_loss = accept_data_loss and not forked.deaths
        every = [*listeners, *local]
        runtime.run(_serve(settings, home, every, secure, forked, ready, accept_data_loss, standing_by))


def _alone(home: Home) -> None:
    """Raises Conflict where another server runs on the home."""
    other = running_server(home)
    if other is not None and not await_lost(other, timeout_s=_LOST_WAIT_S):
        raise Conflict(
            f"a server runs on this home already: {other.url} (pid {other.pid})",
            where=str(home.path),
            hint="stop it with `shoal down`, or give another --home",
        )


def _load(settings: Settings) -> None:
    """Import what a server needs until it is ready."""
    for module in _NEEDED:
        import_module(module)
    _engine_of(settings)


def _follow(home: Home) -> None:
    """The home's server is this one from now on, and not the one that was killed."""
    last, pid = read_server(home), os.getpid()
    if last is not None and not last.alive():
        with contextlib.suppress(OSError):  # a full disk: it waits for space
            write_server(home, ServerInfo(pid, processes.start_ticks(pid) or 0, last.url, __version__))


async def _serve(
    settings: Settings,
    home: Home,
    listeners: Sequence[socket.socket],
    secure_listeners: Sequence[socket.socket],
    forked: Forked,
    ready: Callable[[ServerInfo], None],
    accept_data_loss: bool,
    standing_by: Callable[[str], None] | None,
) -> None:
    """As a standby without `listeners`: they are bound when no other server answers any more."""
    import structlog

    from shoal.control.extensions.loaded import Chosen
    from shoal.control.home.control import open_whole, take_over
    from shoal.control.home.recovery import until_space
    from shoal.control.plane import ControlPlane
    from shoal.control.plane_settings import PlaneSettings
    from shoal.control.tls import secure_door

    def announce() -> ServerInfo:
        info = _announce(home, url, log)
        forked.ready()
        return info

    def told(info: ServerInfo) -> None:
        forked.loaded()
        if forked.deaths == 0:
            ready(info)

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
    if standing_by is None:
        opened = open_whole(settings.database, home, accept_data_loss, tables)
    else:
        opened = take_over(settings.database, home, tables, standing_by)
        listeners = [*bind_after(lambda: bind_again(settings, home)), *bind_after(lambda: bind_locally(settings))]
    url = url_of(listeners[0], host)
    with (
        closing(listeners),
        contextlib.closing(opened) as store,
        secure_door(settings.values.tls, bind_patiently if standing_by else lambda *_: secure_listeners) as secure,
    ):
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
        with _signals(stop):
            try:
                await _answer(plane, settings, listeners, secure, stop, announce, told)
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


def make_engine(settings: Settings) -> Engine:
    """The engine that the settings name."""
    from shoal.engine import EngineOptions

    section = getattr(settings.values, settings.values.engine, None)
    return _engine_of(settings)(EngineOptions(settings.home.path, settings.values.slots, section))


def _engine_of(settings: Settings) -> Callable[[EngineOptions], Engine]:
    found = find_one("engines", settings.values.engine)
    assert found is not None, "the settings were checked"
    make: Callable[[EngineOptions], Engine] = found.load()
    return make


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


def _announce(home: Home, url: str, log: Any) -> ServerInfo:
    pid = os.getpid()
    info = ServerInfo(pid, processes.start_ticks(pid) or 0, url, __version__)
    write_server(home, info)
    log.info("ready", url=url, pid=pid, home=str(home.path))
    return info


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


def starter() -> Callable[[ServerInfo | ShoalError | None], None]:
    """How to tell the process that started this one detached, if there is one, that it answers, or why it cannot.

    To be called before any child is made: the starter reads to the end of the pipe, which no child may keep open. Told
    nothing, `None`, it goes by what another process tells.
    """
    descriptor = os.environ.pop(READY_FD, "")
    if not descriptor.isdecimal():
        return lambda _: None
    os.set_inheritable(int(descriptor), False)
    pipe = os.fdopen(int(descriptor), "w")

    def tell(info: ServerInfo | ShoalError | None) -> None:
        answer: dict[str, object]
        if info is None:
            pipe.close()
        elif isinstance(info, ShoalError):
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
    info, answer = read_server(home), json.loads(told or b"{}")
    if info is not None and "url" in answer:
        return info
    if answered:
        process.wait()
    if "error" in answer:
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
