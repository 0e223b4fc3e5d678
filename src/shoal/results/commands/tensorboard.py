"""`shoal tensorboard`: the curves of jobs, in a TensorBoard of this machine."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.core import Invalid, NotFound, ShoalError, Unavailable

if TYPE_CHECKING:
    from shoal.contract.models import JobDetail

_PROGRAM = "tensorboard"


def register(app: typer.Typer) -> None:
    command(app, "tensorboard", rich_help_panel=JOBS, short_help="The curves of jobs in TensorBoard")(tensorboard)


def tensorboard(
    context: CommandContext,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids, unique beginnings of ids, or names.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where it answers on this machine; 0: any free one.")]
    = 6006,
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Fetch into this directory, and keep it.", show_default="a temporary one"),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Seconds between two looks at jobs that are not over.")] = 30,
    tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Fetch what jobs wrote for TensorBoard, and show it side by side until Ctrl-C.

    It is the directory that `extensions: {results: {tensorboard: DIR}}` names in the manifest. What jobs that are not
    over write meanwhile is fetched again and again. The program `tensorboard` is run from where this command is
    installed, or from PATH.
    """
    program = _find_program()
    with ExitStack() as stack:
        folder = to or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-tensorboard-")))
        client = stack.enter_context(context.client(patience_s=30.0))
        wanted = [_asked(client.job(one, tenant=tenant)) for one in jobs]
        for detail, path in wanted:
            _fetch(client, detail, path, folder)
        words = [program, "--logdir", str(folder), "--port", str(port), "--host", "127.0.0.1"]
        with subprocess.Popen(words) as shown:
            try:
                _watch(client, wanted, folder, shown, every)
            except KeyboardInterrupt:
                return
            finally:
                shown.terminate()
        if shown.returncode > 0:
            raise ShoalError(f"TensorBoard ended with code {shown.returncode}", where=_PROGRAM)


def _find_program() -> str:
    """Raises Unavailable."""
    found = shutil.which(_PROGRAM, path=str(Path(sys.executable).parent)) or shutil.which(_PROGRAM)
    if found is None:
        raise Unavailable("there is no program `tensorboard` here", where="PATH", hint="pip install tensorboard")
    return found


def _asked(detail: JobDetail) -> tuple[JobDetail, str]:
    """The job and its directory. Raises Invalid."""
    section = detail.manifest.get("extensions", {}).get("results") or {}
    path = section.get("tensorboard")
    if not path:
        raise Invalid(
            f"{detail.name} names no directory for TensorBoard", where=detail.id,
            hint="in its manifest: extensions: {results: {tensorboard: DIR}}",
        )  # fmt: skip
    return detail, str(path)


def _fetch(client: Any, detail: JobDetail, path: str, folder: Path) -> None:
    """Of a job that is over what is kept, or else what its directory has."""
    to = folder / f"{detail.name} {detail.id}"
    if detail.state.terminal:
        with contextlib.suppress(NotFound):
            deque(client.artifacts.download(detail.id, path, to=to), maxlen=0)
            return
    try:
        deque(client.download(detail.id, path, to=to), maxlen=0)
    except NotFound:
        if detail.state.terminal:
            raise  # one that runs may have written nothing yet


def _watch(
    client: Any, wanted: Sequence[tuple[JobDetail, str]], folder: Path, shown: subprocess.Popen[bytes], every: int
) -> None:
    left = [(detail, path) for detail, path in wanted if not detail.state.terminal]
    while left and shown.poll() is None:
        try:
            shown.wait(every)
        except subprocess.TimeoutExpired:
            left = [(client.job(detail.id), path) for detail, path in left]
            for detail, path in left:
                _fetch(client, detail, path, folder)
            left = [(detail, path) for detail, path in left if not detail.state.terminal]
    shown.wait()
