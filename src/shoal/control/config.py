"""The server's settings: a flag beats SHOAL_* in the environment, which beats the config file, which beats the default.

Each value is checked where it came from, so that the error names the flag, the variable or the file's key.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError

from shoal.admission.types import Policy, Spread
from shoal.base.http import Limits as HttpLimits
from shoal.contract.manifest.quantities import read_duration, read_memory
from shoal.control.bundles import BundleLimits
from shoal.control.home import Home, default_home
from shoal.control.limits import JobLimits
from shoal.control.retention import Retention
from shoal.core import Invalid, Money
from shoal.serve.contract import FREE, Address

if TYPE_CHECKING:
    from shoal.schedule.presets import ScheduleSettings

DEFAULT_PORT, DEFAULT_SERVE_PORT, DEFAULT_GRPC_PORT = 7070, 7071, 7072
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where the gateway listens (port 0: any free one, and the same again as long as its home is the same), the compute
    slots it shares out (None: one for each core), what the machine costs, and the tenant whose the calls without a
    token are (None: nobody's, they are refused)."""

    http: Address = field(default_factory=Address)
    grpc: Address = field(default_factory=Address)
    slots: int | None = None
    price_per_hour: Money = FREE
    anonymous: str | None = None
    limits: HttpLimits = field(default_factory=HttpLimits)


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """What the holder of one token may ask of the API: `requests_per_s` on average and `burst` at once, and `streams`
    that wait at the same time (event streams, followed logs, long polls)."""

    requests_per_s: float = 200.0
    burst: int = 1000
    streams: int = 256


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """The server's own guard: which policy of `shoal.host` decides, and how much longer a unit of guaranteed work may
    take than alone (1.05: by a twentieth)."""

    policy: str = "model"
    max_slowdown: float = 1.05


@dataclass(frozen=True, slots=True)
class Settings:
    """`slots` None: what the machine offers (GPUs, else CPU slots). `port` 0: any free one. `schedule` None: admission
    alone decides. `guard` None: nobody guards what runs."""

    home: Home
    db: str
    host: str
    port: int
    slots: int | None
    policy: Policy
    log_level: str
    serve: ServeSettings
    http: HttpLimits = field(default_factory=HttpLimits)
    tokens: TokenLimits = field(default_factory=TokenLimits)
    schedule: ScheduleSettings | None = None
    guard: GuardSettings | None = None
    limits: JobLimits = field(default_factory=JobLimits)
    bundles: BundleLimits = field(default_factory=BundleLimits)
    retention: Retention = field(default_factory=Retention)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host in LOOPBACK or host.startswith("127.")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text")
    return value.strip()


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        try:
            number = int(str(value), 10)
        except ValueError:
            raise ValueError(f"must be a whole number, not {value!r}") from None
        if isinstance(value, bool) or not low <= number <= high:
            raise ValueError(f"must be between {low} and {high}, not {value}")
        return number

    return read


def _seconds(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"must be a number of seconds, not {value!r}")
    return number


def _cores(value: Any) -> float:
    try:
        return _seconds(value)
    except ValueError:
        raise ValueError(f"must be a number of cores, not {value!r}") from None


def _period(value: Any) -> float:
    """At least an hour: what ended a moment ago is still read, and the last use of a bundle is kept to the hour."""
    try:
        seconds = read_duration(int(value) if isinstance(value, str) and value.strip().isdecimal() else value)
    except PydanticCustomError:
        seconds = 0.0
    if seconds < _LEAST_KEPT_S:
        raise ValueError(f"must be a duration of at least 2h, such as 30d, not {value!r}")
    return seconds


def _size(value: Any) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    try:
        return read_memory(value)
    except PydanticCustomError:
        raise ValueError(f"must be a size such as 512MiB or 4GiB, not {value!r}") from None


def _dollars(value: Any) -> Money:
    try:
        return Money.usd(_seconds(value.strip().removeprefix("$") if isinstance(value, str) else value))
    except ValueError:
        raise ValueError(f"must be a number of dollars, not {value!r}") from None


def _switch(value: Any) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return known[str(value).strip().lower()]
    except KeyError:
        raise ValueError(f"must be on or off, not {value!r}") from None


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        word = str(value).strip().lower()
        if word not in words:
            raise ValueError(f"must be {' or '.join(words)}, not {value!r}")
        return word

    return read


