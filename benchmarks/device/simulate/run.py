"""Systems against each other on a simulated device: what each does to the service's latency, and what training gets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from device.simulate.device import Loop, Shared, TimeSliced
from device.simulate.programs import Gate, Gated, Profiles, RateControl, Service, Training
from device.simulate.workloads import SERVICES, TRAININGS, DeviceSpec
from shoal.base import arrivals
from shoal.base.statistics import quantile
from shoal.core import Invalid
from shoal.device import native
from shoal.device.policy import Rules, Ways


class System(StrEnum):
    ALONE = "alone"
    TIME_SLICING = "time-slicing"
    """Two processes on a device, as it comes."""
    MPS = "mps"
    """Blocks of both at once, first come, first served."""
    MPS_PRIORITY = "mps-priority"
    """The same, with the service's blocks first."""
    TGS = "tgs"
    """As MPS, and the rate of training follows that of the service."""
    GATE = "gate"
    GATE_SLICE = "gate+slice"
    GATE_TICKET = "gate+ticket"


SYSTEMS = tuple(System)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Latencies in milliseconds; overheads against the same requests alone, as parts of it. Training's throughput is a
    part of what it has alone."""

    system: System
    service: str
    training: str
    load: float
    seed: int
    requests: int
    p50_ms: float
    p99_ms: float
    p99_service_ms: float
    p99_overhead: float
    p99_service_overhead: float
    """Of the time from the start of a request, without its wait behind others: what Tally reports."""
    throughput: float
    pieces: int = 0
    violations: int = 0


@dataclass(frozen=True, slots=True)
class _Raw:
    from_arrival: tuple[int, ...]
    from_start: tuple[int, ...]
    ran_ns: int
    lasted_ns: int
    pieces: int = 0
    violations: int = 0


_WAYS = {
    System.GATE: Ways.WHOLE,
    System.GATE_SLICE: Ways.WHOLE | Ways.SLICE,
    System.GATE_TICKET: Ways.WHOLE | Ways.TICKET,
}


def simulate(
    system: System | str,
    service: str,
    training: str,
    *,
    load: float = 0.5,
    requests: int = 300,
    seed: int = 1,
    rules: Rules | None = None,
    spec: DeviceSpec | None = None,
) -> Outcome:
    """`load`: arrivals a second (Poisson) by the seconds of one request alone. Equal arguments, equal outcomes.
    Raises Invalid for names and loads that do not exist."""
    system = System(_member(system, SYSTEMS, "system"))
    _member(service, SERVICES, "service")
    _member(training, TRAININGS, "training")
    if not 0 < load < 1:
        raise Invalid(f"a load of {load:g} does not settle", where="load", hint="give one between 0 and 1")
    if requests < 1:
        raise Invalid("there are no requests", where="requests", hint="1 or more")
    spec, rules = spec or DeviceSpec(), rules or Rules()
    alone = _alone(service, load, requests, seed, spec)
    free = _free(training, seed, spec)
    raw = alone if system is System.ALONE else _run(system, service, training, load, requests, seed, rules, spec)
    p99, p99_service = quantile(raw.from_arrival, 0.99), quantile(raw.from_start, 0.99)
    return Outcome(
        system=system,
        service=service,
        training=training,
        load=load,
        seed=seed,
        requests=requests,
        p50_ms=quantile(raw.from_arrival, 0.5) / 1e6,
        p99_ms=p99 / 1e6,
        p99_service_ms=p99_service / 1e6,
        p99_overhead=p99 / quantile(alone.from_arrival, 0.99) - 1,
        p99_service_overhead=p99_service / quantile(alone.from_start, 0.99) - 1,
        throughput=0.0 if system is System.ALONE else raw.ran_ns / raw.lasted_ns / free,
        pieces=raw.pieces,
        violations=raw.violations,
    )


def compare(
    mixes: Iterable[tuple[str, str]],
    *,
    loads: Sequence[float] = (0.5,),
    systems: Sequence[System | str] = SYSTEMS,
    seed: int = 1,
    requests: int = 300,
    rules: Rules | None = None,
) -> Iterator[Outcome]:
    """One after the other, by mix, load and system."""
    for service, training in mixes:
        for load in loads:
            for system in systems:
                yield simulate(system, service, training, load=load, seed=seed, requests=requests, rules=rules)


@lru_cache(maxsize=256)
def _alone(service: str, load: float, requests: int, seed: int, spec: DeviceSpec) -> _Raw:
    return _run(System.ALONE, service, "", load, requests, seed, Rules(), spec)


@lru_cache(maxsize=256)
def _free(training: str, seed: int, spec: DeviceSpec) -> float:
    """Training's work a nanosecond with the device to itself, over ten steps."""
    loop = Loop()
    model = TRAININGS[training]
    kernels = model.draw(seed)
    program = Training(loop, TimeSliced(loop, spec), spec, model, kernels)
    loop.run(10 * sum(one.alone_ns for one in kernels))
    return program.ran_ns / loop.now


