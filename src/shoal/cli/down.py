"""`shoal down`: stops the server, and says what goes on without it; with --stop-jobs nothing does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import command
from shoal.base.console.panels import SERVER
from shoal.base.home import Home, ServerInfo, running_server, stop_server
from shoal.cli.context import CliContext
from shoal.contract.lifecycle import JobState
from shoal.core import ShoalError, Unavailable

if TYPE_CHECKING:
    from shoal.contract.methods import Stoppable
    from shoal.sdk import Client
    from shoal.sdk.models import JobView

_UNFINISHED = tuple(state for state in JobState if not state.terminal)
_PAGE = 1000
_LOOK_S = 0.2
_NAMED = 5
_GRACE_S = 60.0


def register(app: typer.Typer) -> None:
    command(app, "down", takes=("json", "home"), rich_help_panel=SERVER)(down)


@dataclass(frozen=True, slots=True)
class Left:
    """What a server has in its care, or had stopped."""

    running: int = 0
    waiting: int = 0
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        """`2 jobs run on, and service ocr; 3 wait for the next server`."""
        going = [_count(self.running, "job")] if self.running else []
        going += self.kept if len(self.kept) <= _NAMED else [_count(len(self.kept), "service")]
        only_one = self.running + len(self.kept) == 1
        told = f"{' and '.join(going)} {'runs' if only_one else 'run'} on" if going else "no job or service runs on"
        if self.waiting:
            told += f", {_count(self.waiting, 'job')} {'waits' if self.waiting == 1 else 'wait'} for the next server"
        return told


def down(
    context: CliContext,
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="First end all jobs and services, and wait until they have ended.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for the server to leave, and before that for what is to end.")
    ] = 30.0,
) -> None:
    """Stop the server. Jobs and services that run go on, and the next server takes them over; --stop-jobs ends them."""
    home = Home(context.folder().absolute())
    info = running_server(home)
    if info is None:
        context.show({"stopped": False}, lambda: print(f"no server runs in {home.path}"))
        return
    left: Left | None = None
    if stop_jobs:
        with _client(home, info) as client:
            left = _end_all(client, max(timeout, _GRACE_S))
        told = f"ended {_count(left.running + left.waiting, 'job')}"
        told += f" and {', '.join(left.kept)}" if left.kept else ""
    else:
        left = _look(home, info)
        told = "its jobs run on" if left is None else str(left)
    stop_server(home, timeout_s=timeout)
    answer = {"stopped": True, **asdict(info)}
    if left is not None:
        answer |= {"jobs_running": left.running, "jobs_waiting": left.waiting, "services": list(left.kept)}
        answer |= {"ended": stop_jobs}
    context.show(answer, lambda: print(f"the server at {info.url} has stopped; {told}"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _client(home: Home, info: ServerInfo) -> Client:
    """A client of this very server as its admin, whatever the environment names."""
    from shoal.sdk import Client

    return Client(info.url, home.token_file.read_text().strip(), patience_s=2.0)


def _look(home: Home, info: ServerInfo) -> Left | None:
    """What goes on without the server; None where it does not say."""
    try:
        with _client(home, info) as client:
            return _left(client)
    except (ShoalError, OSError):
        return None


def _left(client: Client) -> Left:
    jobs = list(_unfinished(client))
    own = [job for job in jobs if job.owner_id is None]
    running = sum(job.state.active for job in own)
    return Left(running, len(own) - running, tuple(name for one in _namespaces(client) for name in one.running()))


def _unfinished(client: Client) -> Iterator[JobView]:
    before = None
    while True:
        page = client.jobs(state=_UNFINISHED, owned=True, limit=_PAGE, before=before)
        yield from page.jobs
        before = page.next
        if before is None:
            return


def _namespaces(client: Client) -> list[Stoppable]:
    from shoal.base.discover import load_all
    from shoal.contract.methods import Stoppable

    names, _ = load_all("client")
    found = [getattr(client, name) for name in names]
    return [one for one in found if isinstance(one, Stoppable)]


def _end_all(client: Client, timeout_s: float) -> Left:
    """End services first, whose replicas would start anew, then all jobs. Raises Unavailable when some are still there
    after the timeout; the server is not stopped then."""
    give_up_at = time.monotonic() + timeout_s
    left = _left(client)
    for one in _namespaces(client):
        one.stop_all(timeout_s=timeout_s)
    asked: set[str] = set()
    while jobs := list(_unfinished(client)):
        for job in jobs:
            if job.id not in asked:
                client.cancel(job.id, cause="the server is to stop with its jobs")
                asked.add(job.id)
        if time.monotonic() >= give_up_at:
            some = ", ".join(job.id for job in jobs[:_NAMED])
            raise Unavailable(
                f"{_count(len(jobs), 'job')} did not end within {timeout_s:g} s: {some}",
                hint="the server goes on; try again, with a longer --timeout",
            )
        time.sleep(_LOOK_S)
    return left
