"""The local engine: the protocol, over the registry of gangs and the launcher of supervisors."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

from shoal.base.processes import Process, kill_until_none, send
from shoal.core import Capability, Clock, Fault, Node
from shoal.engine import sandbox
from shoal.engine.local import cgroups, inventory
from shoal.engine.local.entering import Entering
from shoal.engine.local.environment import (
    rank_environment,
    supervisor_environment,
    supervisor_spec,
)
from shoal.engine.local.gangs import LocalGang
from shoal.engine.local.inventory import Accelerators
from shoal.engine.local.launcher import Launcher, free_port
from shoal.engine.local.layout import GangDir, Launched
from shoal.engine.local.recorded import RecordedGangs, given_up, platform_failure, prepared
from shoal.engine.local.registry import KILL_TIMEOUT_S, Registry
from shoal.engine.local.sandboxes import Sandboxes
from shoal.engine.local.settings import LocalSettings, taint_of
from shoal.engine.local.sightings import Sightings
from shoal.engine.local.supervisor import ABORT, GO, READY
from shoal.engine.present import Present
from shoal.engine.protocol import MOUNTS_CAPABILITY, EngineOptions, Gang, GangStatus, Inventory, LaunchFailed, Phase

_ROLLBACK_S = 5.0
"""How long supervisors get to leave by themselves when a launch is rolled back, before they are killed."""

_LOOK_AGAIN_S = 2.0
"""When something seems to be missing, the machine is looked at again so soon."""


_MOUNTS = Capability(MOUNTS_CAPABILITY, True, "components show their files and sockets to jobs")


class LocalEngine(Entering, RecordedGangs[LocalGang]):
    """Runs gangs on this machine. `home` holds everything it must remember; one engine at a time may have it open.

    `slots` declares how many CPU slots stand in for accelerators where `accelerators` finds none (default: one per
    usable core). `settings` has the machine's labels and taints. It is looked at anew every `look_every_s`, and
    sooner when something seems to be missing.
    """

    name = "local"

    def __init__(
        self,
        home: Path,
        *,
        slots: int | None = None,
        accelerators: inventory.Probe = inventory.nvidia_accelerators,
        clock: Clock | None = None,
        look_every_s: float = 30.0,
        settings: LocalSettings | None = None,
    ) -> None:
        super().__init__(home, clock)
        self._slots = slots
        self._settings = settings or LocalSettings()
        self._find_accelerators = accelerators
        self._launcher = Launcher(self._home)
        self._cgroups = cgroups.Cgroups()
        self._sandboxes = Sandboxes(self._home)
        self._capabilities: tuple[Capability, ...] = ()
        self._sightings = Sightings(Accelerators((), ""), lambda _: Node(""))
        self._nodes = Present(self._sightings.inventory)
        self._look_every_s = look_every_s
        self._looking = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._registry = Registry(self._home, self._changes, self._clock)

    def _fill_home(self) -> None:
        self._launcher.open()
        self._sandboxes.open()

    async def _open(self) -> None:
        found = await asyncio.to_thread(self._probe)
        self._cgroups = await asyncio.to_thread(cgroups.probe, self._home)
        limit = cgroups.memory_limit_bytes(cgroups.mounts())
        labels, taints = self._settings.labels, tuple(map(taint_of, self._settings.taints))
        self._sightings = Sightings(
            found,
            lambda now: replace(
                inventory.local_node(self._slots, now, memory_limit_bytes=limit), labels=labels, taints=taints
            ),
        )
        self._nodes = Present(self._sightings.inventory)
        levels = await asyncio.to_thread(sandbox.capabilities, self._home)
        self._capabilities = (inventory.accelerator_capability(found), *self._cgroups.capabilities(), *levels, _MOUNTS)
        await self._registry.open()
        self._weigh()
        self._watch = asyncio.create_task(self._look_now_and_then(), name="engine-nodes")

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._nodes.close()
        await self._registry.close()
        self._cgroups.release()
        self._close_home()

    def capabilities(self) -> tuple[Capability, ...]:
        return self._capabilities

    async def inventory(self) -> Inventory:
        async with self._looking:
            found = await asyncio.to_thread(self._probe)
            self._nodes.set(self._sightings.saw(found))
            return self._nodes.value

    def nodes(self) -> AsyncIterator[Inventory]:
        return self._nodes.follow()

    @property
    def _node(self) -> Node:
        return self._nodes.value.nodes[0]

    def _probe(self) -> Accelerators:
        try:
            return self._find_accelerators()
        except Exception as problem:  # a driver's library may raise anything: it did not answer
            return Accelerators((), f"{type(problem).__name__}: {problem}", answered=False)

    async def _look_now_and_then(self) -> None:
        while True:
            every_s = self._look_every_s
            await asyncio.sleep(min(every_s, _LOOK_AGAIN_S) if self._sightings.doubtful else every_s)
            await self.inventory()

    # --- launching ---

    async def _goes_on(self, known: LocalGang, gang: Gang) -> GangStatus | None:  # noqa: ARG002
        if known.dir.decide(ABORT) != GO:
            return None
        await known.until_let_go()
        return known.status

    async def _launch_anew(self, gang: Gang) -> GangStatus:
        self._check_place(gang)
        taken = {each.launched.master_port for each in self._registry.gangs.values() if not each.status.ended}
        launched = Launched.of(
            gang,
            master_port=free_port(frozenset(taken)),
            created_at=self._clock.now(),
            cgroup_roots=self._cgroups.roots(),
        )
        directory = GangDir(self._home / "gangs" / gang.name)
        with prepared(directory):
            directory.create(launched)
            gang.run_dir.mkdir(parents=True, exist_ok=True)
            self._sandboxes.prepare(gang, [directory.rank_dir(number) for number in range(len(gang.ranks))])
        local = LocalGang.of(launched, directory, awaited=True)
        self._registry.add(local)
        self._weigh()
        try:
            await self._bring_up(gang, local)
        except LaunchFailed as failure:
            await self._roll_back(local, failure)
            raise
        except asyncio.CancelledError:
            local.dir.decide(ABORT)
            self._registry.look(local)
            self._registry.wake(local)
            raise
        return local.status

    async def _bring_up(self, gang: Gang, local: LocalGang) -> None:
        """All that can fail between the record of the launch and its first user process; raises LaunchFailed."""
        try:
            if gang.bundle is not None:
                await self._sandboxes.unpack(gang, gang.bundle)
            await self._start_supervisors(gang, local)
            async with asyncio.timeout(gang.launch_timeout_s):
                await self._let_go(local)
        except TimeoutError as problem:
            what = f"not all ranks were ready within {gang.launch_timeout_s:g} s"
            raise LaunchFailed(what, fault=Fault.PLATFORM, where=gang.name) from problem
        except OSError as problem:
            raise platform_failure(problem) from problem

    async def _start_supervisors(self, gang: Gang, local: LocalGang) -> None:
        types = {device.id: device.type for device in self._node.devices}
        for number, rank in enumerate(local.ranks):
            if rank.ended:  # the gang was stopped during its launch
                raise given_up(local)
            rank_dir = local.dir.rank_dir(number)
            env = rank_environment(
                gang,
                number,
                home=self._home,
                rank_dir=rank_dir,
                device_types=types,
                master_port=local.launched.master_port,
            )
            env = self._sandboxes.environment(gang, env)
            groups = self._cgroups.groups(
                gang.name,
                number,
                cpu_milli=gang.cpu_milli,
                memory_bytes=gang.memory_bytes,
                processes=gang.limits.processes,
            )
            spec = supervisor_spec(
                gang,
                number,
                home=self._home,
                gang_dir=local.dir.path,
                rank_dir=rank_dir,
                env=env,
                cgroups=groups,
                enforced=frozenset(self._cgroups.controllers),
                sandbox=self._sandboxes.spec(gang, rank_dir),
            )
            rank.supervisor = self._launcher.start(spec, supervisor_environment(self._home, gang.name, number))
            rank.awaited = False
            self._registry.watch(local, rank)
            await asyncio.sleep(0)  # a spawn takes a millisecond or two; a large gang must not hold up the others

    async def _let_go(self, local: LocalGang) -> None:
        """The barrier: return when every rank's process was started, raise LaunchFailed when one cannot be."""
        alone = len(local.ranks) == 1
        while True:
            for rank in local.ranks:
                end = rank.status.exit
                where = f"{local.name}: rank {rank.status.rank}"
                if end is not None and "fault" in rank.record:
                    raise LaunchFailed(end.detail, fault=Fault(rank.record["fault"]), where=where)
                if end is not None and end.lost:
                    raise LaunchFailed(end.detail, fault=Fault.PLATFORM, where=where)
            if local.dir.decision() == ABORT:
                raise given_up(local)
            if alone and local.status.phase is not Phase.STARTING:
                return
            if not alone and all(rank.record.get("state") == READY for rank in local.ranks):
                break
            await local.next_pulse()
        if local.dir.decide(GO) != GO:
            raise given_up(local)
        self._registry.wake(local)
        await local.until_let_go()

    async def _roll_back(self, local: LocalGang, failure: LaunchFailed) -> None:
        local.failure = failure
        with contextlib.suppress(OSError):  # a full disk: after a restart the launch is simply tried anew
            local.dir.keep_failure(failure)
        await self._end_now(local)

    async def _end_now(self, local: LocalGang) -> None:
        with contextlib.suppress(OSError):
            if local.dir.decide(ABORT) == GO:
                self._registry.wake(local, signal.SIGUSR2)
        self._registry.look(local)
        self._registry.wake(local)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ROLLBACK_S):
                await local.until_ended()
            return
        self._registry.wake(local, signal.SIGKILL)
        async with asyncio.timeout(KILL_TIMEOUT_S):
            await local.until_ended()

    # --- steering ---

    async def signal(self, name: str, signum: int) -> None:
        gang = self._registry.gangs.get(name)
        for rank in gang.ranks if gang else ():
            if not rank.ended and "pid" in rank.record:
                send(Process(int(rank.record["pid"]), int(rank.record["start"])), signum)

    async def stop(self, name: str, *, grace_s: float | None = None, reason: str = "") -> None:
        gang = self._registry.gangs.get(name)
        if gang is None or gang.status.ended:
            return
        grace_s = gang.launched.grace_s if grace_s is None else grace_s
        self._registry.ask_to_stop(gang, grace_s, reason=reason or "asked to stop", code="stopped")
        if gang.dir.decide(ABORT) == ABORT:  # it had not started: nothing to wait for
            self._registry.look(gang)
            self._registry.wake(gang)

    async def sweep(self, known: frozenset[str]) -> tuple[str, ...]:
        before = set(self._registry.gangs)
        found = {each.gang for each in await asyncio.to_thread(self._registry.strays, known)}
        strays = found - (set(self._registry.gangs) - before)  # launched while /proc was read
        for name in strays & set(self._registry.gangs):
            await self.stop(name, grace_s=0, reason="unknown to the control plane")
            await self._end_now(self._registry.gangs[name])
        if strays:
            await asyncio.to_thread(
                kill_until_none,
                lambda: [each.process for each in self._registry.strays(known) if each.gang in strays],
                timeout_s=KILL_TIMEOUT_S,
            )
        roots = self._cgroups.roots()
        for name in cgroups.gangs(roots) - known - set(self._registry.gangs):
            cgroups.remove(roots, name)
        return tuple(sorted(strays))

    # --- inner parts ---

    @property
    def _known(self) -> Mapping[str, LocalGang]:
        return self._registry.gangs

    def _check_place(self, gang: Gang) -> None:
        ours = {device.id for device in self._node.devices}
        for spec in gang.ranks:
            foreign = set(spec.devices) - ours
            if spec.node != self._node.name or foreign:
                what = (
                    f"this machine is not {spec.node!r}" if not foreign else f"no device {', '.join(sorted(foreign))}"
                )
                hint = f"this is node {self._node.name!r} with {', '.join(sorted(ours)) or 'no devices'}"
                raise LaunchFailed(what, fault=Fault.PLATFORM, where=f"{gang.name}: rank {spec.rank}", hint=hint)

    def _drop(self, gang: LocalGang) -> None:
        with contextlib.suppress(FileNotFoundError):
            gang.dir.forget()
        cgroups.remove(gang.launched.cgroup_roots, gang.name)
        self._registry.gangs.pop(gang.name, None)
        self._weigh()

    def _weigh(self) -> None:
        """The home's weight follows the cores of the gangs that have not ended."""
        alive = [gang.launched for gang in self._registry.gangs.values() if not gang.status.ended]
        self._cgroups.weigh(sum(each.cpu_milli * len(each.nodes) for each in alive))


def local_engine(options: EngineOptions) -> LocalEngine:
    """This machine's engine. Declared slots stand instead of its accelerators, so these are not even looked for."""

    def none() -> Accelerators:
        return Accelerators((), "not looked for: CPU slots were declared")

    accelerators = inventory.nvidia_accelerators if options.slots is None else none
    section = options.settings
    assert section is None or isinstance(section, LocalSettings)
    return LocalEngine(options.home, slots=options.slots, accelerators=accelerators, settings=section)
