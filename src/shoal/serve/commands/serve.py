"""`shoal serve`: a gateway for some models, in the foreground, without a control plane."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import TOOLS
from shoal.base.ends import printable
from shoal.core import Invalid, ShoalError
from shoal.serve.commands.options import MaxBatchOption, OptionOption, RuntimeOption, ThreadsOption, read_options

if TYPE_CHECKING:
    from shoal.inference.types import ModelSpec
    from shoal.serve.gateway.standalone import Standalone

_TENANT = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_STARTS = 4
"""A replica that was started so often and is still not ready is given up."""
_TMPDIR_LONGEST = 70
_LOG_LINES = 8
_TELL_EVERY_S = 10.0


def register(app: typer.Typer) -> None:
    command(app, "serve", rich_help_panel=TOOLS, short_help="Serve models here and now, without a server of Shoal")(
        serve
    )


def serve(
    context: CommandContext,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="A model file, or package.module:function; NAME=MODEL gives it another name than its own.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="For HTTP; 0: any free one.")] = 8000,
    grpc_port: Annotated[int, typer.Option(min=0, max=65535, help="For gRPC; 0: any free one.")] = 8001,
    replicas: Annotated[int, typer.Option(min=1, help="Processes that have all models loaded.")] = 1,
    runtime: RuntimeOption = None,
    option: OptionOption = None,
    threads: ThreadsOption = None,
    max_batch: MaxBatchOption = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Compute slots to share out (the number of cores).")] = None,
    slo_p99: Annotated[
        str | None, typer.Option("--slo-p99", help="Latency objective, such as 50ms; later answers are refused.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Of a replica's models, such as 2GiB: those that do not fit are loaded when asked for, and a replica "
            "that takes 256 MiB more is killed and started again.",
        ),
    ] = None,
    load_timeout: Annotated[str, typer.Option(help="Most time for a model to load, such as 30s or 10m.")] = "5m",
    body_limit_mib: Annotated[int, typer.Option(min=1, max=256, help="Largest request.")] = 64,
    scheduler: Annotated[str, typer.Option(help="deadline, fair or all-share.")] = "deadline",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SHOAL_SERVE_CLIENT_TOKEN",
            help="Clients must show it (rather by the variable).",
        ),
    ] = None,
) -> None:
    """Serve models by the Open Inference Protocol (REST and gRPC), here and now, until Ctrl-C.

    `shoal serve ocr=text.onnx` answers at http://127.0.0.1:8000/v2/models/ocr/infer. For models of several tenants,
    kept running and measured, deploy services: `shoal deploy`.
    """
    from shoal.base.http import Limits
    from shoal.contract.manifest.quantities import read_duration, read_size
    from shoal.inference.types import is_callable
    from shoal.serve.contract import Address
    from shoal.serve.gateway.standalone import Standalone
    from shoal.serve.scheduling import make_scheduler
    from shoal.serve.types import ServiceSpec

    if host not in ("127.0.0.1", "::1", "localhost") and not token:
        raise Invalid("others could reach this without a token", where="--host", hint="give --token as well")
    slots = slots or len(os.sched_getaffinity(0))
    make_scheduler(scheduler, slots=slots)  # refuses what there is not before anything is started
    specs = tuple(
        replace(_checked(spec, read_options(option or [])), threads=threads or 1, max_batch=max_batch or 1)
        for spec in _models(models, runtime)
    )
    service = ServiceSpec(
        name="models",
        tenant=_TENANT,
        models=specs,
        replicas=replicas,
        slo_p99_s=_read(read_duration, slo_p99, "--slo-p99", "such as 50ms"),
        memory_bytes=int(_read(read_size, memory, "--memory", "such as 2GiB") or 0),
        load_timeout_s=_read(read_duration, load_timeout, "--load-timeout", "such as 5m") or 0.0,
    )
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # our own errors say the same, more clearly
    # A socket's path has 107 bytes at most, and a TMPDIR of its own may take them all.
    roomy = None if len(tempfile.gettempdir()) <= _TMPDIR_LONGEST else "/tmp"  # noqa: S108 - the folder's name is drawn
    with tempfile.TemporaryDirectory(prefix="shoal-serve-", dir=roomy) as folder:
        alone = Standalone(
            Path(folder),
            [service],
            slots=slots,
            http=Address(host, port),
            grpc=Address(host, grpc_port),
            admin_token=token,
            python_path=[Path.cwd()] if any(is_callable(spec.source.partition("@")[0]) for spec in specs) else [],
            scheduler=scheduler,
            limits=Limits(body=body_limit_mib << 20),
        )
        _run(context, alone, [spec.name for spec in specs])


def _run(context: CommandContext, alone: Standalone, names: Sequence[str]) -> None:
    import uvloop

    from shoal.serve.gateway.process import end_on_signals

    async def main() -> None:
        ended = asyncio.Event()
        end_on_signals(ended)
        await alone.start()
        try:
            await _until_ready(alone, ended)
            if not ended.is_set():
                _announce(context, alone, names)
            await ended.wait()
        finally:
            await alone.stop()

    uvloop.run(main())


async def _until_ready(alone: Standalone, ended: asyncio.Event) -> None:
    """Raises Invalid for a model that cannot be loaded, ShoalError for a replica that does not live."""
    from shoal.serve.contract import ModelState

    gateway = alone.process.gateway
    began = told = time.monotonic()
    while not gateway.ready() and not ended.is_set():
        if (now := time.monotonic()) - told > _TELL_EVERY_S:
            told = now
            loading = ", ".join(one.model for one in gateway.index("", False) if one.state is not ModelState.READY)
            typer.echo(f"still loading after {now - began:.0f} s: {loading}", err=True)
        for member in gateway.replica_set.members.values():
            for why in member.problems.values():
                raise Invalid(why)
        for replica in alone.replicas.values():
            if replica.starts >= _STARTS:
                log = (alone.folder / f"{replica.name}.log").read_text(errors="replace").splitlines()[-_LOG_LINES:]
                why = "; ".join(dict.fromkeys(model.reason for model in gateway.index("", False) if model.reason))
                what = f"a replica ended {replica.starts - 1} times before it was ready: {why}"
                raise ShoalError(what, hint="\n".join(map(printable, log)) or None)
        await asyncio.sleep(0.02)


def _announce(context: CommandContext, alone: Standalone, names: Sequence[str]) -> None:
    http, grpc = alone.process.http, alone.process.grpc
    url = f"http://{http.reached_at}"
    facts = {"http": url, "grpc": grpc.reached_at, "models": list(names)}

    def human() -> None:
        for name in names:
            print(f"ready: {url}/v2/models/{name}/infer")
        print(f"gRPC on {facts['grpc']}; Ctrl-C ends it", flush=True)

    context.line(facts, human)


def _models(words: Sequence[str], runtime: str | None) -> Iterator[ModelSpec]:
    from shoal.inference.registry import installed
    from shoal.inference.types import ModelSpec

    names: set[str] = set()
    for word in words:
        name, source = None, word
        if not Path(word).exists() and "=" in word:
            name, _, source = word.partition("=")
        own_name, source, guess = _source(source)
        if name is None:
            name = own_name
        if not _NAME.fullmatch(name):
            raise Invalid(f"{name!r} is no name for a model", where=word, hint="letters, digits, dots and dashes")
        if name in names:
            raise Invalid(f"two models are called {name!r}", where=word, hint="give one another name: NAME=MODEL")
        names.add(name)
        chosen = runtime or guess
        if chosen is None:
            raise Invalid(
                f"no runtime opens {Path(source).suffix or 'such'} files", where=source,
                hint=f"name one with --runtime: {', '.join(installed())}",
            )  # fmt: skip
        yield ModelSpec(name, source, chosen)


def _source(source: str) -> tuple[str, str, str | None]:
    """The name that it suggests, where replicas find it, and the runtime that it is for."""
    from shoal.inference.registry import runtime_of
    from shoal.inference.types import is_callable

    path = Path(source)
    if is_callable(source) and not path.exists():
        return source.rpartition(":")[2], source, runtime_of(source)
    if not path.is_file():
        raise Invalid("there is no such file", where=source, hint="a model file, or package.module:function")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._") or "model"
    return name, str(path.resolve()), runtime_of(source)


def _checked(spec: ModelSpec, options: dict[str, Any]) -> ModelSpec:
    """With its options, after a look at the file. Raises Invalid, or BadModel."""
    from shoal.inference.registry import check_file, check_options, runtime_named

    declared = runtime_named(spec.runtime, "--runtime")
    if declared.declares_tensors:
        raise Invalid(
            f"the runtime {spec.runtime} must be told what the model takes and gives", where=spec.source,
            hint="declare it in a manifest: `shoal deploy`",
        )  # fmt: skip
    spec = replace(spec, options=check_options(declared, options, "--option"))
    check_file(declared, spec)
    return spec


def _read(read: Callable[[str], float], word: str | None, option: str, hint: str) -> float | None:
    if word is None:
        return None
    try:
        return read(word)
    except ValueError as error:
        raise Invalid(str(error), where=option, hint=hint) from None
