"""Services: deploy, services, scale, undeploy."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.files import read_input
from shoal.base.console.panels import SERVICES, START
from shoal.base.console.resources import CpusOption, MemoryOption
from shoal.core import Invalid, NotFound
from shoal.serve.commands.options import MaxBatchOption, OptionOption, RuntimeOption, ThreadsOption, read_options

if TYPE_CHECKING:
    from shoal.serve.models import ServedModelView, ServiceDetail, ServiceHistory, ServiceView, TrafficView

_MANIFESTS = (".yaml", ".yml", ".json")
_ARTIFACT = "job:"
_LONGEST_NAME = 48
_MIB = 1 << 20
_LEAST_MIB, _TIMES = 512, 4
"""A replica of a model file gets memory for its runtime, and several times the file: weights are unpacked and copied as
they are loaded. So small models do not take the part of the machine that goes with their cores."""

ServiceArgument = Annotated[str, typer.Argument(metavar="SERVICE", help="Its name, or its id.")]
WaitOption = Annotated[bool, typer.Option("--wait", "-w", help="Return when it is done.")]
TimeoutOption = Annotated[float, typer.Option(help="With --wait: seconds to wait at most.")]
CauseOption = Annotated[str, typer.Option("--because", help="Why, for the record.")]


def register(app: typer.Typer) -> None:
    command(app, "deploy", rich_help_panel=START, short_help="Serve a model: deploy a service, or update it")(deploy)
    command(app, "services", rich_help_panel=SERVICES)(services)
    command(app, "scale", rich_help_panel=SERVICES)(scale)
    command(app, "undeploy", rich_help_panel=SERVICES)(undeploy)


def deploy(
    context: CommandContext,
    file: Annotated[
        Path,
        typer.Argument(
            help="A service's manifest (YAML or JSON; - reads stdin), a model file, or job:JOB/NAME, an artifact.",
            allow_dash=True,
            metavar="FILE",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Its name, and a model file's model's.", show_default="as the manifest or file")
    ] = None,
    slo_p99: Annotated[str | None, typer.Option("--slo-p99", help="Latency objective, such as 50ms.")] = None,
    replicas: Annotated[
        int | None, typer.Option(min=0, help="Replicas wanted.", show_default="1 at first, then as it is")
    ] = None,
    priority_class: Annotated[str | None, typer.Option("--class", help="guaranteed or best-effort.")] = None,
    runtime: RuntimeOption = None,
    option: OptionOption = None,
    threads: ThreadsOption = None,
    max_batch: MaxBatchOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    tenant: TenantOption = None,
    key: Annotated[str | None, typer.Option("--key", help="Idempotency key: twice the same is one deployment.")] = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Deploy a service, or update the one of this name. Old replicas leave only when new ones are ready.

    `--runtime`, `--option`, `--threads` and `--max-batch` are of its model; a service of several has them in its
    manifest.

    `job:JOB/NAME` is an artifact of a job, as it is now: what the job keeps later changes nothing of the service.

    A replica of a model file gets 512 MiB and four times the file's size of memory unless `--memory` says otherwise.
    """
    given = {
        "name": name,
        "slo": {"p99": slo_p99} if slo_p99 is not None else None,
        "replicas": replicas,
        "priority_class": priority_class,
    }
    resources = {"cpus": cpus, "memory": memory}
    options = read_options(option or []) or None
    model = {"runtime": runtime, "options": options, "threads": threads, "max_batch": max_batch}
    said = (_said(model), _said(resources))
    named = str(file).removeprefix(_ARTIFACT) if str(file).startswith(_ARTIFACT) else None
    here = _manifest(file, _said(given), *said) if named is None else None
    with context.client(patience_s=10.0) as client, TemporaryDirectory() as folder:
        if named is not None:
            file, given["description"] = _fetched(client, named, Path(folder), tenant)
        manifest, base = here or _manifest(file, _said(given), *said)
        made = client.services.deploy(manifest, tenant=tenant, idempotency_key=key, base=base)
        if not wait:
            context.show(made, lambda: print(_line(made)))
            return
        context.note(_line(made))
        ready = client.services.wait_ready(made.id, timeout_s=timeout)
    context.show(ready, lambda: _ready(ready))


def _fetched(client: Any, ref: str, folder: Path, tenant: str | None) -> tuple[Path, str]:
    """The artifact as a file in the folder, and what it is, for the record."""
    job, _, name = ref.partition("/")
    where = f"{_ARTIFACT}{ref}"
    if not job or not name:
        raise Invalid("an artifact is job:JOB/NAME", where=where, hint="`shoal artifacts JOB` lists them")
    artifacts = getattr(client, "artifacts", None)
    found = [] if artifacts is None else artifacts.find(job, name, tenant=tenant)
    found = [one for one in found if one.name == name]
    if artifacts is None or not found:
        raise NotFound(f"{job} has no artifact {name}", where=where, hint=f"`shoal artifacts {job}` lists them")
    one = found[0]
    file = folder / name.rpartition("/")[2]
    for _ in artifacts.fetch(one, file):
        continue
    return file, f"artifact {name} of job {one.job}, attempt {one.attempt}, {one.digest}"


