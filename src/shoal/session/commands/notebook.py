"""`shoal notebook`."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.base.console.command import INTERRUPTED, CommandContext, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.base.console.resources import CpusOption, DeviceMemoryOption, MemoryOption
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest.quantities import read_memory
from shoal.core import ANY, Conflict, Invalid, PriorityClass, ShoalError, Unavailable
from shoal.session.client import notebooks, ports

_POLL_S = 0.3


def register(app: typer.Typer) -> None:
    command(app, "notebook", rich_help_panel=JOBS, short_help="JupyterLab in a job, reached from here")(notebook)


def notebook(
    context: CommandContext,
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where the notebooks are, on the server's machine.")
    ] = Path(),
    program: Annotated[str, typer.Option(help="The `jupyter` of an environment: /path/venv/bin/jupyter.")] = "jupyter",
    accelerators: Annotated[
        str | None, typer.Option(metavar="[TYPE:]COUNT", help="Accelerators or slots that it holds.", show_default="0")
    ] = None,
    device_memory: DeviceMemoryOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    priority_class: Annotated[PriorityClass, typer.Option("--class", help="Its class.")] = PriorityClass.BEST_EFFORT,
    idle: Annotated[
        str, typer.Option(metavar="DURATION", help="JupyterLab ends when no kernel has worked for so long.")
    ] = "4h",
    local: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port here; 0: any.")] = 8888,
    tenant: TenantOption = None,
) -> None:
    """Start JupyterLab as a job, wait until it answers, and print a link that opens it from this machine.

    Its token is made in the job and shown here only. Ctrl-C ends the forwarding and asks for the job's end. With
    --device-memory it shares a device, best effort beside guaranteed work.
    """
    manifest = notebooks.manifest(
        program, folder.absolute(), os.environ.get("PATH", os.defpath), idle=idle, priority_class=priority_class.value,
        resources=_resources(accelerators, device_memory, cpus, memory, priority_class),
    )  # fmt: skip
    with context.client(patience_s=30.0) as client:
        job = client.submit(manifest, tenant=tenant)
        context.note(f"{job.id}  {job.name} ({job.tenant})")
        try:
            found = _until_up(context, client, job.id)

            def show(_: int, port: int) -> None:
                link = f"http://127.0.0.1:{port}/lab?token={found.token}"
                context.line({"job": job.id, "link": link}, lambda: print(link, flush=True))

            ports.forward(client.locate, job.id, 0, "127.0.0.1", [(found.port, local)], show=show, note=context.note)
        except KeyboardInterrupt:
            with contextlib.suppress(Conflict):
                client.cancel(job.id, cause="the notebook's person left")
            raise typer.Exit(INTERRUPTED) from None
        except ShoalError:
            with contextlib.suppress(Conflict):  # it is over already
                client.cancel(job.id, cause="the notebook did not come up")
            raise


def _until_up(context: CommandContext, client: Any, job_id: str) -> notebooks.Found:
    told = ""
    while True:
        job = client.job(job_id)
        if job.terminal:
            said = client.log_piece(job_id).data.decode(errors="replace").strip().rpartition("\n")[2]
            raise Unavailable(
                f"JupyterLab ended before it answered: {said or job.message}", where=job_id,
                hint=f"`shoal logs {job_id}`; --program names the `jupyter` of an environment that has JupyterLab",
            )  # fmt: skip
        if job.state is JobState.RUNNING:
            if (found := notebooks.look(client, job_id)) is not None:
                return found
        elif job.state is JobState.QUEUED and (waiting := client.explain(job_id).summary) != told:
            told = waiting
            context.note(told)
        time.sleep(_POLL_S)


def _resources(
    accelerators: str | None, device_memory: str | None, cpus: float | None, memory: str | None, kind: PriorityClass
) -> dict[str, Any]:  # fmt: skip
    of_type, colon, count = (accelerators or ("1" if device_memory else "0")).rpartition(":")
    if not (count.isascii() and count.isdecimal()):
        raise Invalid(f"{accelerators!r} is no number of accelerators", where="--accelerators", hint="2, or a100:2")
    asked: dict[str, Any] = {"type": of_type if colon else ANY, "count": int(count)}
    if device_memory is not None:
        asked |= {"share": kind.value, "memory": _size(device_memory, "--device-memory")}
    made: dict[str, Any] = {"accelerators": asked}
    if cpus is not None:
        made["cpus"] = cpus
    if memory is not None:
        made["memory"] = _size(memory, "--memory")
    return made


def _size(text: str, option: str) -> int:
    try:
        return int(read_memory(text))
    except ValueError as error:
        raise Invalid(str(error), where=option, hint="such as 20GiB") from None
