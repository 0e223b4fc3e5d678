"""Capacity for a guaranteed job that does not fit: what is leaving already, and the best-effort work with least to
lose.

The work a victim loses is its run time since the last checkpoint times the slots it holds. One that never reported a
checkpoint is charged the median of those that did (or its run time if none did), so that silence does not protect
it (kubernetes-sigs/kueue issue 477 has the argument).

On one node the cheapest set is exact: a table over freed devices, or branch and bound where cores or memory are
short. Over several nodes a knapsack over ranks combines the per-node costs. This is exact while no victim spans nodes.
Otherwise a few candidates are searched exhaustively; for many, the knapsack's answer is reduced to what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shoal.admission import reasons
from shoal.admission.amounts import Amount
from shoal.admission.capacity import Capacity, Plan
from shoal.admission.reservation import Reservation, freed_by
from shoal.admission.snapshot import Need, Snapshot, slots
from shoal.admission.together import among
from shoal.admission.types import Pending, Preemption, Running
from shoal.core import Effect, PriorityClass

CLAIMS = 0
"""The bit of the holds for jobs that wait for preempted ones to end: no other may use that capacity, however short."""

_SEARCH_WHOLE = 10
"""Up to this many candidates every set of victims is considered where the fast ways are not exact."""

Loss = tuple[float, int]
"""(accelerator-seconds lost, number of victims): what is made as small as possible."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A best-effort job that may be asked to leave, and what it holds on each node."""

    job_id: str
    loss: float
    holds: dict[int, Amount]


@dataclass(frozen=True, slots=True)
class Eviction:
    """`plan` is where the job will go, `victims` those to ask (none: what is leaving already is enough)."""

    plan: Plan
    victims: tuple[Victim, ...]

    @property
    def loss(self) -> Loss:
        return _loss(self.victims)


@dataclass(slots=True)
class _Option:
    """The cheapest way to have `ranks` ranks on a node."""

    at: int
    ranks: int
    loss: Loss
    victims: tuple[Victim, ...]