def _said(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _manifest(
    file: Path, given: dict[str, Any], model: dict[str, Any], resources: dict[str, Any]
) -> tuple[Path | dict[str, Any], Path | None]:
    """What the client takes, and where its files are."""
    if file.suffix.lower() not in _MANIFESTS and str(file) != "-":
        made = _of_model(file, given.get("name"), model) | given
        return made | {"resources": {"memory": _memory_of(file)} | resources}, file.absolute().parent
    if str(file) != "-" and not (given or model or resources):
        return file, None
    from shoal.serve.manifest import parse_service

    text, source = read_input(file)
    values = parse_service(text, source=source).values() | given
    if model:
        if len(values["models"]) != 1:
            what = f"the service has {len(values['models'])} models, and these options are of one"
            raise Invalid(what, where=source, hint=f"say {', '.join(model)} in the manifest, at the model")
        values["models"] = [_merged(values["models"][0], model)]
    if resources:
        values["resources"] = (values.get("resources") or {}) | resources
    return values, file.absolute().parent if str(file) != "-" else None


def _memory_of(file: Path) -> str:
    return f"{_LEAST_MIB + _TIMES * -(-file.stat().st_size // _MIB)}MiB"


def _merged(model: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Single options are changed, the others stay; another runtime has options of its own."""
    kept = {} if given.get("runtime", model["runtime"]) != model["runtime"] else model.get("options") or {}
    return {**model, **given, "options": (kept | given.get("options", {})) or None}


def _of_model(file: Path, name: str | None, model: dict[str, Any]) -> dict[str, Any]:
    """A service of one model, both of this name, else named after the file."""
    if not file.is_file():
        raise Invalid("there is no such file", where=str(file), hint="`shoal deploy service.yaml`, or a model file")
    word = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    name = name or word or "model"
    return {"name": name, "models": [{"name": name, "source": file.name, **model}]}


def _line(service: ServiceView) -> str:
    return f"{service.id}  {service.name} ({service.tenant}): {service.state}, generation {service.generation}"


def _ready(service: ServiceDetail) -> None:
    print(f"{service.name} is READY: {service.ready} of {service.replicas} replicas")
    _endpoints(service)


def _endpoints(service: ServiceView) -> None:
    if service.endpoints is None:
        return
    for model in dict.fromkeys(model.name for model in service.models):
        print(f"  {service.endpoints.http}/v2/models/{model}/infer")
    print(f"  grpc {service.endpoints.grpc}")


def services(
    context: CommandContext,
    service: Annotated[
        str | None, typer.Argument(metavar="SERVICE", help="Show this one.", show_default="list all")
    ] = None,
    tenant: TenantOption = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Stopped ones as well.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Of one: its latency and rate of the last day.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="The most entries to show.")] = 100,
) -> None:
    """List services, or show one with its replicas and models."""
    from shoal.serve.lifecycle import ServiceState

    if history and service is None:
        raise Invalid("which service is not said", where="SERVICE", hint="`shoal services NAME --history`")
    with context.client() as client:
        if history:
            told = client.services.history(service, tenant=tenant)
            context.show(told, lambda: _show_history(told, limit))
            return
        if service is not None:
            one = client.services.get(service, tenant=tenant)
            context.show(one, lambda: _show(one))
            return
        found = client.services.list(tenant=tenant, state=list(ServiceState) if everything else None, limit=limit)

    def human() -> None:
        from shoal.base.console import output

        if found.services:
            output.put(_table(found.services))
        else:
            print("no services")
        if found.next:
            context.note("there are more: give a greater --limit")

    context.show(found, human)


def _show_history(told: ServiceHistory, limit: int) -> None:
    """The newest samples, oldest first."""
    from shoal.base.console import output

    def latency(value: float | None) -> str:
        return "-" if value is None else f"{value * 1e3:.3g} ms"

    rows = [
        [output.moment(one.at), latency(one.p50_s), latency(one.p99_s), f"{one.rate_per_s:.3g}/s", one.rejected]
        for one in told.samples[-limit:]
    ]
    output.put(output.table(["at", "p50", "p99", "rate", "refused"], rows) if rows else "no samples yet")


def _table(found: list[ServiceView]) -> Any:
    from shoal.base.console import output

    columns = [
        "service", "name", "tenant", "state", "class", "ready", "gen", "models", "p99", "objective", "rate", "refused",
        "why",
    ]  # fmt: skip
    rows = []
    for one in found:
        traffic = one.traffic
        rows.append(
            [
                one.id, one.name, one.tenant, _state(one), one.priority_class.value, f"{one.ready}/{one.replicas}",
                one.generation, " ".join(dict.fromkeys(model.name for model in one.models)),
                _latency(traffic.p99_s if traffic else None), _latency(one.slo_p99_s),
                f"{traffic.rate_per_s:.3g}/s" if traffic else "-", traffic.rejected if traffic else "-",
                one.reason.text if one.reason else "",
            ]
        )  # fmt: skip
    return output.table(
        columns, rows, cut_middle=("name",), least={"why": 24},
        drop=("class", "gen", "models", "refused", "tenant", "rate", "objective", "p99"),
    )  # fmt: skip


def _state(service: ServiceView) -> Any:
    from shoal.base.console import output

    styles = {"READY": "green", "DEPLOYING": "yellow", "DEGRADED": "bold yellow", "FAILED": "bold red"}
    return output.styled(service.state.value, styles.get(service.state.value, "dim"))


def _model_state(model: ServedModelView) -> str:
    """As the gateway sees it, and in the word of its runtime where that is another one."""
    own = model.runtime_state
    return f"{model.state}, {own}" if own not in ("", model.state) else model.state


def _latency(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.3g}ms"


def _show(service: ServiceDetail) -> None:
    from shoal.base.console import output

    traffic = service.traffic
    output.facts(
        {
            "service": service.id,
            "name": service.name,
            "tenant": service.tenant,
            "state": _state(service),
            "why": service.reason.text if service.reason else None,
            "class": service.priority_class.value,
            "replicas": f"{service.ready} of {service.replicas} ready",
            "generation": f"{service.generation} (deployment {service.deployment})",
            "objective": f"p99 {_latency(service.slo_p99_s)}" if service.slo_p99_s else None,
            "rate limit": f"{service.rate_limit:g} compute-seconds per second" if service.rate_limit else None,
            "deployed": output.moment(service.created_at),
            "changed": output.moment(service.updated_at),
            "stopped": output.moment(service.ended_at),
            "latency": f"p50 {_latency(traffic.p50_s)}, p99 {_latency(traffic.p99_s)}" if traffic else None,
            "requests": _counts(traffic) if traffic else None,
            "http": service.endpoints.http if service.endpoints else None,
            "grpc": service.endpoints.grpc if service.endpoints else None,
        }
    )
    models = [
        [one.name, one.version, one.runtime, _model_state(one), one.reason or one.runtime_reason]
        for one in service.models
    ]
    print()
    output.put(output.table(["model", "version", "runtime", "state", "why"], models))
    for one in service.models:
        if one.figures:
            told = ", ".join(f"{name} {value:.6g}" for name, value in one.figures.items())
            print(f"{one.name}:{one.version}  {told}")
    if not service.members:
        return
    rows = [
        [
            one.name, one.job_id, one.generation, one.state.value, "yes" if one.ready else "no", one.attempt,
            output.needs(one.resources), "leaving" if one.leaving else one.text,
        ]
        for one in service.members
    ]  # fmt: skip
    print()
    output.put(output.table(["replica", "job", "gen", "state", "ready", "try", "needs", "why"], rows))


def scale(
    context: CommandContext,
    service: ServiceArgument,
    replicas: Annotated[int, typer.Argument(min=0, max=1000, metavar="REPLICAS")],
    tenant: TenantOption = None,
    because: CauseOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Change how many replicas a service has; 0 keeps it without any."""
    with context.client() as client:
        changed: ServiceView = client.services.scale(service, replicas, tenant=tenant, cause=because)
        if wait:
            changed = client.services.wait_ready(changed.id, timeout_s=timeout)
    ready = f"{min(changed.ready, changed.replicas)} of {changed.replicas} replicas ready"
    leaving = changed.ready - changed.replicas
    context.show(changed, lambda: print(f"{_line(changed)}, {ready}{f', {leaving} leaving' if leaving > 0 else ''}"))


def undeploy(
    context: CommandContext,
    service: Annotated[list[str], typer.Argument(metavar="SERVICE")],
    tenant: TenantOption = None,
    because: CauseOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """End services: their replicas finish what they were asked, and end."""
    changed: list[ServiceView] = []
    with context.client() as client:
        try:
            for ref in service:
                one: ServiceView = client.services.undeploy(ref, tenant=tenant, cause=because)
                if wait:
                    one = client.services.wait_stopped(one.id, timeout_s=timeout)
                changed.append(one)
                if not context.json:
                    print(f"{one.id}  {one.name}: {one.state}", flush=True)
        finally:
            if context.json and changed:
                context.show(changed[0] if len(service) == 1 else changed, lambda: None)


def _counts(traffic: TrafficView) -> str:
    why = ", ".join(f"{count} {cause}" for cause, count in sorted(traffic.causes.items()))
    good = "" if traffic.goodput_per_s is None else f"; {traffic.goodput_per_s:.3g}/s within the objective"
    return f"{traffic.requests}, {traffic.rejected} refused{f' ({why})' if why else ''}, {traffic.failed} failed{good}"
