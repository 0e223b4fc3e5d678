"""From the control plane's snapshot to what a policy is asked: which jobs compete, for what, how fast they would be.

Who competes is best-effort work that asks for accelerators of one type, or of any. All else that holds accelerators
(guaranteed jobs, services, jobs of several types at once) keeps them: they are taken out of the pools and the quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from shoal.admission import Group, Need, Pending, Running, Snapshot, expected_runtime_s, held_by_all, resolve
from shoal.contract.records import RankPlacement
from shoal.core import ANY, Affinity, Money, PriorityClass, Resources, Share, Tenant, Throughput
from shoal.extension import LiveJob
from shoal.schedule import Configuration, JobView, Pool, Problem, problem_of
from shoal.schedule.live.facts import Facts, Look, facts_of
from shoal.schedule.live.goodput import candidate_sizes, complete
from shoal.schedule.minimum_run import Unsaved, saves, unsaved, waited_for
from shoal.schedule.oracle import Oracle

PRIORITY_DOUBLES = 10.0
"""The points of priority that double a job's weight."""

NONE_WAITS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Rules:
    """What of the configuration shapes the problem. With `predict`, a job that does not say how much work it has left
    is given what admission expects of it; with `by_tenant`, a tenant's weight is its entity's and not each job's.
    `soon_s`: jobs whose back-off ends within that time compete. With `sizes`, the policy chooses the size of jobs that
    leave it open; then no job that came to run less than `hold_s` ago is moved. `time_slice_s` is for how long a job
    keeps its place that saves its work; others keep it for longer (`minimum_run`)."""

    prices: Mapping[str, Money] = field(default_factory=dict)
    predict: bool = False
    by_tenant: bool = False
    soon_s: float = 0.0
    sizes: bool = False
    hold_s: float = 0.0
    time_slice_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a competing job runs, or shall run: the type, how many accelerators, since when (it was told so)."""

    type: str
    accelerators: int
    since: float


NOWHERE: Mapping[str, JobPlace] = {}


@dataclass(frozen=True)
class LiveProblem:
    """`views`, `pools` and `tenants` are the problem in objects; `on` is where the competing jobs run that were not
    asked to leave, `since_s` for how long they have, and the others have been in the queue. `unsaved` are those of them
    that would lose their work, `slice_s` is how long the time slices are of those that do not save it, running or not,
    and `waited_since` since when a job has been waiting for each type that any waits for. `promised` are the
    places of jobs that left others for them and have not come to run there yet."""

    now: float
    views: tuple[JobView, ...]
    pools: tuple[Pool, ...]
    tenants: tuple[Tenant, ...]
    on: Mapping[str, JobPlace]
    since_s: Mapping[str, float] = field(default_factory=dict)
    unsaved: Mapping[str, Unsaved] = field(default_factory=dict)
    slice_s: Mapping[str, float] = field(default_factory=dict)
    waited_since: Mapping[str, float] = field(default_factory=dict)
    promised: Mapping[str, JobPlace] = field(default_factory=dict)

    def problem(self) -> Problem:
        """Raises `Invalid` as `Problem` does."""
        return problem_of(self.views, self.pools, now=self.now, tenants=self.tenants)


def competes(snapshot: Snapshot, resources: Resources, priority_class: PriorityClass, affinity: Affinity) -> bool:
    """Whether rounds share out time to it: a share of a device beside guaranteed work is no whole device's time. Nodes
    with taints are set aside: they are in no pool, and a job that may be on no other node is admission's."""
    whole = resources.share is Share.EXCLUSIVE and len(resources.accelerators) == 1
    if not whole or priority_class is not PriorityClass.BEST_EFFORT:
        return False
    layout = snapshot.nodes.layout
    if not layout.tainted or not affinity:
        return True
    sites = layout.sites(affinity)
    return sites is None or not sites.at or not sites.at <= layout.tainted


def competing_groups(snapshot: Snapshot) -> Iterator[Group]:
    """Groups of waiting jobs that compete."""
    for queue in snapshot.pending.by_tenant.values():
        for group in queue.best_effort:
            key = group.key
            if competes(snapshot, key.resources, key.priority_class, key.affinity):
                yield group


def type_of(snapshot: Snapshot, placement: tuple[RankPlacement, ...]) -> str | None:
    """The accelerator type that a job of one type holds; None when its nodes are gone."""
    return next((kind for _, kind in _devices(snapshot, placement)), None)