@dataclass
class Evictor:
    """One decision's preemptions. Capacity is held under the number `CLAIMS`, which every mask includes."""

    snapshot: Snapshot
    capacity: Capacity
    reservations: list[tuple[int, Reservation]] = field(default_factory=list)
    """The reservations made so far, by the bit that stands for them in a mask."""
    _soon: dict[int, Amount] = field(default_factory=dict)
    _chosen: set[str] = field(default_factory=set)
    _victims: dict[str, Victim] = field(default_factory=dict)
    _options: dict[tuple[Need, int, int], dict[int, list[_Option]]] = field(default_factory=dict)
    _spans: bool = False

    def __post_init__(self) -> None:
        for running in self.snapshot.stopping:
            self._leave(self._holds_of(running))

    def waiting_room(self, need: Need, ranks: int, mask: int) -> Plan | None:
        """Where the gang fits once everything that is stopping has left; None if that is not enough."""
        if not self._soon:
            return None
        fits = {at: self._free_soon(at, mask).ranks(need, ranks) for at in self._soon if self._usable(at, need)}
        for at, count in self.capacity.fitting(need, mask, ranks):
            fits.setdefault(at, count)
        return self._fewest(fits, ranks)

    def will_hold(self, plan: Plan, need: Need, mask: int) -> bool:
        """Whether the plan's capacity, on nodes that take jobs, is free once everything that is stopping has left."""
        return all(self._free_soon(at, mask).ranks(need, ranks) >= ranks for at, ranks in plan)

    def evict(self, need: Need, ranks: int, mask: int) -> Eviction | None:
        """The cheapest victims that make the gang fit; None if all of them together would not."""
        if len(self._chosen) >= self.snapshot.preemptible:
            return None
        options = self._options.get((need, ranks, mask))
        if options is None:
            options = self._options[need, ranks, mask] = {}
            for at in range(len(self.snapshot.jobs_on)):
                self._consider(options, at, need, ranks, mask)
        picked = _combine(options, ranks)
        if picked is None:
            return None
        victims = {victim.job_id: victim for option in picked for victim in option.victims}
        plan = tuple(sorted((option.at, option.ranks) for option in picked))
        if self._spans:
            return self._thinned(need, ranks, mask, tuple(victims.values()), options)
        return Eviction(plan, tuple(victims.values()))

    def keeps(self, need: Need, job: Pending, mask: int, *, preemption: bool) -> bool:
        """Whether reservations alone keep a guaranteed job from what leaves, or (`preemption`) could be asked to."""
        if job.priority_class is not PriorityClass.GUARANTEED or not self._spoken_for(mask):
            return False
        without = 1 << CLAIMS
        if self.waiting_room(need, job.ranks, without) is not None:
            return True
        return preemption and self.evict(need, job.ranks, without) is not None

    def claim(self, need: Need, eviction: Eviction, mask: int) -> None:
        """Ask the victims to leave and keep the capacity for the job: what is free of it now, and what will be."""
        for victim in eviction.victims:
            self._chosen.add(victim.job_id)
            self._leave(victim.holds)
        for at, ranks in eviction.plan:
            keep, soon = self._free_soon(at, mask).part_for(need, ranks), self._soon.get(at)
            if soon is not None:
                keep.draw(soon)
            self.capacity.hold(CLAIMS, at, keep)
        touched = {at for at, _ in eviction.plan}.union(*(victim.holds for victim in eviction.victims))
        self.changed(touched)

    def changed(self, touched: Iterable[int]) -> None:
        """Capacity was taken or held on these nodes: their options must be worked out again."""
        for (need, ranks, mask), options in self._options.items():
            for at in touched:
                options.pop(at, None)
                self._consider(options, at, need, ranks, mask)

    # --- inside

    def _fewest(self, fits: dict[int, int], ranks: int) -> Plan | None:
        """As few nodes as possible for the gang, close to each other, by how many ranks each takes."""
        plan: list[tuple[int, int]] = []
        order = sorted(fits.items(), key=lambda each: (-each[1], each[0]))
        for at, count in among(self.capacity.levels, order, ranks):
            here = min(count, ranks)
            if here:
                plan.append((at, here))
                ranks -= here
            if not ranks:
                return tuple(sorted(plan))
        return None

    def _usable(self, at: int, need: Need) -> bool:
        return self.snapshot.nodes.states[at].schedulable and need.may_be_on(at)

    def _leave(self, holds: dict[int, Amount]) -> None:
        for at, amount in holds.items():
            self._soon.setdefault(at, Amount()).plus(amount)

    def _free_soon(self, at: int, mask: int) -> Amount:
        amount = self.capacity.free_on(at, mask)
        soon = self._soon.get(at)
        if soon is None:
            return amount
        spoken_for = self._spoken_for(mask)
        if spoken_for:
            soon = soon.copy()
            for running in self.snapshot.stopping:
                held = self._holds_of(running).get(at) if running.job_id in spoken_for else None
                if held is not None:
                    held.draw(soon)
        amount.plus(soon)
        return amount

    def _spoken_for(self, mask: int) -> frozenset[str]:
        """The jobs whose capacity is reserved for one that this mask must not delay."""
        return frozenset().union(*(held.rests_on for number, held in self.reservations if mask >> number & 1))

    def _holds_of(self, running: Running) -> dict[int, Amount]:
        holds: dict[int, Amount] = {}
        for at, amount in freed_by(self.snapshot, running):
            if at in holds:
                holds[at].plus(amount)
            else:
                holds[at] = amount
        return holds

    def _victim(self, job_id: str) -> Victim | None:
        """The job as a victim; None if it is not one that may be asked."""
        known = self._victims.get(job_id)
        if known is not None:
            return known
        running = self.snapshot.running[job_id]
        if running.stopping or running.priority_class is PriorityClass.GUARANTEED:
            return None
        loss = at_risk_s(self.snapshot, running) * slots(running.resources, len(running.placement))
        victim = self._victims[job_id] = Victim(job_id, loss, self._holds_of(running))
        self._spans = self._spans or len(victim.holds) > 1
        return victim

    def _candidates(self, at: int, mask: int) -> list[Victim]:
        barred = self._chosen | self._spoken_for(mask)
        found = [self._victim(job_id) for job_id in self.snapshot.jobs_on[at] if job_id not in barred]
        return sorted((v for v in found if v is not None), key=lambda victim: (victim.loss, victim.job_id))

    def _consider(self, options: dict[int, list[_Option]], at: int, need: Need, ranks: int, mask: int) -> None:
        if not self._usable(at, need):
            return
        free = self._free_soon(at, mask)
        victims = self._candidates(at, mask)
        most = free
        if victims:
            most = free.copy()
            for victim in victims:
                most.plus(victim.holds[at])
        top = most.ranks(need, ranks)
        if not top:
            return
        without, step = free.ranks(need, ranks), need.per_node or 1
        found = [_Option(at, count, (0.0, 0), ()) for count in range(step, without + 1, step)]
        for count in range(without + step, top + 1, step):
            chosen = _cheapest(at, free, victims, need, count)
            found.append(_Option(at, count, _loss(chosen), chosen))
        options[at] = found

    def _thinned(
        self, need: Need, ranks: int, mask: int, victims: tuple[Victim, ...], options: dict[int, list[_Option]]
    ) -> Eviction | None:
        """Victims that span nodes free more than one node's option counts: search whole, or drop those not needed."""
        free = {at: self._free_soon(at, mask) for at in options}
        everyone = {victim.job_id: victim for at in options for victim in self._candidates(at, mask)}

        def counted(chosen: Sequence[Victim]) -> dict[int, int]:
            counts: dict[int, int] = {}
            for at, amount in free.items():
                capacity = amount
                for victim in chosen:
                    if at in victim.holds:
                        capacity = capacity.copy() if capacity is amount else capacity
                        capacity.plus(victim.holds[at])
                counts[at] = capacity.ranks(need, ranks)
            return counts

        def fits(chosen: Sequence[Victim]) -> bool:
            return sum(counted(chosen).values()) >= ranks

        best = victims
        if len(everyone) <= _SEARCH_WHOLE:
            best = _search(tuple(sorted(everyone.values(), key=lambda v: (v.loss, v.job_id))), fits, victims)
        for victim in sorted(best, key=lambda v: (-v.loss, v.job_id)):
            fewer = tuple(other for other in best if other is not victim)
            if fits(fewer):
                best = fewer
        plan = self._fewest(counted(best), ranks)
        return Eviction(plan, best) if plan is not None else None