def _database(value: Any) -> str:
    url = _text(value)
    if not url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:")):
        raise ValueError("must be sqlite:///PATH or postgresql://USER@HOST/NAME")
    return url


def _schedule_policy(value: Any) -> str | None:
    word = str(value).strip().lower() if value else "none"
    if word == "none":
        return None
    # Only who asks for a policy waits for the numerical libraries to be imported.
    from shoal.schedule import POLICIES

    known = [name for name in POLICIES if name not in _NOT_LIVE]
    if word not in known:
        raise ValueError(f"must be none or one of {', '.join(known)}, not {value!r}")
    return word


def _positive_seconds(value: Any) -> float:
    number = _seconds(value)
    if not number:
        raise ValueError("must be more than 0 seconds")
    return number


def _guard_policy(value: Any) -> str:
    from shoal.host.policy import POLICIES

    return _one_of(*POLICIES)(value)


def _slowdown(value: Any) -> float:
    number = _seconds(value)
    if not 1 < number <= _MOST_SLOWDOWN:
        raise ValueError(f"must be more than 1 and at most {_MOST_SLOWDOWN:g}, such as 1.05, not {value!r}")
    return number


def _prices(value: Any) -> tuple[tuple[str, Money], ...]:
    """`a100=2.48,k80=0.9`, or a mapping in the config file."""
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(equals and name.strip() for name, equals, _ in parts):
            raise ValueError(f"must be TYPE=DOLLARS,..., not {value!r}")
        value = {name.strip(): amount for name, _, amount in parts}
    if not isinstance(value, dict):
        raise ValueError(f"must be dollars by accelerator type, not {value!r}")
    return tuple(sorted((str(name), _dollars(amount)) for name, amount in value.items()))


_POLICY = Policy()
_HTTP = HttpLimits()
_TOKENS = TokenLimits()
_NOT_LIVE = frozenset({"allox"})
"""It fails on any job of several accelerators, so that one tenant's gang would stop the policy for all."""
_GROUPS = ("schedule", "guard", "limits")
"""In the file their settings may stand below these keys, as in `schedule: {policy: max-min, round_s: 60}`."""
_LEAST_KEPT_S = 7200.0
_LIMITS = JobLimits()
_BUNDLES = BundleLimits()
_RETENTION = Retention()
_GUARD = GuardSettings()
_MOST_SLOWDOWN = 10.0

_OPTIONS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "db": (_database, None),
    "host": (_text, "127.0.0.1"),
    "port": (_whole(0, 65535), DEFAULT_PORT),
    "slots": (_whole(1, 4096), None),
    "placement": (_one_of(*Spread), _POLICY.placement.value),
    "preemption": (_switch, _POLICY.preemption),
    "backfill_s": (_seconds, _POLICY.backfill_s),
    "quantum_s": (_seconds, _POLICY.quantum_s),
    "default_runtime_s": (_seconds, _POLICY.default_runtime_s),
    "log_level": (_one_of("debug", "info", "warning", "error"), "info"),
    "bundle_limit_mib": (_whole(1, 65536), 64),
    "default_cpus": (_cores, _LIMITS.default_cpus),
    "default_memory": (_size, None),
    "max_processes": (_whole(4, 4_194_304), _LIMITS.processes),
    "max_open_files": (_whole(64, 1_048_576), _LIMITS.open_files),
    "max_log": (_size, _LIMITS.log_bytes),
    "max_disk": (_size, None),
    "max_unpacked": (_size, _LIMITS.unpacked_bytes),
    "keep_jobs": (_period, _RETENTION.jobs_s),
    "keep_runs": (_period, _RETENTION.runs_s),
    "keep_events": (_period, _RETENTION.events_s),
    "keep_bundles": (_period, _RETENTION.bundles_s),
    "keep_jobs_per_tenant": (_whole(1, 100_000_000), _RETENTION.jobs_per_tenant),
    "keep_runs_size": (_size, None),
    "max_bundles": (_whole(1, 10_000_000), _BUNDLES.count),
    "max_bundles_size": (_size, _BUNDLES.stored_bytes),
    "serve_host": (_text, "127.0.0.1"),
    "serve_port": (_whole(0, 65535), None),
    "serve_grpc_port": (_whole(0, 65535), None),
    "serve_body_limit_mib": (_whole(1, 256), _HTTP.body >> 20),
    "limits_head_kib": (_whole(1, 1024), _HTTP.head >> 10),
    "limits_head_s": (_positive_seconds, _HTTP.head_s),
    "limits_body_s": (_positive_seconds, _HTTP.body_s),
    "limits_slowest_kib_per_s": (_whole(1, 1 << 20), int(_HTTP.slowest_bytes_per_s) >> 10),
    "limits_idle_s": (_positive_seconds, _HTTP.idle_s),
    "limits_connections": (_whole(1, 1 << 20), _HTTP.connections),
    "limits_connections_per_address": (_whole(1, 1 << 20), None),
    "limits_reserved_files": (_whole(16, 1 << 20), _HTTP.reserved_files),
    "limits_requests_per_s": (_positive_seconds, _TOKENS.requests_per_s),
    "limits_request_burst": (_whole(1, 1 << 20), _TOKENS.burst),
    "limits_streams": (_whole(1, 1 << 20), _TOKENS.streams),
    "serve_slots": (_whole(1, 4096), None),
    "serve_anonymous": (_text, None),
    "price_per_hour": (_dollars, FREE),
    "schedule_policy": (_schedule_policy, None),
    "schedule_agnostic": (_switch, None),
    "schedule_round_s": (_positive_seconds, None),
    "schedule_restart_cost_s": (_seconds, None),
    "schedule_prices": (_prices, None),
    "guard": (_switch, False),
    "guard_policy": (_guard_policy, _GUARD.policy),
    "guard_max_slowdown": (_slowdown, _GUARD.max_slowdown),
}


