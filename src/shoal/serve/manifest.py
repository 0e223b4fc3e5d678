"""Manifest of a service: the fields of a service's manifest, and what it becomes for the gateway."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from shoal.contract.manifest import JOB, Kind, parse_as, places
from shoal.contract.manifest.parts import (
    Accelerators,
    Bundle,
    Conflict,
    Description,
    Duration,
    DurationOrZero,
    Env,
    Files,
    Labels,
    Manifest,
    Nodes,
    Part,
    PreferredNodes,
    ResourceRequest,
    Secrets,
    TenantField,
    Text,
    in_order,
    problem,
    read_grace,
    shared_conflicts,
    show_path,
    shown,
)
from shoal.core import PriorityClass, Resources
from shoal.inference.registry import check_options, installed, runtime_named, runtime_of
from shoal.inference.types import (
    DEFAULT_RUNTIME,
    MAX_SEQUENCES,
    PICKLES,
    SEQUENCE_IDLE_S,
    WITHOUT_PICKLE,
    DataType,
    ModelSpec,
    StatePair,
    TensorSpec,
    is_callable,
)
from shoal.serve.types import LOAD_TIMEOUT_S, Route, ServiceSpec

SERVICE_NAME = r"^[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?$"
"""Shorter than a job's, for a replica's name adds two numbers to it."""
MODEL_NAME = r"^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?$"
VERSION = r"^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,30}[A-Za-z0-9])?$"
SHA256 = r"^[0-9a-f]{64}$"
MOST_OPTION_BYTES = 16 << 10

RUNTIME = r"^[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?$"


def _only_services(value: Any) -> Any:
    if value == "job":
        raise problem("this is a job, and a service is wanted here", JOB.used_by)
    return value


def _source(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    factory, at, file = value.rpartition("@") if is_callable(value.partition("@")[0]) else ("", "", value)
    if PurePosixPath(file).suffix.lower() in PICKLES:
        raise problem(f"{shown(file)} is a pickle, which runs any code when it is opened", WITHOUT_PICKLE)
    return factory + at + (places.read_location(file) if is_remote(file) else places.read_relative(file))


def is_remote(file: str) -> bool:
    """Whether a model's file is where the server finds it: an absolute path or a URL. Any other is uploaded."""
    return file.startswith("/") or "://" in file


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options are small and of what JSON has: they are stored, and handed from process to process."""
    try:
        size = len(json.dumps(options, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise problem("these options are not plain values", "use texts, numbers, true, false, lists and maps") from None
    if size > MOST_OPTION_BYTES:
        raise problem(f"these options take {size} bytes", f"at most {MOST_OPTION_BYTES}: put data into a file")
    return options


def _version(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _dimension(value: int) -> int:
    if value < -1 or value == 0:
        raise problem(f"{value} is no length", "a number of elements, or -1 for any")
    return value


Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Version = Annotated[str, StringConstraints(pattern=VERSION)]
ModelName = Annotated[str, StringConstraints(pattern=MODEL_NAME)]
Dimension = Annotated[int, Field(strict=True), AfterValidator(_dimension)]


class Slo(Part):
    """What the service promises: `p99` is the latency of 99 of 100 requests, and their default deadline."""

    p99: Duration = Field(
        description="the latency of 99 of 100 requests, and every request's deadline unless it brings its own"
    )


class TensorField(Part):
    """An input or output; -1 in `shape` stands for any length."""

    name: Annotated[Text, StringConstraints(min_length=1, max_length=256)] = Field(description="as the model calls it")
    datatype: DataType = Field(description="type of its elements")
    shape: Annotated[tuple[Dimension, ...], Field(max_length=32)] = Field(description="lengths; -1 for any")


class StateField(Part):
    """A pair of tensors: what the model gives as `output` after one step of a sequence is its `input` at the next."""

    input: Annotated[Text, StringConstraints(min_length=1, max_length=256)] = Field(description="takes the state")
    output: Annotated[Text, StringConstraints(min_length=1, max_length=256)] = Field(description="gives the next one")


class Model(Part):
    """One version of a model. `source`: a file below the manifest's directory, which is uploaded; an absolute path on
    the server; a URL; `package.module:attribute` for a callable; or both, `package.module:Module@FILE`, for weights."""

    name: ModelName = Field(description="as requests call it; a tenant's services may not share it")
    source: Annotated[Text, BeforeValidator(_source), StringConstraints(max_length=4096)] = Field(
        description="a file that is uploaded, an absolute path on the server, a URL, or package.module:attribute"
    )
    runtime: Annotated[str, StringConstraints(pattern=RUNTIME)] = Field(
        default=DEFAULT_RUNTIME, description="one that is installed; guessed from the source where it can be"
    )
    options: Annotated[dict[str, Any], AfterValidator(_plain)] | None = Field(
        default=None, description="of the runtime, each by its name"
    )
    version: Annotated[Version, BeforeValidator(_version)] = Field(
        default="1", description="several versions of a model may be served"
    )
    threads: Annotated[int, Field(strict=True, ge=1, le=1024)] = Field(
        default=1, description="of one execution, and the compute slots it takes"
    )
    max_batch: Annotated[int, Field(strict=True, ge=0, le=65_536)] = Field(
        default=1, description="how many requests may be put together"
    )
    warmup: Annotated[int, Field(strict=True, ge=0, le=1000)] = Field(
        default=2, description="executions before it is ready"
    )
    sha256: Annotated[str, StringConstraints(pattern=SHA256)] | None = Field(
        default=None, description="what the file must be"
    )
    state: Annotated[tuple[StateField, ...], Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="pairs of an input and an output that carry its state from request to request"
    )
    max_sequences: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = Field(
        default=None, description="whose state a replica keeps at once [1000]"
    )
    sequence_idle: Duration | None = Field(
        default=None, description="the state of a sequence without a request for so long is dropped [60s]"
    )
    inputs: Annotated[tuple[TensorField, ...], Field(max_length=256)] = Field(
        default=(), description="where the model does not say itself"
    )
    outputs: Annotated[tuple[TensorField, ...], Field(max_length=256)] = Field(
        default=(), description="where the model does not say itself"
    )

    @model_validator(mode="before")
    @classmethod
    def _guess_runtime(cls, value: Any) -> Any:
        """A source often says by itself how it is run."""
        if not isinstance(value, dict) or "runtime" in value or not isinstance(value.get("source"), str):
            return value
        guess = runtime_of(value["source"])
        return value if guess is None else {**value, "runtime": guess}

    @property
    def file(self) -> str | None:
        """The file of the source, if it has one."""
        declared = installed().get(self.runtime)
        if is_callable(self.source) if declared is None else declared.code:
            return None
        factory, _, file = self.source.partition("@")
        return file if file and is_callable(factory) else self.source

    @property
    def fetched(self) -> tuple[str, str] | None:
        """The URL that a replica's file has to be fetched from, and where it goes in the run directory."""
        if self.file is None or "://" not in self.file:
            return None
        return self.file, f"models/{self.name}-{self.version}/{PurePosixPath(self.file).name or 'model'}"

    def spec(self) -> ModelSpec:
        source = self.source.replace(*self.fetched) if self.fetched else self.source
        return ModelSpec(
            name=self.name, source=source, runtime=self.runtime, version=self.version, threads=self.threads,
            max_batch=self.max_batch, warmup=self.warmup, sha256=self.sha256, options=self.options or {},
            state=tuple(StatePair(one.input, one.output) for one in self.state or ()),
            max_sequences=self.max_sequences or MAX_SEQUENCES, sequence_idle_s=self.sequence_idle or SEQUENCE_IDLE_S,
            inputs=tuple(TensorSpec(one.name, one.datatype, one.shape) for one in self.inputs),
            outputs=tuple(TensorSpec(one.name, one.datatype, one.shape) for one in self.outputs),
        )  # fmt: skip


