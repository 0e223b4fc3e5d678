"""Host isolation, live: an input pipeline beside an unmodified neighbour that floods memory, under every setting.

    python benchmarks/host_isolation.py --quick --duration 330 --patience 20     # under six minutes
    python benchmarks/host_isolation.py [--json] [--quick] [--duration 600] [--patience 120] [--keep FILE] [--only TEXT]
        [--set] [--trials N]

The pipeline (gather, crop, normalise, NCHW copy, small product; about 0.8 ms a step) has one CPU, a loop of streaming
stores the other. A trial is the pipeline alone, then beside the neighbour under one setting, then alone again; rows are
medians over trials of ratios to alone. Settings are fixed limits (CPU quotas, pacing) and whole guards: a process as
the server starts it, with its own loop, sensors and mechanisms.

- *phases*: the neighbour computes for 2 s, then floods for 1.5 s, and again: how soon does the promise hold?
- The *live set*, over which policies are compared: the simulator's workloads as far as two CPUs can hold them, that is
  with one core for all best-effort work (where it has several, several groups share that core), and two mixes of
  computing and flooding beside. `--set` measures only these, `--trials` times each. Beside the guards some fixed
  settings of each mix: the best of them, known afterwards only, is a mark for what a policy could reach.

Whether two virtual CPUs share a memory domain can change at any moment. A ping-pong tells before, after and every
second of a trial. It counts when it says the same twice, and is asked again where other work disturbed it. A trial
during which it changed is dropped and measured again, and so is one whose pipeline alone was not as fast after as
before. What was dropped is listed by its cause. Both states are reported; the script waits `--patience` seconds in all
for the one in which there is still something to measure. With `--keep FILE`, trials are added to those that earlier
runs left there, so that short runs make a table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from common import Row, machine, parser, report
from host.kernels import MemoryKernel
from host.limits import Limit, guarded
from host.rig import SETTLE_S, WINDOW_S, Phase, Rig, unlimited
from host.simulate import compare
from host.trial import Compared, against_alone

from shoal.core import Unavailable
from shoal.host.actuators.pace import Pace
from shoal.host.linux.fs import LINUX
from shoal.host.linux.hierarchies import serving
from shoal.host.linux.pacer import Pacer, calibrate, window

MEAN, TAIL, LEFT, APART, SETTLED_S, EFFICIENCY, COST = 0.95, 1.10, 2.1e9, 0.95, 0.3, 1.17, 0.01
QUOTAS = ((0.10, 100_000), (0.10, 10_000))
PACED = (
    (0.05, 500), (0.07, 500), (0.08, 500), (0.10, 500), (0.15, 500), (0.25, 500), (0.50, 500),
    (0.08, 200), (0.08, 1000),
)  # fmt: skip
"""Share of the core, period in microseconds."""
PROMISES = (1.02, 1.10, 1.20)
"""What `model` may let the pipeline become, besides its usual 1.05: the guard's own curve."""
ON_QUOTA = ("quota", "freeze")
FLOOD = (Phase((MemoryKernel.NT_STORE,), 2.5),)
PHASES = (Phase((MemoryKernel.SPIN,), 2.0), Phase((MemoryKernel.NT_STORE,), 1.5)) * 2
MODEL, THROTTLE, NONE, FIXED = "model", "core-throttle", "none", "fixed"
_FLOOD, _STORE, _READ, _TRIAD = MemoryKernel.NT_STORE, MemoryKernel.STORE, MemoryKernel.READ, MemoryKernel.TRIAD


def paced(cpu: int, frame: tuple[int, int]) -> Limit:
    """The core is left to the neighbour for R of every P nanoseconds."""

    @contextmanager
    def limit(_: Mapping[str, int]) -> Iterator[None]:
        pacer = Pacer()
        try:
            pacer.set({cpu: frame})
            pacer.renew()
            yield
        finally:
            pacer.close()

    return limit