def _devices(snapshot: Snapshot, placement: tuple[RankPlacement, ...]) -> Iterator[tuple[int, str]]:
    """(node, type) of each device that is held on nodes that are there."""
    layout = snapshot.nodes.layout
    for rank in placement:
        at = layout.position.get(rank.node)
        if at is not None:
            types = layout.type_of[at]
            yield from ((at, types[device]) for device in rank.devices if device in types)


def needs_of(
    snapshot: Snapshot, resources: Resources, ranks: int, per_node: int, affinity: Affinity
) -> tuple[Need, ...]:
    """What a rank needs, for each type on which the whole gang would fit if the nodes for it were empty."""
    layout = snapshot.nodes.layout
    kinds = layout.types if ANY in resources.accelerators else tuple(resources.accelerators)
    needs = [layout.on_nodes(resolve(resources, kind), per_node, affinity) for kind in kinds]
    return tuple(need for need in needs if held_by_all(layout, need, ranks) >= ranks)


def facts_by_id(snapshot: Snapshot, find: Callable[[str], LiveJob | None]) -> dict[str, Facts]:
    """What is known now of the jobs that compete, and of all that run: it stays as it is while the jobs go on."""
    waiting = (job.job_id for group in competing_groups(snapshot) for job in (*group.ready, *group.delayed))
    found = ((job_id, find(job_id)) for job_id in (*waiting, *snapshot.running))
    return {job_id: facts_of(live) for job_id, live in found if live is not None}


def live_problem(
    snapshot: Snapshot,
    look: Look,
    oracle: Oracle,
    rules: Rules,
    waited_since: Mapping[str, float] = NONE_WAITS,
    promised: Mapping[str, JobPlace] = NOWHERE,
) -> LiveProblem:
    """`waited_since` and `promised` are the last round's. Pure but for `look`."""
    waiting = [(job, facts) for job in _waiting(snapshot, rules.soon_s) if (facts := look(job.job_id)) is not None]
    running: list[tuple[Running, Facts, JobPlace | None]] = []
    taken: dict[str, int] = {}
    held: dict[str, dict[str, int]] = {}
    for each in snapshot.running.values():
        facts = look(each.job_id)
        kind = type_of(snapshot, each.placement)
        mine = (
            facts is not None and not facts.replica
            and competes(snapshot, each.resources, each.priority_class, each.affinity)
        )  # fmt: skip
        if facts is not None and mine and not facts.leaving:
            place = None
            if kind is not None and not each.stopping:
                place = JobPlace(kind, each.resources.accelerator_count * len(each.placement), each.started_at)
                for at, _ in _devices(snapshot, each.placement):
                    if not _shared_out(snapshot, at):  # it may stay where no other may come
                        taken[kind] = taken.get(kind, 0) - 1
            running.append((each, facts, place))
        elif not mine:
            _take(snapshot, each, taken, held)
    pools = _pools(snapshot, taken, rules.prices)
    names = [pool.type for pool in pools]
    on = {each.job_id: place for each, _, place in running if place is not None}
    between = {each.job_id for each, _, place in running if place is None} | {job.job_id for job, _ in waiting}
    promised = _still(promised, between, pools, on, snapshot.now, rules) if rules.sizes else NOWHERE
    views = _Views(snapshot, oracle, rules, names)
    asked = [views.asked(each, facts, place or promised.get(each.job_id)) for each, facts, place in running]
    asked += [views.asked(job, facts, promised.get(job.job_id)) for job, facts in waiting]
    views.learn(asked)
    found = [views.of(each) for each in asked]
    since_s = {job.job_id: snapshot.now - facts.queued_at for job, facts in waiting}
    wanted = [(view.throughput, since_s[view.id]) for view in found if view.id in since_s]
    waited_since = waited_for(wanted, waited_since, snapshot.now)
    risks = {
        each.job_id: risk
        for each, facts, place in running
        if place is not None
        and (risk := unsaved(facts, place.type, place.since, snapshot.now,
                             waited_since=waited_since.get(place.type), time_slice_s=rules.time_slice_s))
    }  # fmt: skip
    found = [_held(view, risks.get(view.id)) for view in found]
    found.sort(key=lambda view: (view.arrived, view.id))
    tenants = tuple(
        _without(state.tenant, held.get(name, {}))
        for name in sorted({view.tenant for view in found})
        if (state := snapshot.tenants.get(name)) is not None
    )
    return LiveProblem(
        snapshot.now, tuple(found), pools, tenants,
        on,
        since_s | {job_id: snapshot.now - place.since for job_id, place in on.items()},
        risks,
        {job.job_id: facts.lost_s for job, facts in waiting if facts.lost_s > rules.time_slice_s}
        | {job_id: risk.slice_s for job_id, risk in risks.items()},
        waited_since,
        promised,
    )  # fmt: skip