def leave_tainted(snapshot: Snapshot, asked: Collection[str]) -> Iterator[Preemption]:
    """The jobs, beside those `asked` already, that run on nodes with a taint that they do not tolerate there."""
    layout = snapshot.nodes.layout
    leaving = set(asked)
    for at in sorted(layout.tainted):
        node = layout.nodes[at]
        for job_id in snapshot.jobs_on[at]:
            running = snapshot.running[job_id]
            taints = running.affinity.intolerable(node.taints, Effect.NO_EXECUTE)
            if taints and not running.stopping and job_id not in leaving:
                leaving.add(job_id)
                yield Preemption(job_id, "", reasons.tainted(node.name, taints[0]))


def at_risk_s(snapshot: Snapshot, running: Running) -> float:
    """The run time that a job is taken to lose if it ends now."""
    if running.queued:
        return 0.0
    if running.at_risk_s is not None:
        return running.at_risk_s
    if snapshot.median_at_risk_s is not None:
        return snapshot.median_at_risk_s
    return max(0.0, snapshot.now - running.started_at)


def _loss(victims: Sequence[Victim]) -> Loss:
    return sum(victim.loss for victim in victims), len(victims)


def _cheapest(at: int, free: Amount, victims: Sequence[Victim], need: Need, count: int) -> tuple[Victim, ...]:
    """The victims with least to lose that make `count` ranks fit on the node; all of them together do."""
    if need.count:
        short = need.count * count - free.devices.get(need.pool, 0)
        by_devices = _by_devices(at, victims, need.pool, short) if short > 0 else ()
        if by_devices is not None and _fits_with(at, free, by_devices, need, count):
            return by_devices
    everyone = tuple(victims)

    def fits(chosen: Sequence[Victim]) -> bool:
        return _fits_with(at, free, chosen, need, count)

    if len(everyone) <= _SEARCH_WHOLE:
        return _search(everyone, fits, everyone)
    for victim in reversed(everyone):
        fewer = tuple(other for other in everyone if other is not victim)
        if fits(fewer):
            everyone = fewer
    return everyone