class RouteField(Part):
    """How a model's requests are shared among its versions, and what part of them is copied to the version `shadow`,
    whose responses are dropped."""

    shares: Annotated[dict[Version, Share], Field(min_length=1, max_length=64), AfterValidator(in_order)] = Field(
        description="of the requests, by version; they sum to 1"
    )
    shadow: Annotated[Version, BeforeValidator(_version)] | None = Field(
        default=None, description="a version that gets copies of requests; its responses are dropped"
    )
    shadow_share: Share = Field(default=1.0, description="the part of the requests that is copied")

    def route(self) -> Route:
        shadow_share = self.shadow_share if self.shadow is not None else 0.0
        return Route(tuple(self.shares.items()), self.shadow, shadow_share)


class ServiceManifest(Manifest):
    """One service as its tenant describes it. Use `parse_service` to make one from text."""

    kind: Annotated[Literal["service"], BeforeValidator(_only_services)] = Field(
        default="service", description="a service runs until it is undeployed"
    )
    name: Annotated[str, StringConstraints(pattern=SERVICE_NAME)] = Field(
        description="lower-case letters, digits and dashes, at most 48"
    )
    tenant: TenantField = None
    description: Description = ""
    labels: Labels = Field(default={})

    models: Annotated[tuple[Model, ...], Field(min_length=1, max_length=256)] = Field(
        description="what every replica loads"
    )
    routes: Annotated[dict[ModelName, RouteField], Field(max_length=256), AfterValidator(in_order)] = Field(
        default={}, description="by model: which versions get which share of its requests [the last version]"
    )
    slo: Slo | None = Field(default=None, description="the latency that is promised")
    rate_limit: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None,
        description="compute-seconds per second that the service may use; what is over it is refused with 429",
    )
    burst: Duration = Field(default=1.0, description="how many compute-seconds of the rate limit may be saved up")

    replicas: Annotated[int, Field(strict=True, ge=0, le=1000)] | None = Field(
        default=None, description="how many; 0 keeps the service without any [1 at first, then as it is]"
    )
    resources: ResourceRequest | None = Field(
        default=None, description="of each replica [a core for each thread of the widest model]"
    )
    nodes: Nodes | None = Field(
        default=None, description="on which nodes replicas may run, by labels and taints; left out: all without taints"
    )
    priority_class: PriorityClass = Field(
        default=PriorityClass.GUARANTEED, description="replicas of a `best-effort` service may be preempted"
    )
    rollout: Literal["surge", "replace"] = Field(
        default="surge",
        description="`replace`: an update ends an old replica before it starts a new one; for want of room",
    )
    grace: Annotated[DurationOrZero, AfterValidator(read_grace)] = Field(
        default=10.0, description="time to answer what a replica was asked before it is killed"
    )
    load_timeout: Duration = Field(
        default=LOAD_TIMEOUT_S,
        description="a replica that needs longer to load one model is killed and started again, three times",
    )

    files: Files = ()
    bundle: Bundle = None
    env: Env = Field(default={})
    secrets: Secrets = Field(default={})

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for path, what, hint in conflicts(self.model_dump(by_alias=True, exclude_none=True)):
            raise problem(f"{show_path(path)}: {what}", hint)
        return self

    @property
    def threads(self) -> int:
        """The most that one of its models executes on."""
        return max(model.threads for model in self.models)

    @property
    def max_ranks(self) -> int:
        """Processes of one replica."""
        return 1

    def with_cores(self) -> ServiceManifest:
        """Where it says nothing of resources, it asks for one core for each thread of the widest model."""
        if self.resources is not None:
            return self
        return self.model_copy(update={"resources": ResourceRequest(cpus=float(self.threads))})

    def resources_per_replica(self) -> Resources:
        """As asked for; else one core for each thread of the widest model."""
        request = self.resources or ResourceRequest()
        return (request if request.cpus is not None else request.model_copy(update={"cpus": self.threads})).resources()

    def uploads(self) -> tuple[str, ...]:
        """What the client has to upload, relative to the manifest: its `files`, and models that are local files."""
        models = (model.file for model in self.models if model.file is not None and not is_remote(model.file))
        return tuple(dict.fromkeys((*self.files, *models))) if self.bundle is None else ()

    def replica_fingerprint(self) -> str:
        """The same of all that a replica process depends on: where this differs, replicas have to be replaced."""
        fields = {"name", "models", "resources", "nodes", "priority_class", "grace", "bundle", "env", "secrets"}
        return hashlib.sha256(self.model_dump_json(include=fields, exclude_none=True).encode()).hexdigest()

    def spec(self, tenant: str, replicas: int) -> ServiceSpec:
        """What the gateway is told."""
        return ServiceSpec(
            name=self.name, tenant=tenant, models=tuple(model.spec() for model in self.models),
            routes=tuple(self._routes()), replicas=replicas, priority_class=self.priority_class,
            slo_p99_s=self.slo.p99 if self.slo else None, rate_limit=self.rate_limit, burst_s=self.burst,
            memory_bytes=(self.resources.memory or 0) if self.resources else 0, load_timeout_s=self.load_timeout,
        )  # fmt: skip

    def _routes(self) -> Iterator[tuple[str, Route]]:
        """One for each model; of several versions without a route, the last that is named takes all."""
        for name, version in {model.name: model.version for model in self.models}.items():
            given = self.routes.get(name)
            yield name, given.route() if given else Route(((version, 1.0),))