def _still(
    promised: Mapping[str, JobPlace],
    between: Set[str],
    pools: Sequence[Pool],
    on: Mapping[str, JobPlace],
    now: float,
    rules: Rules,
) -> dict[str, JobPlace]:
    """The promises that hold: of jobs `between` two places, for as long as a size is kept, and while there is room.
    Without this, a job that left its place to grow could come back as it was, and would have restarted for nothing."""
    left = {pool.type: pool.count for pool in pools}
    for place in on.values():
        left[place.type] = left.get(place.type, 0) - place.accelerators
    found = {}
    for job_id, place in promised.items():
        young = 0.0 <= now - place.since < rules.hold_s
        if job_id in between and young and place.accelerators <= left.get(place.type, 0):
            left[place.type] -= place.accelerators
            found[job_id] = place
    return found


def _held(view: JobView, risk: Unsaved | None) -> JobView:
    """Held in its place for as long as it keeps it."""
    if risk is None or not risk.kept:
        return view
    return replace(view, min_run_s=max(view.min_run_s, view.placed_s + risk.keeps_s))


def _waiting(snapshot: Snapshot, soon_s: float) -> Iterator[Pending]:
    for group in competing_groups(snapshot):
        yield from group.ready
        yield from (job for job in group.delayed if job.not_before <= snapshot.now + soon_s)


def _take(snapshot: Snapshot, running: Running, taken: dict[str, int], held: dict[str, dict[str, int]]) -> None:
    """Count what a job holds that does not compete."""
    mine = held.setdefault(running.tenant, {})
    for at, kind in _devices(snapshot, running.placement):
        mine[kind] = mine.get(kind, 0) + 1
        if _shared_out(snapshot, at):
            taken[kind] = taken.get(kind, 0) + 1


def _shared_out(snapshot: Snapshot, at: int) -> bool:
    """Whether the devices of this node are in the pools."""
    return snapshot.nodes.states[at].schedulable and at not in snapshot.nodes.layout.tainted


def _pools(snapshot: Snapshot, taken: Mapping[str, int], prices: Mapping[str, Money]) -> tuple[Pool, ...]:
    """One for each type of which there is any. On which nodes a gang goes is admission's part, so that pools have no
    machines here."""
    counts: dict[str, int] = {}
    for at, state in enumerate(snapshot.nodes.states):
        if _shared_out(snapshot, at):
            for device in state.node.devices:
                counts[device.type] = counts.get(device.type, 0) + 1
    left = {kind: counts.get(kind, 0) - taken.get(kind, 0) for kind in sorted({*counts, *taken})}
    return tuple(Pool(kind, count, prices.get(kind, Money())) for kind, count in left.items() if count > 0)


def _without(tenant: Tenant, held: Mapping[str, int]) -> Tenant:
    """The tenant with what is left of its quota beside what it holds that does not compete."""
    quota = tenant.quota
    total = None if quota.accelerators is None else max(0, quota.accelerators - sum(held.values()))
    by_type = tuple((kind, max(0, limit - held.get(kind, 0))) for kind, limit in quota.by_type)
    return replace(tenant, quota=replace(quota, accelerators=total, by_type=by_type))


class _Competitor(NamedTuple):
    """A job that competes, where it runs, how many ranks and accelerators it has, or needs to start, and all numbers of
    accelerators at which its speed is to be known."""

    job: Pending | Running
    facts: Facts
    place: JobPlace | None
    ranks: int
    gang: int
    sizes: tuple[int, ...]


_Speeds = dict[int, tuple[list[float], list[float]]]
"""By the number of accelerators: rates and their deviations, on each type."""


def _ranks(job: Pending | Running, facts: Facts) -> int:
    """The ranks that a job needs to start that has no place."""
    if isinstance(job, Pending):
        return job.ranks
    return len(job.placement) if facts.ranks is None else facts.ranks[0]


