"""How bandwidth is shared: each last-level cache's path to memory carries CAPACITY; demand beyond it is cut in
proportion; guaranteed work slows down in proportion to what its neighbours move (docs/how/host.md: loss is linear in
it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.host.fake.host import FakeHost
    from tests.host.fake.processes import FakeProcess

CAPACITY = 26e9
CLOCK_HZ = 2e9
QUIET_NS = 272.0
_PREFETCHED = 0.4
"""Of a stream's bandwidth, what only prefetchers get."""


def advance(host: FakeHost, dt: float) -> None:
    running = {process.pid: _cpu(host, process) for process in host.processes.values()}
    wanted: dict[int, dict[int, float]] = {}
    for process in host.processes.values():
        for l3, share in _spread(host, process).items():
            wanted.setdefault(l3, {})[process.pid] = _demand(host, process, l3) * running[process.pid] * share
    host.bandwidth = dict.fromkeys(host.l3s, 0.0)
    host.saturation = dict.fromkeys(host.l3s, 0.0)
    moved: dict[tuple[int, int], float] = {}
    for l3, demands in wanted.items():
        total = sum(demands.values())
        cut = min(1.0, CAPACITY / total) if total else 1.0
        host.bandwidth[l3] = total * cut
        host.saturation[l3] = min(1.0, max(0.0, total / CAPACITY - 0.5))
        for pid, demand in demands.items():
            moved[pid, l3] = demand * cut
    host.now += dt
    for process in host.processes.values():
        _account(host, process, running[process.pid], moved, dt)
    _account_quotas(host, dt)
    for counter in host.uncore:
        counter.advance(host, dt)


def shoot(host: FakeHost, cpu: int) -> float:
    """The latency probe's answer."""
    return QUIET_NS / (1 - 0.52 * min(1.0, host.bandwidth.get(host.l3_of[cpu], 0.0) / CAPACITY))


def _cpu(host: FakeHost, process: FakeProcess) -> float:
    if process.frozen():
        return 0.0
    limit = min((group.cpu_limit() for group in process.cgroups.values()), default=float("inf"))
    return min(process.busy, float(len(host.allowed(process))), limit)


def _spread(host: FakeHost, process: FakeProcess) -> dict[int, float]:
    allowed = host.allowed(process)
    spread: dict[int, float] = {}
    for cpu in allowed:
        spread[host.l3_of[cpu]] = spread.get(host.l3_of[cpu], 0.0) + 1 / len(allowed)
    return spread


def _demand(host: FakeHost, process: FakeProcess, l3: int) -> float:
    """Bytes per second of one busy CPU."""
    on = [cpu for cpu in host.allowed(process) if not host.msr.get(cpu, {}).get(host.prefetch_register, 0)]
    demand = process.demand * (1 - _PREFETCHED * (1 - len(on) / len(host.allowed(process))))
    if host.resctrl is not None:
        share, most = host.resctrl.limit(process.resctrl, l3)
        demand = min(demand * share, most)
    return demand


def _account(host: FakeHost, process: FakeProcess, cpu: float, moved: dict[tuple[int, int], float], dt: float) -> None:
    process.run_ns += cpu * dt * 1e9
    process.wait_ns += max(0.0, process.busy - cpu) * dt * 1e9 * (not process.frozen())
    own = {l3: moved.get((process.pid, l3), 0.0) for l3 in host.l3s}
    process.moved += sum(own.values()) * dt
    if host.resctrl is not None:
        for l3, rate in own.items():
            host.resctrl.count(process.resctrl, process.monitor, l3, rate * dt)
    others = sum((host.bandwidth[l3] - own[l3]) * share / CAPACITY for l3, share in _spread(host, process).items())
    slowdown = 1 / (1 - process.sensitive * min(1.0, others))
    if process.step_s and cpu:
        process.last_step_s = process.step_s * slowdown
        process.units += cpu * dt / process.last_step_s
        whole, process.units = divmod(process.units, 1)
        for at in range(int(whole)):
            if process.ring is not None:
                end = host.now - (whole - 1 - at) * process.last_step_s
                spent = int(process.last_step_s * 1e9)
                process.ring.add(spent, spent, end_ns=int(end * 1e9))


def _account_quotas(host: FakeHost, dt: float) -> None:
    for hierarchy in host.hierarchies:
        for group in hierarchy.root.below():
            if (ratio := group._ratio()) is not None:
                group.periods += dt / 0.1
                wanted = sum(host.processes[pid].busy for one in group.below() for pid in one.own())
                group.throttled += dt / 0.1 * (wanted > ratio)
