"""`shoal forecast measure` and `report`: a script's step times at several sizes, measured through the control plane."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.base.console.command import CommandContext
from shoal.base.files import write_whole
from shoal.core import ANY, Conflict, Invalid, Unavailable
from shoal.forecast.commands.inputs import read_json

VERSION = 1
_LOOK_S = 0.1
_BATCH = "{batch}"
_CHANGE_DIRECTORY = 'cd "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting that is measured. `batch` is 0 where the command names none."""

    kind: str
    ranks: int
    batch: int


def measure(
    context: CommandContext,
    line: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run; {batch} stands for a size.")],
    sizes: Annotated[list[int] | None, typer.Option("--ranks", min=1, help="Ranks of the job; may repeat.")] = None,
    batches: Annotated[list[int] | None, typer.Option("--batch", min=1, help="Batch sizes; may repeat.")] = None,
    kinds: Annotated[list[str] | None, typer.Option("--kind", help="Kinds of accelerator; may repeat.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Of steps, in each setting.")] = 10.0,
    patience: Annotated[float, typer.Option("--patience", min=1, help="Seconds until a step or restart.")] = 120.0,
    beside: Annotated[bool, typer.Option("--beside", help="Also beside another job of the same setting.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="The profile; settings that it has are skipped.")] = Path(
        "profile.json"
    ),
) -> None:
    """Run a script for a moment in each setting, and keep how fast it was. It reports steps by `shoal.train`. Ctrl-C
    ends it; the same command goes on where it ended."""
    from rich.console import Console
    from rich.progress import Progress

    batching = any(_BATCH in word for word in line)
    if batching != bool(batches):
        raise Invalid("batch sizes and {batch} in the command go together", where="--batch")
    profile = _begun(out, line)
    known = {Cell(one["kind"], one["ranks"], one["batch"]) for one in profile["cells"]}
    todo = [Cell(*one) for one in product(kinds or [ANY], sizes or [1], batches or [0]) if Cell(*one) not in known]
    with context.client() as client, Progress(console=Console(stderr=True), disable=context.json) as bar:
        task = bar.add_task("measuring", total=len(todo))
        for cell in todo:
            bar.update(task, description=f"{cell.ranks}x {cell.kind}" + (f", batch {cell.batch}" if batching else ""))
            profile["cells"].append({**asdict(cell), **_run(client, cell, line, seconds, patience, beside)})
            # Whole or not at all, so that an interruption loses one setting at most.
            write_whole(out, json.dumps(profile, indent=2) + "\n", mode=0o644, durable=False)
            bar.advance(task)
    context.show(profile, lambda: _show([profile]))


def report(
    context: CommandContext,
    profiles: Annotated[list[Path], typer.Argument(help="What `measure` wrote.", metavar="PROFILE")],
) -> None:
    """What profiles hold, side by side."""
    found = [_profile(path) for path in profiles]
    context.show({"profiles": found}, lambda: _show(found))


def _run(client: Any, cell: Cell, line: Sequence[str], seconds: float, patience: float, beside: bool) -> dict[str, Any]:
    """Submit a job, watch its steps, stop and resume it where its script can do that, and cancel it; then watch another
    one beside a neighbour, if that is asked for."""
    with _job(client, cell, line) as job:
        found = _steps(client, job, seconds, patience)
        if found.pop("cooperative"):
            found |= _restart(client, job, patience)
            progress = client.job(job).progress
            found |= {name: progress.get(name) for name in ("checkpoint_s", "checkpoint_bytes")}
    if beside:
        with _job(client, cell, line) as neighbour, _job(client, cell, line) as job:
            _first_step(client, neighbour, patience)
            found["beside_step_s"] = _steps(client, job, seconds, patience)["step_s"]
            if client.job(neighbour).terminal:
                raise Unavailable(f"the neighbour {neighbour} ended too early", hint="a script that runs for longer")
    return found


@contextmanager
def _job(client: Any, cell: Cell, line: Sequence[str]) -> Iterator[str]:
    words = [word.replace(_BATCH, str(cell.batch)) for word in line]
    manifest = {
        "name": "forecast-measure", "command": ["/bin/sh", "-c", _CHANGE_DIRECTORY, "sh", str(Path.cwd()), *words],
        "env": {"PATH": os.environ.get("PATH", os.defpath)}, "ranks": cell.ranks,
        "resources": {"accelerators": {"type": cell.kind, "count": 1}},
    }  # fmt: skip
    job = client.submit(manifest).id
    try:
        yield job
    finally:
        if not client.job(job).terminal:
            client.cancel(job, cause="measured")


def _first_step(client: Any, job: str, patience: float) -> None:
    for now in _looks(client, job, patience):
        if now.terminal or now.progress.get("step") is not None:
            return


def _steps(client: Any, job: str, seconds: float, patience: float) -> dict[str, Any]:
    from shoal.forecast.finish import Track

    track, first, waits, last = Track(), None, [], -1
    for now in _looks(client, job, patience):
        step, at = now.progress.get("step"), now.progress.get("reported_at")
        if step is not None and at is not None and step != last:
            last, first = step, first or (at, step)
            track.observe(at, step)
            if (wait := now.progress.get("metrics", {}).get("input_wait_s")) is not None:
                waits.append(wait)
        if now.terminal or (first is not None and track.at - first[0] >= seconds):
            break
    one = track.remaining(last + 1)
    if first is None or one is None:
        raise Unavailable(f"{job} reported fewer than five times", hint=f"`shoal logs {job}`; a longer --seconds")
    return {
        "step_s": one.as_json(), "steps": last - first[1], "startup_s": first[0] - now.started_at,
        "input_wait_s": sum(waits) / len(waits) if waits else None,
        "cooperative": bool(now.progress.get("checkpoint_at")) and not now.terminal,
    }  # fmt: skip


def _restart(client: Any, job: str, patience: float) -> dict[str, Any]:
    """Seconds until a job has made room with a checkpoint, and from its return to its next step."""
    began = time.time()
    try:
        client.suspend(job, cause="measured")
    except Conflict:  # it ended meanwhile
        return {}
    for now in _looks(client, job, patience, until="SUSPENDED"):
        if now.terminal:
            return {}
    stopped = time.time()
    client.resume(job, cause="measured")
    for now in _looks(client, job, patience):
        if now.terminal:
            return {}
        if (at := now.progress.get("reported_at", 0.0)) > stopped and now.state == "RUNNING":
            return {"leave_s": stopped - began, "restart_s": at - stopped}
    return {}


def _looks(client: Any, job: str, patience: float, until: str = "") -> Iterator[Any]:
    """The job again and again; raises Unavailable where it fails, or reports nothing new for too long."""
    changed, last = time.monotonic(), None
    while True:
        now = client.job(job)
        if now.state == "FAILED":
            raise Unavailable(f"{job} failed: {now.message}", hint=f"`shoal logs {job}`")
        yield now
        if now.state == until or now.terminal:
            return
        told = now.state, now.progress.get("step")
        if told != last:
            changed, last = time.monotonic(), told
        if time.monotonic() - changed > patience:
            raise Unavailable(f"{job} did nothing new in {patience:g} s", hint=f"`shoal explain {job}`")
        time.sleep(_LOOK_S)


def _begun(path: Path, line: Sequence[str]) -> dict[str, Any]:
    if not path.exists():
        return {"version": VERSION, "command": list(line), "cells": []}
    profile = _profile(path)
    if profile["command"] != list(line):
        raise Invalid("is the profile of another command", where=str(path), hint="another --out")
    return profile


def _profile(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("cells"), list):
        raise Invalid(f"is no profile of version {VERSION}", where=str(path))
    return found


def _show(profiles: Sequence[dict[str, Any]]) -> None:
    from shoal.base.console import output

    rows = []
    for profile in profiles:
        for one in profile["cells"]:
            step = one["step_s"]
            times = [output.duration(one.get(name)) for name in ("startup_s", "leave_s", "restart_s", "checkpoint_s")]
            between = f"{step['low']:.3g} to {step['high']:.3g}"
            size = one.get("checkpoint_bytes")
            slower = one["beside_step_s"]["median"] / step["median"] if "beside_step_s" in one else None
            rows.append([
                one["kind"], one["ranks"], one["batch"] or "-", f"{step['median']:.3g}", between,
                "-" if slower is None else f"{slower:.2f}x", *times, "-" if size is None else f"{size / 1e6:.3g} MB",
            ])  # fmt: skip
    columns = [
        "kind", "ranks", "batch", "step (s)", "90% between", "beside", "start", "leave", "restart", "checkpoint", "size"
    ]  # fmt: skip
    output.put(output.table(columns, rows))