def cpu_quota(share: float, period_us: int, *, only: str = "") -> Limit | None:
    """A cgroup's quota, on all neighbours together or `only` on one; None where no hierarchy has the cpu controller."""
    hierarchy = serving(LINUX, "cpu")
    if hierarchy is None:
        return None
    top, version = Path(hierarchy.top), hierarchy.version
    group = top / f"shoal-bench-{os.getpid()}{only}"
    quota = round(share * period_us)

    @contextmanager
    def limit(pids: Mapping[str, int]) -> Iterator[None]:
        pids = {name: pid for name, pid in pids.items() if only in ("", name)}
        group.mkdir(exist_ok=True)
        try:
            if version == 1:
                (group / "cpu.cfs_period_us").write_text(str(period_us))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {period_us}")
            for pid in pids.values():
                (group / "cgroup.procs").write_text(str(pid))
            yield
        finally:
            for pid in pids.values():
                (top / "cgroup.procs").write_text(str(pid))
            group.rmdir()

    return limit


def together(limits: Sequence[Limit]) -> Limit:
    """All of these at once."""

    @contextmanager
    def limit(pids: Mapping[str, int]) -> Iterator[None]:
        with ExitStack() as stack:
            for one in limits:
                stack.enter_context(one(pids))
            yield

    return limit


@dataclass(frozen=True)
class Mix:
    """Best-effort work of the live set, and the simulator's workload that it is after. `guard` says how a guard is
    told of it; it counts where the CPUs share a memory domain, or, with `apart`, where they do not."""

    name: str
    after: str
    phases: Sequence[Phase]
    guard: Mapping[str, Any] = field(default_factory=dict)
    apart: bool = False
    fixed: Sequence[Mapping[MemoryKernel, float]] = ()
    """Shares of those that are limited: of the core, by pacing if there is one neighbour or only pacing, else by
    quota."""

    def fixed_trials(self, cpu: int, lost_ns: int) -> Iterator[tuple[str, Limit]]:
        """Settings that never change, as far as this machine can hold them."""
        for shares in self.fixed:
            name = f"{FIXED} {', '.join(f'{kernel.name.lower()} {share:.0%}' for kernel, share in shares.items())}"
            if self.guard.get("allow") == ON_QUOTA:
                limits = [cpu_quota(share, 100_000, only=kernel.name.lower()) for kernel, share in shares.items()]
                if None not in limits:
                    yield self.trial(name), together([one for one in limits if one is not None])
            elif Pace().capability().available:
                yield self.trial(name), paced(cpu, window(min(shares.values()), lost_ns=lost_ns))

    def trial(self, policy: str) -> str:
        return policy if self.name == "flood" else f"{self.name}: {policy}"

    def parts(self) -> dict[str, float]:
        """The part of best-effort time that is each kernel's."""
        whole = sum(phase.seconds for phase in self.phases if phase.kernels)
        found: dict[str, float] = {}
        for phase in self.phases:
            for one in phase.kernels:
                found[one.name] = found.get(one.name, 0.0) + phase.seconds / len(phase.kernels) / whole
        return found


def _shares(kernel: MemoryKernel) -> tuple[dict[MemoryKernel, float], ...]:
    return tuple({kernel: share} for share in (0.07, 0.14))


LIVE = (
    Mix("flood", "pair-nt", FLOOD, fixed=_shares(_FLOOD)),
    Mix("stores", "pair-stores", (Phase((_STORE,), 2.5),), fixed=_shares(_STORE)),
    Mix("flood on quota", "pair-quota", FLOOD, {"allow": ON_QUOTA}, fixed=_shares(_FLOOD)),
    Mix("elsewhere", "pair-apart", FLOOD, apart=True),
    Mix("bursts", "pair-phases", (Phase((), 1.4), Phase((_FLOOD,), 2.1)) * 2, fixed=_shares(_FLOOD)),
    Mix("phases", "", PHASES, fixed=_shares(_FLOOD)),
    Mix("unreported", "pair-unreported", (Phase((_STORE,), 2.5),), {"reported": False}, fixed=_shares(_STORE)),
    Mix("analytics", "complex-analytics", (Phase((_TRIAD,), 2.5),), fixed=_shares(_TRIAD)),
    Mix(
        "mixed", "complex-mixed", (Phase((_FLOOD, _READ, MemoryKernel.SPIN), 4.0),), {"allow": ON_QUOTA, "apart": True},
        fixed=({_FLOOD: 0.03, _READ: 0.07}, {_FLOOD: 0.07, _READ: 0.14}),
    ),
    Mix(
        "stores beside computing", "complex-allocation", (Phase((_STORE, MemoryKernel.SPIN), 4.0),),
        {"allow": ON_QUOTA, "apart": True}, fixed=_shares(_STORE),
    ),
    Mix(
        "beside computing", "", (Phase((_FLOOD, MemoryKernel.SPIN), 4.0),), {"allow": ON_QUOTA, "apart": True},
        fixed=_shares(_FLOOD),
    ),
)  # fmt: skip
"""Not in it: drift of the undisturbed work, which this machine has by itself, and a second complex with room."""


