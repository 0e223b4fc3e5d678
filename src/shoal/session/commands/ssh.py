"""`shoal ssh`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.base.console.command import CommandContext, JobArgument, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.core import Unavailable
from shoal.session.client.relay import Detached, Over, Relay, Streams
from shoal.session.client.sshfiles import SUFFIX, SshFiles
from shoal.session.commands import common
from shoal.session.commands.line import WithLine


def register(app: typer.Typer) -> None:
    command(
        app, "ssh", rich_help_panel=JOBS, short_help="OpenSSH into a running job, for editors and scp", cls=WithLine
    )(ssh)


def ssh(
    context: CommandContext,
    job: JobArgument,
    config: Annotated[
        bool, typer.Option("--config", help="Write the entry for ssh, scp and editors, and say where; connect nowhere.")
    ] = False,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Be the connection of an ssh that was started elsewhere.")
    ] = False,
    rank: Annotated[int, typer.Option(min=0, help="Beside which process of the gang.")] = 0,
    tenant: TenantOption = None,
    line: Annotated[list[str] | None, typer.Option(hidden=True, help="The command line.")] = None,
) -> None:
    """Log in to a running job by OpenSSH: a shell, or the command behind `--`.

    An OpenSSH server runs in the job, with the job's rights, for this one connection, which comes through Shoal's
    server: no port is opened. With `Include ~/.shoal/ssh/config` at the top of `~/.ssh/config`, each job is a host
    JOB.shoal for `ssh`, `scp`, `rsync` and for editors.
    """
    files = SshFiles(_folder())
    public = files.make(_proxy(context, rank, tenant))
    if config:
        context.show({"config": str(files.config), "host": f"{job}{SUFFIX}"}, lambda: _tell(files, job))
        return
    with context.client(patience_s=30.0) as client:
        found = common.find_running(client, job.removesuffix(SUFFIX), tenant)
        if proxy:
            common.leave(_be_proxy(context, client, found.id, rank, public))
            return
    program = shutil.which("ssh")
    if program is None:
        raise Unavailable("OpenSSH's client is not installed here", hint="`shoal exec --pty JOB -- bash` needs none")
    sys.stdout.flush()
    os.execv(program, [program, "-F", str(files.config), f"{found.id}{SUFFIX}", *(line or ())])  # noqa: S606


def _be_proxy(context: CommandContext, client: Any, job_id: str, rank: int, public: str) -> int:
    session = client.session.ssh(job_id, public, rank=rank)
    streams = Streams(0, 1, 2, terminal=False)
    try:
        return Relay(common.connector(client, job_id, session.id, rank), streams, context.note).run()
    except (Detached, BrokenPipeError):
        return 0
    except Over as over:
        raise over.error from None


def _folder() -> Path:
    return Path.home() / ".shoal" / "ssh"


def _proxy(context: CommandContext, rank: int, tenant: str | None) -> str:
    """The command that OpenSSH starts, with how this one found its server. A token stays in its variable or file."""
    words = [sys.executable, "-m", "shoal.cli", "ssh", "--proxy"]
    if context.home is not None:
        words += ["--home", str(context.home.absolute())]
    if context.url is not None:
        words += ["--url", context.url]
    if rank:
        words += ["--rank", str(rank)]
    if tenant is not None:
        words += ["--tenant", tenant]
    return shlex.join(words).replace("%", "%%")


def _tell(files: SshFiles, job: str) -> None:
    print(f"{files.config} has the hosts *{SUFFIX}; at the top of ~/.ssh/config:")
    print(f"    Include {files.config}")
    print(f"then `ssh {job}{SUFFIX}`, `scp FILE {job}{SUFFIX}:`, and editors know the host.")