@lru_cache(maxsize=256)
def _learnt(training: str, seed: int, rules: Rules, spec: DeviceSpec, ways: Ways) -> Profiles:
    """What an earlier run has left in the file of profiles: a few steps under the bound, with nothing to wait for."""
    loop = Loop()
    model = TRAININGS[training]
    kernels = model.draw(seed)
    gate = Gate(loop, replace(rules, grace_ns=0, grace_most_ns=0, idle_ns=1 << 62).to_native(), 1)
    program = Gated(loop, TimeSliced(loop, spec), spec, model, kernels, gate, ways)
    loop.run(6 * sum(one.alone_ns for one in kernels))
    return program.profiles


def _run(
    system: System, service: str, training: str, load: float, requests: int, seed: int, rules: Rules, spec: DeviceSpec
) -> _Raw:
    loop = Loop()
    shared = system in (System.MPS, System.MPS_PRIORITY, System.TGS)
    device = Shared(loop, spec, priority=system is System.MPS_PRIORITY) if shared else TimeSliced(loop, spec)
    gate = Gate(loop, rules.to_native(), 1) if system in _WAYS else None
    model = SERVICES[service]
    program = Service(loop, device, spec, model, model.draw(seed), gate)
    rate = load / (program.request_ns / 1e9)
    drawn = arrivals.poisson(rate, 2 * requests / rate + 1, seed=seed)[:requests]
    # Stretched, so that the load is exact: by chance it would be 0.45 to 0.55 over so few requests.
    times = [round(1e9 * one * requests / rate / drawn[-1]) for one in drawn]
    program.arrive(times)
    job: Training | None = None
    if system is not System.ALONE:
        beside = TRAININGS[training]
        kernels = beside.draw(seed)
        if gate is not None:
            known = _learnt(training, seed, rules, spec, _WAYS[system])
            own = {number: native.NativeProfile.from_buffer_copy(one) for number, one in known.items()}
            job = Gated(loop, device, spec, beside, kernels, gate, _WAYS[system], own)
        else:
            job = Training(loop, device, spec, beside, kernels)
        if system is System.TGS:
            RateControl(loop, program, job)
    last = times[-1]
    loop.run(last)
    ran = job.ran_ns if job else 0
    while len(program.from_arrival) < requests:
        loop.run(loop.now + program.request_ns)
    gated = job if isinstance(job, Gated) else None
    return _Raw(
        tuple(program.from_arrival), tuple(program.from_start), ran, last,
        gated.pieces if gated else 0, gated.violations if gated else 0,
    )  # fmt: skip


def _member(name: str, known: Collection[str], what: str) -> str:
    if name in known:
        return name
    raise Invalid(f"there is no {what} {name!r}", where=what, hint=f"one of {', '.join(known)}")