@dataclass(frozen=True)
class Trial:
    """`same` and `apart` are how many results are wanted in each state of the topology."""

    name: str
    limit: Limit = unlimited
    phases: Sequence[Phase] = (Phase((MemoryKernel.NT_STORE,), WINDOW_S),)
    settle_s: float = SETTLE_S
    quiet_s: float = 0.0
    max_slowdown: float = 1.05
    same: int = 5
    apart: int = 0
    results: list[Compared] = field(default_factory=list)

    def count(self, same: bool) -> int:
        return sum(one.same is same for one in self.results)

    def wanted(self, same: bool) -> int:
        return (self.same if same else self.apart) - self.count(same)

    def run(self, rig: Rig) -> Compared | None:
        return against_alone(
            rig, self.phases, limit=self.limit, settle_s=self.settle_s, quiet_s=self.quiet_s,
            max_slowdown=self.max_slowdown,
        )  # fmt: skip

    def median(self, measure: str, *, same: bool = True) -> float | None:
        found = [getattr(one, measure) for one in self.results if one.same is same]
        return statistics.median(found) if found else None

    def done(self, kernel: str, *, same: bool) -> float:
        return statistics.median([one.done_per_s[kernel] for one in self.results if one.same is same])


class Trials(dict[str, Trial]):
    def median(self, name: str, measure: str, *, same: bool = True) -> float | None:
        return self[name].median(measure, same=same) if name in self else None


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--duration", type=float, metavar="S", default=600.0, help="stop after so long")
    arguments.add_argument("--patience", type=float, metavar="S", default=120.0, help="wait so long for a topology")
    arguments.add_argument("--quick", action="store_true", help="two trials of the settings that the bars are about")
    arguments.add_argument("--keep", type=Path, metavar="FILE", help="JSON lines: earlier trials count, new are added")
    arguments.add_argument("--set", action="store_true", help="only the live set")
    arguments.add_argument("--trials", type=int, default=3, metavar="N", help="of each cell of the live set")
    arguments.add_argument("--only", default="", metavar="TEXT", help="only settings whose name has this")
    options = arguments.parse_args()
    missing = Pace().capability()
    if not missing.available:
        print(
            f"cores cannot be paced here, so the guard slows neighbours down otherwise: {missing.detail}",
            file=sys.stderr,
        )
    try:
        with Rig() as rig:
            everything = live(rig, options) if options.set else offered(rig, options)
            trials = Trials({one.name: one for one in everything if options.only in one.name})
            recall(trials, options.keep)
            dropped = measure(rig, trials, options)
    except Unavailable as problem:
        print(f"cannot measure here: {problem}", file=sys.stderr)
        return 0
    rows = list(bars(trials))
    if options.json:
        rows += curve(trials)
    else:
        show(trials, dropped)
    code = report("host isolation beside a neighbour of streaming stores", rows, as_json=options.json)
    for name in unseen(trials):
        print(f"  not seen in this run: {name}", file=sys.stderr if options.json else sys.stdout)
    return code