class _Views:
    """Makes the views of jobs; jobs of one kind and shape share what is worked out for them."""

    def __init__(self, snapshot: Snapshot, oracle: Oracle, rules: Rules, types: list[str]) -> None:
        self._snapshot = snapshot
        self._oracle = oracle
        self._rules = rules
        self._types = types
        self._fits: dict[tuple[Resources, int, int, Affinity], frozenset[str]] = {}
        self._known: dict[str, _Speeds] = {}

    def learn(self, jobs: list[_Competitor]) -> None:
        """Ask the oracle about all jobs at once: one by one takes it ten times as long."""
        if not jobs or not self._types:
            return
        rows = [(each.job.job_id, each.facts.sized(size)) for each in jobs for size in each.sizes]
        rate, std = self._oracle.rates(rows, self._types)
        alike: dict[tuple[int, ...], list[int]] = {}
        first = 0
        for each in jobs:
            if len(each.sizes) > 1:
                alike.setdefault(each.sizes, []).append(first)
            first += len(each.sizes)
        for some, starts in alike.items():
            at = np.add.outer(starts, np.arange(len(some)))
            rate[at], std[at] = complete(rate[at], std[at], some)
        speeds = zip(rate.tolist(), std.tolist(), strict=True)
        for each in jobs:
            self._known[each.job.job_id] = {size: next(speeds) for size in each.sizes}

    def asked(self, job: Pending | Running, facts: Facts, place: JobPlace | None) -> _Competitor:
        count = job.resources.accelerator_count
        ranks = _ranks(job, facts) if place is None else place.accelerators // count
        gang = count * ranks
        if not self._rules.sizes or facts.ranks is None:
            return _Competitor(job, facts, place, ranks, gang, (gang,))
        sizes = {gang, *(count * each for each in candidate_sizes(*facts.ranks))}
        return _Competitor(job, facts, place, ranks, gang, tuple(sorted(sizes)))

    def of(self, asked: _Competitor) -> JobView:
        job, facts, place, ranks, gang, _ = asked
        speeds = self._speeds(job, facts, ranks, gang)
        now = self._snapshot.now
        so_far = now - job.started_at if isinstance(job, Running) else 0.0
        return JobView(
            id=job.job_id,
            tenant=job.tenant,
            throughput=speeds,
            gang=gang,
            weight=self._weight(job),
            work_left=self._work_left(job, facts, speeds, so_far),
            deadline=facts.deadline_at,
            arrived=min(facts.submitted_at, now),
            ran_s=facts.ran_s + max(so_far, 0.0),
            placed=place.type if place is not None else None,
            placed_s=max(now - place.since, 0.0) if place is not None else 0.0,
            min_run_s=self._rules.hold_s if self._rules.sizes else 0.0,
            restarts=facts.attempts,
            kind=facts.sized(gang),
            elastic=tuple(self._configurations(asked)) if len(asked.sizes) > 1 else (),
        )

    def _configurations(self, asked: _Competitor) -> Iterator[Configuration]:
        """A job that would not take its work along is not grown for speed, nor moved: only made smaller, for others."""
        place = asked.place if not saves(asked.facts, self._rules.time_slice_s) else None
        count = asked.job.resources.accelerator_count
        for size in asked.sizes:
            for kind, speed in self._speeds(asked.job, asked.facts, size // count, size).items():
                if place is None or (kind == place.type and size <= place.accelerators):
                    yield Configuration(kind, size, speed)

    def _speeds(self, job: Pending | Running, facts: Facts, ranks: int, gang: int) -> dict[str, Throughput]:
        shape = (job.resources, ranks, facts.per_node, job.affinity)
        fits = self._fits.get(shape)
        if fits is None:
            fits = frozenset(need.pool for need in needs_of(self._snapshot, *shape))
            self._fits[shape] = fits
        if not fits or not self._types:
            return {}
        found = zip(self._types, *self._known[job.job_id][gang], strict=True)
        return {kind: Throughput(rate, std) for kind, rate, std in found if rate > 0.0 and kind in fits}

    def _weight(self, job: Pending | Running) -> float:
        state = self._snapshot.tenants.get(job.tenant)
        tenants = 1.0 if state is None or self._rules.by_tenant else state.tenant.weight
        weight: float = tenants * 2.0 ** (job.priority / PRIORITY_DOUBLES)
        return weight

    def _work_left(
        self, job: Pending | Running, facts: Facts, speeds: Mapping[str, Throughput], so_far: float
    ) -> float | None:
        if facts.steps_left is not None or not self._rules.predict or not speeds:
            return facts.steps_left
        state = self._snapshot.tenants.get(job.tenant)
        mean = state.mean_runtime_s if state is not None else None
        if isinstance(job, Pending):
            expected = expected_runtime_s(job, mean, self._snapshot.policy)
        elif job.expected_end is not None:
            expected = job.expected_end - job.started_at
        else:
            expected = mean if mean is not None else self._snapshot.policy.default_runtime_s
        # What has run longer than expected is taken to need as long again.
        ran = facts.ran_s + so_far
        left_s = expected - ran if ran < expected else max(ran, 1.0)
        return left_s * sum(speed.per_s for speed in speeds.values()) / len(speeds)
