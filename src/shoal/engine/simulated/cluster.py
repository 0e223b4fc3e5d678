"""The simulated machines and what runs on them: the truth that outlives every control plane.

All faults are asked for here. What a real machine would refuse is refused here too: unknown or lost nodes, devices
that another gang holds, more cpus or memory than a node has.
"""

from __future__ import annotations

import asyncio
import math
import signal as signals
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from shoal.core import Clock, Fault, Invalid, Node, NotFound, Reason
from shoal.engine.pool import described, pool_of
from shoal.engine.protocol import Exit, Gang, GangStatus, Inventory, LaunchFailed, LogChunk, LogTimes, Phase
from shoal.engine.simulated.agenda import Agenda
from shoal.engine.simulated.gang import Link, SimulatedGang
from shoal.engine.simulated.history import Happening, Overlap, find_overlaps
from shoal.engine.simulated.machines import Machines
from shoal.engine.simulated.script import Script

POOL = "pool"
"""The name of the one pool of a cluster that has a scheduler of its own."""
_FIRST_PID = 1000
_TERM_AT = 0.8
"""A rank that did not leave by itself gets SIGTERM at this part of its grace, as from the local engine's supervisor."""
_NEVER_STARTED = Exit(stopped=True, detail="not started: the launch was rolled back")