def load_settings(
    flags: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, config: Path | None = None
) -> Settings:
    """`flags` holds what was given on the command line (None: not given). Raises Invalid with every problem."""
    environ = os.environ if environ is None else environ
    home = Home(Path(flags["home"]).expanduser().absolute() if flags.get("home") else default_home(environ))
    problems: list[Invalid] = []
    file, source = _read_file(home, config, problems)
    values: dict[str, Any] = {}
    for name, (read, default) in _OPTIONS.items():
        variable = f"SHOAL_{name.upper()}"
        given: list[tuple[Any, str]] = [
            (flags.get(name), f"--{name.replace('_', '-')}"),
            (environ.get(variable) or None, variable),
            (file.get(name), f"{source}: {name}"),
        ]
        value, where = next(((value, where) for value, where in given if value is not None), (None, ""))
        if value is None:
            values[name] = default
            continue
        try:
            values[name] = read(value)
        except ValueError as error:
            problems.append(Invalid(str(error), where=where))
    if problems:
        first = problems[0]
        what = first.what if len(problems) == 1 else f"{len(problems)} settings are wrong"
        only = first.where if len(problems) == 1 else None
        raise Invalid(what, where=only, hint=first.hint, problems=tuple(problems))
    return Settings(
        home=home,
        db=values["db"] or home.database,
        host=values["host"],
        port=values["port"],
        slots=values["slots"],
        policy=Policy(
            placement=Spread(values["placement"]),
            preemption=values["preemption"],
            backfill_s=values["backfill_s"],
            quantum_s=values["quantum_s"],
            default_runtime_s=values["default_runtime_s"],
        ),
        log_level=values["log_level"],
        limits=JobLimits(
            default_cpus=values["default_cpus"],
            default_memory_bytes=values["default_memory"],
            processes=values["max_processes"],
            open_files=values["max_open_files"],
            log_bytes=values["max_log"],
            disk_bytes=values["max_disk"],
            unpacked_bytes=values["max_unpacked"],
        ),
        retention=Retention(
            values["keep_jobs"],
            values["keep_runs"],
            values["keep_events"],
            values["keep_bundles"],
            values["keep_jobs_per_tenant"],
            values["keep_runs_size"],
        ),
        bundles=BundleLimits(
            values["bundle_limit_mib"] << 20, values["max_unpacked"], values["max_bundles"], values["max_bundles_size"]
        ),
        serve=_serve_settings(values),
        http=_http_limits(values),
        tokens=TokenLimits(values["limits_requests_per_s"], values["limits_request_burst"], values["limits_streams"]),
        schedule=_schedule_settings(values),
        guard=GuardSettings(values["guard_policy"], values["guard_max_slowdown"]) if values["guard"] else None,
    )