def offered(rig: Rig, options: argparse.Namespace) -> Iterator[Trial]:
    """Every setting; with --quick those that the bars are about, twice each."""
    wanted = {"same": 2, "apart": 1} if options.quick else {"same": 5, "apart": 3}
    few = {"same": 2 if options.quick else 4}
    can_pace = Pace().capability().available
    yield Trial(NONE, **wanted)
    for share, period_us in QUOTAS[: 1 if options.quick else None]:
        quota = cpu_quota(share, period_us)
        if quota is not None:
            yield Trial(f"quota {share:.0%} of {period_us // 1000} ms", quota, **few)
    if can_pace and not options.quick:
        lost_ns = calibrate(rig.neighbour_cpu)
        for share, period_us in PACED:
            frame = window(share, period_ns=period_us * 1000, lost_ns=lost_ns)
            yield Trial(f"paced {share:.0%} of {period_us} us", paced(rig.neighbour_cpu, frame), **few)

    def guard(policy: str, **more: Any) -> dict[str, Any]:
        limit = guarded(rig.feed, policy, **more)
        return {"limit": limit, "settle_s": 1.2, "quiet_s": 0.6, "max_slowdown": more.get("max_slowdown", 1.05)}

    yield Trial(MODEL, **guard("model"), phases=FLOOD, **wanted)
    yield Trial("kelp on quota", **guard("kelp", allow=ON_QUOTA), phases=FLOOD, **wanted)
    yield Trial(THROTTLE, **guard("core-throttle"), phases=FLOOD, same=wanted["same"])
    if not options.quick:
        yield Trial("model on quota", **guard("model", allow=ON_QUOTA), phases=FLOOD, **few)
        yield Trial("core-throttle on quota", **guard("core-throttle", allow=ON_QUOTA), phases=FLOOD, **few)
        yield Trial("kelp", **guard("kelp"), phases=FLOOD, **few)
        for promise in PROMISES:
            setting = guard("model", max_slowdown=promise)
            yield Trial(f"model, promised {promise:g}", **setting, phases=FLOOD, **few)
    for trial in live(rig, options):
        if trial.name not in (NONE, MODEL, THROTTLE):
            yield trial


def live(rig: Rig, options: argparse.Namespace) -> Iterator[Trial]:
    """Each mix of the live set without a guard, under ours, under the one that it is compared with, and with settings
    that never change."""
    count = 2 if options.quick else options.trials
    lost_ns = calibrate(rig.neighbour_cpu) if Pace().capability().available else 0
    for mix in LIVE:
        wanted = {"same": 0, "apart": count} if mix.apart else {"same": count, "apart": 0}
        yield Trial(mix.trial(NONE), phases=mix.phases, **wanted)
        if not options.quick:
            for name, limit in mix.fixed_trials(rig.neighbour_cpu, lost_ns):
                yield Trial(name, limit, mix.phases, **wanted)
        for policy in (MODEL, THROTTLE):
            limit = guarded(rig.feed, policy, **mix.guard)
            yield Trial(mix.trial(policy), limit, mix.phases, settle_s=1.2, quiet_s=0.6, **wanted)


def measure(rig: Rig, trials: Trials, options: argparse.Namespace) -> Counter[str]:
    """What is wanted most in the present topology is next. Returns how many trials were dropped, by cause."""
    began = time.monotonic()
    waited, dropped = 0.0, Counter[str]()
    while time.monotonic() - began < options.duration and waited < options.patience:
        now = rig.same_domain()
        if all(one.wanted(True) <= 0 and one.wanted(False) <= 0 for one in trials.values()):
            break
        most = max(trials.values(), key=lambda one: one.wanted(bool(now)))
        if now is None or most.wanted(now) <= 0:
            time.sleep(0.1)  # there is nothing left to measure until the hypervisor moves a CPU
            waited += 0.1
            continue
        found = most.run(rig)
        say(time.monotonic() - began, most, found)
        if found is None or found.flaw:
            dropped[re.sub(r"\d+%", "N%", found.flaw) if found else "the pipeline did no work"] += 1
            continue
        most.results.append(found)
        if options.keep is not None:
            with options.keep.open("a") as file:
                file.write(json.dumps({"trial": most.name, **asdict(found)}) + "\n")
    return dropped