class SimulatedCluster:
    """`behaviour` says for each launched gang what it does. One per simulated world; engines come and go.

    With `ahead`, the cluster has a scheduler of its own, first come, first served as far as it fits: it shows all
    machines as one pool, with `ahead` times their places in addition (`shoal.engine.pool`).
    """

    def __init__(
        self, nodes: Sequence[Node], *, clock: Clock, behaviour: Callable[[Gang], Script], ahead: float | None = None
    ) -> None:
        self.history: list[Happening] = []
        self.launch_calls: Counter[str] = Counter()
        """How often each name was asked for."""
        self.starts: Counter[str] = Counter()
        """How often processes were made for each name; above 1 it was forgotten and started anew."""
        self.notices: list[tuple[str, Mapping[str, object]]] = []
        self._agenda = Agenda(clock)
        self._behaviour = behaviour
        self._machines = Machines(nodes)
        self._ahead = ahead
        self._queue: dict[str, SimulatedGang] = {}
        self._gangs: dict[str, SimulatedGang] = {}
        self._forgotten: dict[str, SimulatedGang] = {}
        self._watchers: list[Callable[[GangStatus], None]] = []
        self._node_watchers: list[Callable[[Inventory], None]] = []
        self._next_pid = _FIRST_PID
        self._launch_delay_s = 0.0
        self._failing_launches = 0
        self._failing_fault = Fault.INFRASTRUCTURE

    # --- what a test asks about ---

    def overlaps(self) -> tuple[Overlap, ...]:
        """Any two gangs of one job (the name's first part) that had processes at one time: a doubled job."""
        return find_overlaps(self.history)

    def alive(self) -> tuple[str, ...]:
        """Gangs that have processes now."""
        return tuple(name for name, gang in self._gangs.items() if gang.phase is not Phase.ENDED)

    def settle(self) -> None:
        """Act on what is due by the clock; needed only with a clock that the event loop does not drive."""
        self._agenda.run_due()

    # --- faults ---

    def kill_rank(self, name: str, rank: int = 0, signum: int = signals.SIGKILL) -> None:
        """A rank's process dies, as by the kernel's or an administrator's kill."""
        self._end(self._known(name), (rank,), Exit(signal=signum))

    def kill_supervisor(self, name: str, rank: int = 0) -> None:
        """The rank is gone, and how it ended is unknown."""
        self._lose(self._known(name), (rank,), "its supervisor died")

    def lose_gang(self, name: str) -> None:
        """The cluster knows nothing of it any more, and tells nobody; its processes are gone."""
        gang = self._gangs.pop(name)
        if self._queue.pop(name, None) is None:
            self._machines.give_back(gang.spec)
        self._forgotten[name] = gang
        self._note(name, "end")

    def lose_node(self, node: str) -> None:
        """The machine and all ranks on it are gone; launches there fail until `restore_node`."""
        self._machines.lose(node)
        self._tell_nodes()
        for gang in list(self._gangs.values()):
            there = tuple(number for number in gang.live_ranks() if gang.ranks[number].node == node)
            if there:
                self._lose(gang, there, f"node {node} was lost", node_lost=True)

    def cut_off_node(self, node: str) -> None:
        """The machine leaves the inventory, and no stop reaches the ranks on it, which run on, until `restore_node`."""
        self._machines.unreachable.add(node)
        self._tell_nodes()

    def restore_node(self, node: str) -> None:
        """It is there again, with all of its devices."""
        self._machines.restore(node)
        self._tell_nodes()

    def add_node(self, node: Node) -> None:
        """A new machine, or a known one that was built anew."""
        self._machines.add(node)
        self._tell_nodes()

    def lose_device(self, node: str, device: str) -> None:
        """It fell off its bus: processes that hold it run on until they are stopped, new ones cannot have it."""
        self._machines.lose_device(node, device)
        self._tell_nodes()

    def close_node(self, node: str, because: str) -> None:
        """As an administrator drains it with the cluster's own means. Launches there still work."""
        self._machines.closed[node] = because
        self._tell_nodes()

    def open_node(self, node: str) -> None:
        self._machines.closed.pop(node, None)
        self._tell_nodes()

    def delay_launches(self, seconds: float) -> None:
        """From now on every launch takes this much longer."""
        self._launch_delay_s = seconds

    def fail_launches(self, count: int, fault: Fault = Fault.INFRASTRUCTURE) -> None:
        """The next `count` new gangs are rolled back."""
        self._failing_launches, self._failing_fault = count, fault

    # --- what an engine asks for ---

    def attach(self, watcher: Callable[[GangStatus], None], nodes: Callable[[Inventory], None]) -> None:
        self._watchers.append(watcher)
        self._node_watchers.append(nodes)
        self._agenda.arm()

    def detach(self, watcher: Callable[[GangStatus], None], nodes: Callable[[Inventory], None]) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            self._node_watchers.remove(nodes)

    def inventory(self) -> Inventory:
        shown = self._machines.inventory()
        if self._ahead is None:
            return shown
        opened = [node for node in shown.nodes if node.name not in shown.closed]
        return Inventory((pool_of(POOL, opened, ahead=self._ahead),))

    def statuses(self) -> dict[str, GangStatus]:
        return {name: gang.status for name, gang in self._gangs.items()}

    def status(self, name: str) -> GangStatus | None:
        gang = self._gangs.get(name)
        return gang.status if gang else None

    async def launch(self, spec: Gang, link: Link) -> GangStatus:
        self._note(spec.name, "launch")
        self.launch_calls[spec.name] += 1
        gang = self._gangs.get(spec.name) or self._begin(spec)
        if gang.phase is Phase.STARTING and self._ahead is None:
            if gang.ready:
                self._let_go(gang)
            else:
                answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                gang.waiters.append((link, answer))
                await answer
        gang.raise_failure()
        return gang.status

    def notify(self, name: str, notice: Mapping[str, object]) -> None:
        gang = self._running(name)
        if gang is None:
            return
        self._note(name, "notify")
        self.notices.append((name, dict(notice)))
        self._leave_by_themselves(gang)

    def signal(self, name: str, signum: int) -> None:
        gang = self._running(name)
        if gang is None:
            return
        self._note(name, f"signal {int(signum)}")
        if signum == signals.SIGKILL:
            self._end(gang, gang.live_ranks(), Exit(signal=signum))
        elif signum in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP):
            self._terminate(gang, signum)

    def stop(self, name: str, grace_s: float | None, reason: str) -> None:
        gang = self._gangs.get(name)
        if gang is None or gang.phase is Phase.ENDED:
            return
        self._note(name, "stop")
        if any(rank.node in self._machines.unreachable for rank in gang.ranks.values()):
            return
        if gang.phase is Phase.QUEUED:
            self._leave_queue(gang, Reason("stopped", reason or "asked to stop"))
        elif gang.phase is Phase.STARTING:
            self._give_up(gang)
        else:
            self._stop_running(
                gang, gang.spec.grace_s if grace_s is None else grace_s, Reason("stopped", reason or "asked to stop")
            )

    def read(self, name: str, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
        return self._find(name).read(rank, stream, offset, limit, now=self._agenda.now)

    def log_times(self, name: str, rank: int) -> LogTimes:
        return self._find(name).log_times(rank, now=self._agenda.now)

    def _find(self, name: str) -> SimulatedGang:
        gang = self._gangs.get(name) or self._forgotten.get(name)
        if gang is None:
            raise NotFound(f"there is no gang {name}")
        return gang

    def forget(self, name: str) -> None:
        gang = self._gangs.get(name)
        if gang is None:
            return
        self._kill(gang)
        self._note(name, "forget")
        self._forgotten[name] = self._gangs.pop(name)

    def sweep(self, known: frozenset[str]) -> tuple[str, ...]:
        orphans = tuple(name for name in self.alive() if name not in known)
        for name in orphans:
            self._kill(self._gangs[name])
        return orphans

    # --- launch ---

    def _begin(self, spec: Gang) -> SimulatedGang:
        if not spec.argv or not spec.ranks or [rank.rank for rank in spec.ranks] != list(range(len(spec.ranks))):
            raise Invalid("a gang needs a command, and ranks numbered from 0 without gaps", where=spec.name)
        if self._ahead is not None:
            return self._hand_over(spec)
        self._take(spec)
        gang = self._gangs[spec.name] = SimulatedGang(spec, self._behaviour(spec))
        self._make_processes(gang)
        return gang

    def _take(self, spec: Gang) -> None:
        try:
            self._machines.take(spec)
        except LaunchFailed:
            self._note(spec.name, "refused")
            raise

    def _hand_over(self, spec: Gang) -> SimulatedGang:
        self._machines.check(spec)
        gang = self._gangs[spec.name] = self._queue[spec.name] = SimulatedGang(spec, self._behaviour(spec), queued=True)
        self._note(spec.name, "queued")
        self._schedule()
        return gang

    def _schedule(self) -> None:
        """The cluster's own scheduler."""
        for gang in list(self._queue.values()):
            if gang.phase is not Phase.QUEUED:
                continue  # started meanwhile: one that could not be launched made way for it
            placed = self._machines.pick(gang.spec)
            if placed is not None:
                del self._queue[gang.spec.name]
                self._take(placed)
                gang.start(placed)
                self._make_processes(gang)
            elif gang.wait(Reason("resources", f"needs {described(gang.spec)}, {self._machines.free_in_words()}")):
                self._tell(gang)

    def _leave_queue(self, gang: SimulatedGang, reason: Reason) -> None:
        del self._queue[gang.spec.name]
        gang.ask_to_stop(reason)
        gang.reason = reason
        self._never_start(gang)
        gang.close()
        self._note(gang.spec.name, "end")
        self._tell(gang)

    def _make_processes(self, gang: SimulatedGang) -> None:
        spec, script = gang.spec, gang.script
        self.starts[spec.name] += 1
        self._note(spec.name, "start")
        failure = self._launch_failure(script)
        delay_s = script.launch_s + self._launch_delay_s
        if delay_s:
            late = Reason("launch-timeout", f"not all ranks were ready within {spec.launch_timeout_s:g} s")
            then = partial(self._roll_back, gang, *failure) if failure else partial(self._become_ready, gang)
            self._agenda.after(delay_s, then)
            self._agenda.after(spec.launch_timeout_s, partial(self._roll_back, gang, Fault.PLATFORM, late))
            self._tell(gang)
        elif failure:
            self._roll_back(gang, *failure)
        else:
            self._let_go(gang)

    def _launch_failure(self, script: Script) -> tuple[Fault, Reason] | None:
        if script.launch_error is not None:
            return script.launch_fault, Reason("launch-failed", script.launch_error)
        if self._failing_launches:
            self._failing_launches -= 1
            return self._failing_fault, Reason("launch-failed", "a rank could not be started")
        return None

    def _become_ready(self, gang: SimulatedGang) -> None:
        """The barrier: several ranks go on only at the word of a caller that is alive; one alone needs no word."""
        if gang.phase is not Phase.STARTING:
            return
        gang.ready = True
        alone = len(gang.ranks) == 1 or self._ahead is not None
        if alone or any(link.alive and not answer.done() for link, answer in gang.waiters):
            self._let_go(gang)

    def _let_go(self, gang: SimulatedGang) -> None:
        gang.let_go(at=self._agenda.now, wall=self._agenda.wall, first_pid=self._next_pid)
        self._next_pid += len(gang.ranks)
        self._note(gang.spec.name, "running")
        for script, numbers in gang.by_script():
            if script.run_s < math.inf:
                self._agenda.after(script.run_s, partial(self._end, gang, numbers, script.exit))
        self._answer(gang)
        self._tell(gang)

    def _roll_back(self, gang: SimulatedGang, fault: Fault, reason: Reason) -> None:
        if gang.phase is not Phase.STARTING:
            return
        gang.failure, gang.reason = fault, reason
        self._never_start(gang)
        self._note(gang.spec.name, "rolled-back")
        self._finish(gang)

    def _never_start(self, gang: SimulatedGang) -> None:
        for number in gang.live_ranks():
            gang.end_rank(number, _NEVER_STARTED, at=self._agenda.now, wall=self._agenda.wall)

    def _give_up(self, gang: SimulatedGang) -> None:
        why = "the launch was given up before all ranks were ready"
        self._roll_back(gang, Fault.PLATFORM, Reason("rolled-back", why))

    def _answer(self, gang: SimulatedGang) -> None:
        for link, answer in gang.waiters:
            if link.alive and not answer.done():
                answer.set_result(None)
        gang.waiters.clear()

    # --- the ways to end ---

    def _stop_running(self, gang: SimulatedGang, grace_s: float, reason: Reason) -> None:
        gang.ask_to_stop(reason)
        self._leave_by_themselves(gang)
        self._terminate(gang, signals.SIGTERM, late_s=grace_s * _TERM_AT)
        self._agenda.after(grace_s, partial(self._kill, gang))

    def _leave_by_themselves(self, gang: SimulatedGang) -> None:
        """Ranks with the training hooks checkpoint and leave."""
        for script, numbers in gang.by_script():
            if script.checkpoint_s is not None:
                self._agenda.after(script.checkpoint_s, partial(self._end, gang, numbers, Exit(script.checkpoint_code)))

    def _terminate(self, gang: SimulatedGang, signum: int, *, late_s: float = 0.0) -> None:
        """Send a deadly signal; ranks with the training hooks get it `late_s` later."""
        for script, numbers in gang.by_script():
            if script.term_s is not None:
                delay_s = script.term_s + (late_s if script.checkpoint_s is not None else 0.0)
                self._agenda.after(delay_s, partial(self._end, gang, numbers, Exit(signal=signum)))

    def _kill(self, gang: SimulatedGang) -> None:
        if gang.phase is Phase.QUEUED:
            self._leave_queue(gang, Reason("stopped", "killed by the engine"))
        elif gang.phase is Phase.STARTING:
            self._give_up(gang)
        else:
            gang.ask_to_stop(Reason("stopped", "killed by the engine"))
            self._end(gang, gang.live_ranks(), Exit(signal=signals.SIGKILL))

    def _lose(self, gang: SimulatedGang, ranks: Iterable[int], why: str, *, node_lost: bool = False) -> None:
        if gang.phase is Phase.STARTING:
            self._roll_back(gang, Fault.INFRASTRUCTURE, Reason("rank-lost", why))
            return
        self._note(gang.spec.name, "lost")
        self._end(gang, ranks, Exit(lost=True, node_lost=node_lost, detail=why))

    def _end(self, gang: SimulatedGang, ranks: Iterable[int], exit: Exit) -> None:
        """The first end of a rank counts; later ones find it gone. A rank that fails takes the others with it."""
        ending = [number for number in ranks if gang.ranks[number].phase is Phase.RUNNING]
        if not ending:
            return
        for number in ending:
            gang.end_rank(number, exit, at=self._agenda.now, wall=self._agenda.wall)
        if not gang.live_ranks():
            self._finish(gang)
            return
        self._tell(gang)
        if not exit.ok and not gang.asked_to_stop:
            failed = Reason("rank-failed", f"rank {ending[0]} failed; the others were stopped")
            self._stop_running(gang, gang.spec.grace_s, failed)

    def _finish(self, gang: SimulatedGang) -> None:
        gang.close()
        self._machines.give_back(gang.spec)
        self._note(gang.spec.name, "end")
        self._answer(gang)
        self._tell(gang)
        self._schedule()

    # --- small ---

    def _note(self, name: str, event: str) -> None:
        self.history.append(Happening(self._agenda.wall, name, event))

    def _tell(self, gang: SimulatedGang) -> None:
        for watcher in self._watchers:
            watcher(gang.status)

    def _tell_nodes(self) -> None:
        self._schedule()
        for watcher in self._node_watchers:
            watcher(self.inventory())

    def _known(self, name: str) -> SimulatedGang:
        if name not in self._gangs:
            raise NotFound(f"there is no gang {name}")
        return self._gangs[name]

    def _running(self, name: str) -> SimulatedGang | None:
        gang = self._gangs.get(name)
        return gang if gang and gang.phase is Phase.RUNNING else None