def _serve_settings(values: Mapping[str, Any]) -> ServeSettings:
    """A server on any free port has a gateway on any free ports, unless these are named."""
    free = values["port"] == 0
    http, grpc = values["serve_port"], values["serve_grpc_port"]
    return ServeSettings(
        http=Address(values["serve_host"], (0 if free else DEFAULT_SERVE_PORT) if http is None else http),
        grpc=Address(values["serve_host"], (0 if free else DEFAULT_GRPC_PORT) if grpc is None else grpc),
        slots=values["serve_slots"],
        price_per_hour=values["price_per_hour"],
        anonymous=values["serve_anonymous"],
        limits=replace(_http_limits(values), body=values["serve_body_limit_mib"] << 20),
    )


def _http_limits(values: Mapping[str, Any]) -> HttpLimits:
    """One set of limits for both doors; sizes of bodies are each door's own."""
    return HttpLimits(
        head=values["limits_head_kib"] << 10,
        head_s=values["limits_head_s"],
        body_s=values["limits_body_s"],
        slowest_bytes_per_s=float(values["limits_slowest_kib_per_s"] << 10),
        idle_s=values["limits_idle_s"],
        connections=values["limits_connections"],
        per_address=values["limits_connections_per_address"],
        reserved_files=values["limits_reserved_files"],
    )


def _schedule_settings(values: Mapping[str, Any]) -> ScheduleSettings | None:
    name = values["schedule_policy"]
    if name is None:
        return None
    if values["schedule_agnostic"]:
        from shoal.schedule import POLICIES

        if not POLICIES[name].agnostic:
            blind = ", ".join(policy.name for policy in POLICIES.values() if policy.agnostic)
            raise Invalid(f"{name} has no agnostic form", where="schedule_agnostic", hint=f"these have: {blind}")
    if name == "min-cost" and not values["schedule_prices"]:
        hint = "such as a100=2.48,k80=0.9, in dollars an hour"
        raise Invalid("min-cost needs the price of each accelerator type", where="schedule_prices", hint=hint)
    from shoal.schedule.presets import ScheduleSettings

    names = ("agnostic", "round_s", "restart_cost_s", "prices")
    given = {each: values[f"schedule_{each}"] for each in names if values[f"schedule_{each}"] is not None}
    return ScheduleSettings(name, **given)


def _read_file(home: Home, config: Path | None, problems: list[Invalid]) -> tuple[Mapping[str, Any], str]:
    path = config or home.config_file
    try:
        text = path.read_text()
    except FileNotFoundError:
        if config is not None:
            raise Invalid("there is no such config file", where=str(path)) from None
        return {}, str(path)
    except OSError as error:
        raise Invalid(f"the config file cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise Invalid(f"the config file is not UTF-8 at byte {error.start}", where=str(path)) from None
    import yaml

    try:
        found = yaml.safe_load(text)
        problems += _repeated(yaml.compose(text, yaml.SafeLoader), str(path))
    except yaml.YAMLError as error:
        raise Invalid(f"the config file is not YAML: {error}", where=str(path)) from error
    if found is None:
        return {}, str(path)
    if not isinstance(found, dict):
        raise Invalid("the config file must be a mapping of settings", where=str(path), hint="such as `port: 7070`")
    for name in _GROUPS:
        if isinstance(group := found.get(name), dict):
            rest = {key: value for key, value in found.items() if key != name}
            below = {name if key == "enabled" else f"{name}_{key}": value for key, value in group.items()}
            found = {**rest, **below}
    for key in found:
        if key not in _OPTIONS:
            near = difflib.get_close_matches(str(key), _OPTIONS, 1)
            near = [f"{key}: {{policy: {found[key]}}}"] if key in _GROUPS else near
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_OPTIONS)}"
            problems.append(Invalid(f"there is no setting {key!r}", where=str(path), hint=hint))
    return found, str(path)


def _repeated(node: Any, source: str, levels: int = 3) -> Iterator[Invalid]:
    """Settings that a file holds twice: YAML's reader would take the last one, without a word. No setting is more than
    three levels deep, and an alias may lead back to where it stands."""
    lines: dict[str, int] = {}
    for key, value in node.value if getattr(node, "id", "") == "mapping" else ():
        line = key.start_mark.line + 1
        if key.value in lines:
            what = f"{key.value} is given twice, first on line {lines[key.value]}"
            yield Invalid(what, where=f"{source}:{line}: {key.value}", hint="keep one of them")
        lines.setdefault(str(key.value), line)
        if levels > 1:
            yield from _repeated(value, source, levels - 1)