def say(at: float, trial: Trial, found: Compared | None) -> None:
    if found is None:
        state = "dropped: the pipeline did no work"
    elif found.flaw:
        state = f"dropped: {found.flaw}"
    else:
        where, count = "same domain" if found.same else "different domains", trial.count(bool(found.same)) + 1
        state = f"{found.speed:.3f}, p99 {found.p99:.2f}, {found.bytes_per_s / 1e9:.1f} GB/s, {where}, trial {count}"
    print(f"[{at:5.0f} s] {trial.name}: {state}", file=sys.stderr, flush=True)


def recall(trials: Trials, keep: Path | None) -> None:
    known = {one.name for one in fields(Compared)}
    for line in keep.read_text().splitlines() if keep is not None and keep.exists() else ():
        kept = json.loads(line)
        trial = trials.get(kept.pop("trial"))
        if trial is not None and kept.keys() == known:
            trial.results.append(Compared(**{**kept, "settled_s": tuple(kept["settled_s"])}))


def show(trials: Trials, dropped: Counter[str]) -> None:
    print(f"\n  {machine()['cpu']}; {dropped.total()} trials dropped")
    for why, count in dropped.most_common():
        print(f"    {count} x {why}")
    for same, title in ((True, "same memory domain"), (False, "different memory domains")):
        if not any(one.count(same) for one in trials.values()):
            print(f"\n  {title}: not seen in this run")
            continue
        print(f"\n  {title:<36}  speed    p50x    p95x    p99x   GB/s    guard  trials")
        for one in trials.values():
            if not one.count(same):
                continue
            ratios = "  ".join(f"{one.median(name, same=same):6.3f}" for name in ("speed", "p50", "p95", "p99"))
            rate, cost = (one.median(name, same=same) or 0.0 for name in ("bytes_per_s", "limiting"))
            guard = f"{cost:7.2%}" if cost else "      -"
            print(f"  {one.name:<36} {ratios}  {rate / 1e9:5.1f}  {guard} {one.count(same):7d}")


def bars(trials: Trials) -> Iterator[Row]:
    """What issue and documentation promise of the guard as it comes: `model`, by whatever mechanism is best here."""
    speed, p99, left = (trials.median(MODEL, name) for name in ("speed", "p99", "bytes_per_s"))
    if speed is not None and p99 is not None and left is not None:
        yield Row("pipeline's speed under model", speed, "x", f">= {MEAN}", speed >= MEAN)
        yield Row("its slowest steps (p99)", p99, "x", f"<= {TAIL:.2f}", p99 <= TAIL)
        yield Row("left to the neighbour", left / 1e9, "GB/s", f">= {LEFT / 1e9:g}", left >= LEFT)
        yield Row("its slowest steps by the clock", trials.median(MODEL, "wall_p99") or 0.0, "x")
        yield Row("its steps per second by the clock", trials.median(MODEL, "rate") or 0.0, "x")
    apart, free = (elsewhere(trials, name) for name in (MODEL, NONE))
    if apart and free:
        part = statistics.median(apart) / statistics.median(free)
        name = f"kept by the neighbour in another domain ({len(apart)} and {len(free)} trials)"
        yield Row(name, part, "x", f">= {APART}", part >= APART)
    settles = onsets(trials, MODEL)
    if settles:
        typical = statistics.median(settles)
        yield Row(f"settled, median of {len(settles)} onsets", typical, "s", f"<= {SETTLED_S}", typical <= SETTLED_S)
        late = sum(one > SETTLED_S for one in settles)
        yield Row("onsets that took longer than that", late / len(settles), "of all")
    simulated = compare((NONE, THROTTLE, MODEL))
    ours, theirs = simulated.efficiency(MODEL), simulated.efficiency(THROTTLE)
    if ours and theirs:
        times = ours / theirs
        yield Row("efficiency over core-throttle, simulated", times, "x", f">= {EFFICIENCY}", times >= EFFICIENCY)
    seen = [mix for mix in LIVE if all(changed(trials, policy, mix) for policy in (MODEL, THROTTLE, FIXED))]
    ours, theirs, best = (efficiency(trials, policy, seen) for policy in (MODEL, THROTTLE, FIXED))
    if ours and theirs and best:
        times, of = ours / theirs, f"{len(seen)} of {len(LIVE)} mixes"
        yield Row(f"efficiency over core-throttle, live, {of}", times, "x", f">= {EFFICIENCY}", times >= EFFICIENCY)
        yield Row("the same of the best fixed setting of each mix", best / theirs, "x")
    for mix in LIVE:
        for policy in (MODEL, THROTTLE, FIXED):
            change = changed(trials, policy, mix)
            if change is not None:
                yield Row(f"  {mix.name}: gained under {policy}", change[0], "of its speed")
                yield Row(f"  {mix.name}: lost under {policy}", change[1], "of its work")
    costs = [one.limiting for name in (MODEL, f"phases: {MODEL}") if name in trials for one in trials[name].results]
    if costs:
        cost = statistics.median(costs)
        yield Row("the guard's own cost", cost, "CPUs", f"<= {COST}", cost <= COST)