def conflicts(values: dict[str, Any]) -> list[Conflict]:
    """What contradicts itself in a service. `values` may also be an unchecked mapping."""
    found: list[Conflict] = []
    versions: dict[str, set[str]] = {}
    models = values.get("models")
    for position, model in enumerate(models if isinstance(models, list | tuple) else ()):
        if isinstance(model, dict):
            found += _model_conflicts(position, model, versions)
    routes = values.get("routes")
    for name, route in routes.items() if isinstance(routes, dict) else ():
        if isinstance(route, dict) and versions:
            found += _route_conflicts(str(name), route, versions)
    return found + shared_conflicts(values, PriorityClass.GUARANTEED)


def _model_conflicts(position: int, model: dict[str, Any], versions: dict[str, set[str]]) -> Iterator[Conflict]:
    name, version, source = model.get("name"), str(model.get("version", "1")), model.get("source")
    if isinstance(name, str):
        known = versions.setdefault(name, set())
        if version in known:
            what = f"version {version} of model {name} is named twice"
            yield ("models", position, "version"), what, "give each its own `version`"
        known.add(version)
    if not isinstance(source, str):
        return
    state = model.get("state")
    pairs = [one for one in state if isinstance(one, dict)] if isinstance(state, list | tuple) else []
    for side in ("input", "output"):
        names = [str(one.get(side)) for one in pairs]
        for twice in sorted({name for name in names if names.count(name) > 1}):
            yield ("models", position, "state"), f"{side} {shown(twice)} is in two pairs", "name each tensor once"
    declared = installed().get(str(model.get("runtime", runtime_of(source))))
    if declared is None:
        return
    if declared.code and not is_callable(source):
        yield ("models", position, "source"), f"{shown(source)} is not a callable", "write package.module:attribute"
    if declared.declares_tensors and not (model.get("inputs") and model.get("outputs")):
        what = f"a {declared.name} file does not say what the model takes and gives"
        yield ("models", position), what, "declare its `inputs` and `outputs`"


