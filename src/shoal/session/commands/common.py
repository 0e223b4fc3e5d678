"""Shared parts of the commands of sessions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

from shoal.base.console.command import FAILED, CommandContext
from shoal.contract.calls import path_piece
from shoal.contract.lifecycle import JobState
from shoal.core import NotFound, ShoalError
from shoal.session.client.connection import Connection, upgrade
from shoal.session.client.relay import Detached, Over, Relay, Streams

_WAIT_S = 20
_SIGNALLED = 128
MAIN = "main"


def find_running(client: Any, ref: str, tenant: str | None) -> Any:
    """The job that is meant; of several of one name the newest that runs, or else the newest."""
    found = client.job(ref, tenant=tenant)
    if found.name != ref or found.state is JobState.RUNNING:
        return found
    running = client.jobs(name=ref, state=[JobState.RUNNING], tenant=tenant, limit=1).jobs
    return running[0] if running else found


def connector(
    client: Any, job_id: str, session: str, rank: int, wait_s: int = _WAIT_S
) -> Callable[[], Connection]:  # fmt: skip
    """Makes connections to a session, wherever the server is by then."""
    path = f"/v1/jobs/{path_piece('job', job_id)}/sessions/{path_piece('session', session)}/attach"
    return lambda: upgrade(client.locate(), path, "shoal-session", {"rank": rank, "wait_s": wait_s})


def streams(*, terminal: bool) -> Streams:
    return Streams(sys.stdin.fileno(), sys.stdout.fileno(), sys.stderr.fileno(), terminal)


def at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def follow_main(
    context: CommandContext, client: Any, job_id: str, rank: int, *, shared: bool, wait_s: int = _WAIT_S
) -> int:
    """Be at a job's own terminal to its end; the exit code of its command."""
    terminal = at_terminal()
    relay = Relay(
        connector(client, job_id, MAIN, rank, wait_s), streams(terminal=terminal), context.note, shared=shared
    )  # fmt: skip
    try:
        return relay.run()
    except Detached:
        context.note(f"\r\n[shoal] detached; `shoal attach {job_id}` comes back, `shoal cancel {job_id}` ends it")
        return 0
    except Over as over:
        return finish(context, client, job_id, rank, over.written, over.error)


def follow(
    context: CommandContext, client: Any, job_id: str, rank: int, session: str, *, terminal: bool, shared: bool = False
) -> int:
    """Be at a session of `shoal exec` to its end; the exit code of its command."""
    source = streams(terminal=terminal and at_terminal())
    try:
        return Relay(connector(client, job_id, session, rank), source, context.note, shared=shared).run()
    except Detached:
        context.note(f"\r\n[shoal] detached; `shoal attach {job_id} --session {session}` comes back")
        return 0
    except Over as over:
        raise over.error from None


def finish(
    context: CommandContext, client: Any, job_id: str, rank: int, written: int, error: ShoalError | None
) -> int:  # fmt: skip
    """The session of a job's command is gone: show what was not seen yet, from its log, and how it ended."""
    job = client.job(job_id)
    if not job.terminal:
        if error is not None:
            raise error
        raise NotFound(f"job {job_id} is {job.state}, and its terminal is gone", where=job_id)
    offset = written
    while True:
        piece = client.log_piece(job_id, rank=rank, offset=offset)
        if not piece.data:
            break
        # This terminal is no longer raw: it begins lines at the left by itself.
        sys.stdout.buffer.write(piece.data.replace(b"\r\n", b"\n") if sys.stdout.isatty() else piece.data)
        offset = piece.offset + len(piece.data)
    sys.stdout.buffer.flush()
    ranks = job.attempts[-1].ranks if job.attempts else []
    end = ranks[rank] if rank < len(ranks) else {}
    if end.get("exit_code") is not None:
        return int(end["exit_code"])
    context.note(f"[shoal] {job_id} {job.state}: {job.message}")
    return _SIGNALLED + int(end["signal"]) if end.get("signal") else FAILED


def leave(code: int) -> None:
    """End the command with the code of what it ran."""
    if code:
        raise typer.Exit(code)