def elsewhere(trials: Trials, policy: str) -> list[float]:
    """What a flood in another memory domain moved, in bytes per second."""
    names = (policy, f"elsewhere: {policy}")
    return [one.bytes_per_s for name in names if name in trials for one in trials[name].results if one.same is False]


def onsets(trials: Trials, policy: str) -> list[float]:
    """The flood's whole length where it did not settle before that ended."""
    results = trials[f"phases: {policy}"].results if f"phases: {policy}" in trials else []
    settled = [settled for one in results if one.same for settled in one.settled_s]
    return [PHASES[-1].seconds if one is None else one for one in settled]


def efficiency(trials: Trials, policy: str, mixes: Sequence[Mix]) -> float | None:
    """What the pipeline gains against `none` per part of its work that best-effort work loses, summed over the mixes
    (as `host.simulate` has it). None where nothing is lost."""
    changes = [changed(trials, policy, mix) or (0.0, 0.0) for mix in mixes]
    gained, lost = (sum(one[at] for one in changes) for at in (0, 1))
    return gained / lost if lost > 1e-6 else None


def changed(trials: Trials, policy: str, mix: Mix) -> tuple[float, float] | None:
    """What the pipeline gains in a mix, and what best-effort work loses: each kernel against what it does unlimited in
    the same mix. Of the fixed settings it is the one that leaves most work among those that keep the promise, else the
    fastest; none where no limit is needed."""
    free, same = trials.get(mix.trial(NONE)), not mix.apart
    if policy == FIXED and not mix.fixed:
        return 0.0, 0.0
    names = [name for name in trials if name.startswith(mix.trial(FIXED))] if policy == FIXED else [mix.trial(policy)]
    tried = [one for one in map(trials.get, names) if one is not None and one.count(same)]
    if free is None or not free.count(same) or not tried:
        return None
    found = []
    for one in tried:
        parts = mix.parts().items()
        kept = sum(part * one.done(kernel, same=same) / free.done(kernel, same=same) for kernel, part in parts)
        found.append((one.median("speed", same=same) or 0.0, kept))
    holding = [one for one in found if one[0] >= MEAN]
    speed, kept = max(holding, key=lambda one: one[1]) if holding else max(found)
    return speed - (free.median("speed", same=same) or 0.0), 1 - kept


def curve(trials: Trials) -> Iterator[Row]:
    """Everything that was measured, for programs."""
    units = {
        "speed": "x",
        "p50": "x",
        "p95": "x",
        "p99": "x",
        "wall_p99": "x",
        "bytes_per_s": "B/s",
        "limiting": "CPUs",
    }
    for same, where in ((True, "same domain"), (False, "different domains")):
        for trial in trials.values():
            for name, unit in units.items():
                if (found := trial.median(name, same=same)) is not None:
                    yield Row(f"{where}: {trial.name}: {name} ({trial.count(same)} trials)", found, unit)


def unseen(trials: Trials) -> Iterator[str]:
    for same, where in ((True, "the same memory domain"), (False, "different memory domains")):
        names = [one.name for one in trials.values() if (one.same if same else one.apart) and not one.count(same)]
        if names:
            yield f"{', '.join(names)} in {where}"


if __name__ == "__main__":
    sys.exit(main())