def _route_conflicts(name: str, route: dict[str, Any], versions: dict[str, set[str]]) -> Iterator[Conflict]:
    known = versions.get(name)
    if known is None:
        yield ("routes", name), f"there is no model {name}", f"models here: {', '.join(sorted(versions))}"
        return
    there_are = f"versions of {name}: {', '.join(sorted(known))}"
    shares = route.get("shares")
    if isinstance(shares, dict) and shares:
        for version in shares:
            if str(version) not in known:
                yield ("routes", name, "shares", str(version)), f"{name} has no version {version}", there_are
        numbers = [share for share in shares.values() if isinstance(share, int | float) and 0 <= share <= 1]
        if len(numbers) == len(shares) and abs(sum(numbers) - 1) > 1e-6:
            yield ("routes", name, "shares"), f"the shares sum to {sum(numbers):g}", "they must sum to 1"
    shadow = route.get("shadow")
    if shadow is not None and str(shadow) not in known:
        yield ("routes", name, "shadow"), f"{name} has no version {shadow}", there_are
    if shadow is None and "shadow_share" in route and route["shadow_share"] != 1.0:
        yield ("routes", name, "shadow_share"), "there is no `shadow` to copy to", "name a version under `shadow`"


def check_runtimes(manifest: ServiceManifest) -> None:
    """Raises Invalid for a runtime that is not installed here, and for options that it does not take. Manifests that
    were accepted earlier are read without this: a package that was uninstalled must not make them unreadable."""
    for at, model in enumerate(manifest.models):
        declared = runtime_named(model.runtime, f"models[{at}].runtime")
        check_options(declared, model.options or {}, f"models[{at}].options")


def service_schema() -> dict[str, Any]:
    """The manifest's JSON Schema, for editors and for the API's description."""
    schema = ServiceManifest.model_json_schema()
    schema["title"] = "Shoal service manifest"
    return schema


SERVICE = Kind(
    "service",
    ServiceManifest,
    {
        (): ServiceManifest,
        ("models", "*"): Model,
        ("models", "*", "state", "*"): StateField,
        ("models", "*", "inputs", "*"): TensorField,
        ("models", "*", "outputs", "*"): TensorField,
        ("routes", "*"): RouteField,
        ("slo",): Slo,
        ("resources",): ResourceRequest,
        ("resources", "accelerators"): Accelerators,
        ("nodes",): Nodes,
        ("nodes", "prefer", "*"): PreferredNodes,
    },
    conflicts,
    service_schema,
    "deploy it: `shoal deploy`, or POST /v1/services",
    marks=frozenset({"models"}),
    namespace="services",
    shapes={
        SERVICE_NAME: ("is not a name", "use lower-case letters, digits and dashes, at most 48, such as ocr-fast"),
        MODEL_NAME: ("is not a model's name", "use letters, digits and _ . -, at most 64"),
        VERSION: ("is not a version", "use letters, digits and _ . -, at most 32, such as 1 or 2024-05"),
        RUNTIME: ("is not a runtime's name", "use lower-case letters, digits, _ and -, such as onnx"),
        SHA256: ("is not a SHA-256", "write 64 hexadecimal digits, as sha256sum prints them"),
    },
    missing={
        "models": "say what to serve, such as `models: [{name: ocr, source: ocr.onnx}]`",
        "source": "say where the model is: a file below the manifest's directory, a path on the server, or a URL",
    },
    known_as={
        "model": "models",
        "path": "source",
        "file": "source",
        "url": "source",
        "uri": "source",
        "latency": "p99",
        "slo_p99": "p99",
        "instances": "replicas",
        "replicas": "replicas",
    },
)


def parse_service(text: str | bytes, *, source: str = "manifest") -> ServiceManifest:
    """The service in this YAML or JSON text, as `parse_manifest` reads jobs."""
    manifest: ServiceManifest = parse_as(SERVICE, text, source=source)
    return manifest