def _fits_with(at: int, free: Amount, victims: Sequence[Victim], need: Need, count: int) -> bool:
    capacity = free.copy()
    for victim in victims:
        capacity.plus(victim.holds[at])
    return capacity.ranks(need, count) >= count


def _by_devices(at: int, victims: Sequence[Victim], pool: str, short: int) -> tuple[Victim, ...] | None:
    """The cheapest set that frees `short` devices on the node: a knapsack over freed devices. The victims come in order
    of loss: of those that free as much as each other, only the first that would be enough matter."""
    best: list[tuple[Loss, tuple[Victim, ...]] | None] = [((0.0, 0), ())] + [None] * short
    useful: dict[int, int] = {}
    for victim in victims:
        freed = victim.holds[at].devices.get(pool, 0)
        if not freed or useful.setdefault(freed, -(-short // freed)) == 0:
            continue
        useful[freed] -= 1
        for have in range(short, -1, -1):
            entry = best[have]
            if entry is None or have == short:
                continue
            to = min(short, have + freed)
            loss = (entry[0][0] + victim.loss, entry[0][1] + 1)
            known = best[to]
            if known is None or loss < known[0]:
                best[to] = (loss, (*entry[1], victim))
    last = best[short]
    return last[1] if last is not None else None


def _search(
    victims: tuple[Victim, ...], fits: Callable[[Sequence[Victim]], bool], known: tuple[Victim, ...]
) -> tuple[Victim, ...]:
    """The cheapest set of victims that fits, `known` being one; branch and bound over all sets."""
    best, best_loss = known, _loss(known)
    stack: list[tuple[int, tuple[Victim, ...], Loss]] = [(0, (), (0.0, 0))]
    while stack:
        at, chosen, loss = stack.pop()
        if loss >= best_loss:
            continue
        if fits(chosen):
            best, best_loss = chosen, loss
            continue
        if at < len(victims):
            victim = victims[at]
            stack.append((at + 1, chosen, loss))
            stack.append((at + 1, (*chosen, victim), (loss[0] + victim.loss, loss[1] + 1)))
    return best


def _combine(options: dict[int, list[_Option]], ranks: int) -> tuple[_Option, ...] | None:
    """The cheapest options, one per node, that hold all ranks: a knapsack over ranks.

    An optimum uses at most `ranks` nodes, so for each number of ranks on a node only the `ranks` cheapest nodes matter.
    """
    by_count: dict[int, list[_Option]] = {}
    for found in options.values():
        for option in found:
            by_count.setdefault(option.ranks, []).append(option)
    useful: dict[int, list[_Option]] = {}
    for same in by_count.values():
        same.sort(key=lambda option: (option.loss, option.at))
        for option in same[:ranks]:
            useful.setdefault(option.at, []).append(option)
    if ranks == 1:
        return (by_count[1][0],) if by_count else None
    best: list[tuple[Loss, tuple[_Option, ...]] | None] = [((0.0, 0), ())] + [None] * ranks
    for at in sorted(useful):
        for have in range(ranks - 1, -1, -1):
            entry = best[have]
            if entry is None:
                continue
            for option in useful[at]:
                to = have + option.ranks
                if to > ranks:
                    continue
                loss = (entry[0][0] + option.loss[0], entry[0][1] + option.loss[1])
                known = best[to]
                if known is None or loss < known[0]:
                    best[to] = (loss, (*entry[1], option))
    last = best[ranks]
    return last[1] if last is not None else None
