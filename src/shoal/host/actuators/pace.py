"""Core pacing: a best-effort core belongs to the work on it for a few tens of microseconds at a time.

Works for any unmodified program and needs CAP_SYS_NICE only. Unlike a CPU quota at the same bandwidth, which lets a
neighbour stream for milliseconds on end, it leaves the guaranteed work's slowest steps as they are. See
`shoal.host.linux.pacer` for how; nothing it sets outlives the guard, so it needs no write-ahead log.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shoal.core import Capability, Conflict, Unavailable
from shoal.host.linux import cpus
from shoal.host.linux.members import Found
from shoal.host.linux.native import BUILD_IT, DIRECTORY
from shoal.host.linux.pacer import BINARY, LOST_NS, START_S, CoreStatistics, Pacer, calibrate, window
from shoal.host.types import Control, Group, Setting

FAIR_SERVER = 0.05
"""The kernel's fair server (Linux 6.12) and `sched_rt_runtime_us` leave ordinary work this share of a core by default;
a smaller window would be made up for in one burst of tens of milliseconds every second."""
_CAP_SYS_NICE = 23
_COSTS = (
    "unmodified best-effort programs can be slowed down by CPU quota only, which leaves the slowest steps of "
    "guaranteed work as slow as without any limit"
)


class Pace:
    """The actuator: shares of best-effort groups become windows on their cores. Where groups share a core, the smallest
    share holds there."""

    name = "pace"
    control = Control.SHARE

    def __init__(self, *, pacer: Pacer | None = None, directory: Path = DIRECTORY, root: Path = Path("/")) -> None:
        self._directory = directory
        self._root = root
        self._pacer = Pacer(directory=directory) if pacer is None else pacer
        self._lost_ns: int | None = None
        self._least_share: float | None = None
        self._wanted: dict[str, tuple[float, frozenset[int]]] = {}
        self._capability: Capability | None = None

    @property
    def least_share(self) -> float:
        if self._least_share is None:
            self._least_share = _least_share(self._root)
        return self._least_share

    def prepare(self, cpu: int) -> None:
        """What would hold up the first limit by 30 ms: find out on this CPU what a switch costs, start the process."""
        self._lost_ns = calibrate(cpu, directory=self._directory)
        with suppress(Unavailable):
            self._pacer.start()

    def capability(self) -> Capability:
        """By taking real-time priority for a moment."""
        if self._capability is None:
            self._capability = _probe(self._directory, self._root)
        return self._capability

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        """Raises Conflict for a group that may run on guaranteed work's CPUs too: pacing those would slow that work."""
        if setting.share >= 1 or not found.cpus:
            if self._wanted.pop(group.name, None) is not None:
                self._update()
            return setting
        if not self.capability().available:
            raise Unavailable(self.capability().detail, where=group.name)
        if found.exclusive != found.cpus:
            shared = cpus.render(found.cpus - found.exclusive)
            hint = "place it on CPUs of its own"
            raise Conflict(
                f"guaranteed work may run on its CPUs {shared}: they are not paced", where=group.name, hint=hint
            )
        share = max(setting.share, self.least_share)
        self._wanted[group.name] = (share, found.cpus)
        try:
            self._update()
        except Unavailable:
            self._wanted.clear()
            raise
        return replace(setting, share=share)

    def renew(self) -> None:
        """The guard lives: limits hold for another second. `apply` renews as well."""
        self._pacer.renew()

    def works(self) -> bool:
        """False when cores should be paced and the process has died: the next `apply` starts it again."""
        return not self._wanted or self._pacer.alive

    def restore(self, group: str | None = None) -> None:
        for name in [group] if group is not None else list(self._wanted):
            self._wanted.pop(name, None)
        self._update()

    def statistics(self) -> dict[int, CoreStatistics]:
        return self._pacer.statistics()

    def close(self) -> None:
        self._wanted.clear()
        self._pacer.close()

    def _update(self) -> None:
        shares: dict[int, float] = {}
        for share, members in self._wanted.values():
            for cpu in members:
                shares[cpu] = min(share, shares.get(cpu, 1.0))
        if shares and self._lost_ns is None:
            self._lost_ns = calibrate(min(shares), directory=self._directory)
        lost_ns = LOST_NS if self._lost_ns is None else self._lost_ns
        self._pacer.set({cpu: window(share, lost_ns=lost_ns) for cpu, share in shares.items()})


def _least_share(root: Path) -> float:
    try:
        runtime, period = (
            int((root / f"proc/sys/kernel/sched_rt_{one}_us").read_text()) for one in ("runtime", "period")
        )
    except (OSError, ValueError):
        return FAIR_SERVER
    return max(FAIR_SERVER, 1 - runtime / period if runtime >= 0 else 0.0)


def _probe(directory: Path, root: Path) -> Capability:
    binary = directory / BINARY
    if not binary.exists():
        return Capability("pace", False, f"{BINARY} was not built: {BUILD_IT}", _COSTS)
    try:
        ran = subprocess.run([binary, "--check"], capture_output=True, timeout=START_S, check=True)
        said = json.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        return Capability("pace", False, f"{binary} does not run: {problem}", _COSTS)
    if said["errno"]:
        return Capability("pace", False, _refused(int(said["errno"]), root), _COSTS)
    detail = (
        f"burns by {said['wait'].upper()}; shares from {_least_share(root):.0%}, which the kernel leaves ordinary work"
    )
    if not list((root / "sys/devices/system/cpu/cpu0/cpuidle").glob("state*/time")):
        detail += "; no cpuidle statistics, so that idle cores are paced too"
    return Capability("pace", True, detail)


def _refused(code: int, root: Path) -> str:
    capable = False
    with suppress(OSError, StopIteration, ValueError):
        status = (root / "proc/self/status").read_text().splitlines()
        held = next(line for line in status if line.startswith("CapEff:")).split()[1]
        capable = bool(int(held, 16) >> _CAP_SYS_NICE & 1)
    if not capable:
        return f"real-time priority is refused ({os.strerror(code)}): it needs CAP_SYS_NICE (run as root)"
    return (
        f"real-time priority is refused ({os.strerror(code)}) although CAP_SYS_NICE is held: the cpu cgroup that this "
        "runs in has no real-time budget (cpu.rt_runtime_us is 0), or a seccomp filter forbids it"
    )
